// ioredis against the server on a port: commands, pipelines, auto-pipelining, transactions, WATCH, several connections.
"use strict";
const assert = require("node:assert/strict");
const Redis = require("ioredis");

const port = Number(process.argv[2]);
const options = { port, lazyConnect: true, maxRetriesPerRequest: 1, connectionName: "smoke" };

async function main() {
  const redis = new Redis(options);
  redis.on("error", (error) => fail(error));
  await redis.connect();
  assert.equal(redis.status, "ready");
  assert.equal(await redis.flushall(), "OK");
  await commands(redis);
  await pipelines(redis);
  await transactions(redis);
  await manyConnections();
  await pubsub(redis);
  await redis.quit();
  console.log(`ioredis ${require("ioredis/package.json").version}: ok`);
}

async function commands(redis) {
  assert.equal(await redis.set("k", "v", "EX", 100, "NX"), "OK");
  assert.equal(await redis.set("k", "w", "NX"), null);
  assert.equal(await redis.get("k"), "v");
  assert.deepEqual(await redis.getBuffer("k"), Buffer.from("v"));
  assert.equal(await redis.incrby("n", 7), 7);
  assert.equal(await redis.mset({ a: 1, b: 2 }), "OK");
  assert.deepEqual(await redis.mget("a", "missing", "b"), ["1", null, "2"]);
  assert.equal(await redis.rpush("l", 1, 2, 3), 3);
  assert.deepEqual(await redis.lrange("l", 0, -1), ["1", "2", "3"]);
  assert.equal(await redis.sadd("s", "x", "y"), 2);
  assert.deepEqual((await redis.smembers("s")).sort(), ["x", "y"]);
  assert.equal(await redis.hset("h", { f: "1", g: "2" }), 2);
  assert.deepEqual(await redis.hgetall("h"), { f: "1", g: "2" });
  assert.equal(await redis.client("GETNAME"), "smoke");
  await assert.rejects(redis.lpush("k", 1), /^ReplyError: WRONGTYPE/);
  const found = [];
  for await (const keys of redis.scanStream({ count: 3 })) found.push(...keys);
  assert.deepEqual([...new Set(found)].sort(), ["a", "b", "h", "k", "l", "n", "s"]);
  const binary = Buffer.from([0, 1, 13, 10, 255]);
  await redis.set("bin", binary);
  assert.deepEqual(await redis.getBuffer("bin"), binary);
}

async function pipelines(redis) {
  const pipeline = redis.pipeline();
  for (let i = 0; i < 5000; i++) pipeline.set(`p:${i}`, i).get(`p:${i}`);
  const replies = await pipeline.exec();
  replies.forEach(([error]) => assert.equal(error, null));
  assert.equal(replies[9999][1], "4999");
  const auto = new Redis({ ...options, enableAutoPipelining: true });
  const values = await Promise.all(Array.from({ length: 2000 }, (_, i) => auto.get(`p:${i}`)));
  assert.equal(values[1999], "1999");
  auto.disconnect();
}

async function transactions(redis) {
  const replies = await redis.multi().set("t", 1).incr("t").lpush("t", "x").hgetall("h").exec();
  assert.equal(replies[1][1], 2);
  assert.match(String(replies[2][0]), /WRONGTYPE/);
  assert.deepEqual(replies[3][1], { f: "1", g: "2" });
  const other = new Redis(options);
  await redis.watch("t");
  await other.set("t", "changed");
  assert.equal(await redis.multi().get("t").exec(), null);
  other.disconnect();
}

async function manyConnections() {
  const clients = Array.from({ length: 20 }, () => new Redis(options));
  await Promise.all(clients.map(async (client) => {
    for (let i = 0; i < 100; i++) await client.incr("shared");
  }));
  assert.equal(await clients[0].get("shared"), "2000");
  clients.forEach((client) => client.disconnect());
}

async function pubsub(redis) {
  const listener = new Redis(options);
  const heard = new Promise((resolve) => {
    const messages = [];
    const hear = (...message) => messages.push(message) === 3 && resolve(messages);
    listener.on("message", (channel, text) => hear(channel, text));
    listener.on("pmessage", (pattern, channel, text) => hear(pattern, channel, text));
    listener.on("smessage", (channel, text) => hear("shard", channel, text));
  });
  assert.equal(await listener.subscribe("news"), 1);
  assert.equal(await listener.psubscribe("n?ws"), 2);
  assert.equal(await listener.ssubscribe("news"), 1);
  assert.equal(await redis.publish("news", "hello"), 2);
  assert.equal(await redis.spublish("news", "hello"), 1);
  const messages = (await heard).map((message) => message.join(" ")).sort();
  assert.deepEqual(messages, ["n?ws news hello", "news hello", "shard news hello"]);
  await listener.unsubscribe("news");
  await listener.quit();
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

main().catch(fail);
