// node-redis in RESP3: commands and their types, a script as a command, transactions with WATCH in a pool, pub/sub pushes between
// replies, blocking pops, scan iterators, and a RESP2 client beside it.
"use strict";
const assert = require("node:assert/strict");
const { createClient, createClientPool, defineScript, RESP_TYPES, WatchError } = require("redis");

const socket = { port: Number(process.argv[2]) };
const add = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: "return redis.call('INCRBY', KEYS[1], ARGV[1]) * 2",
  parseCommand(parser, key, n) {
    parser.pushKey(key);
    parser.push(String(n));
  },
  transformReply: (reply) => reply,
});
const N_TRANSACTIONS = 400;

async function open(options = {}) {
  const client = createClient({ socket, RESP: 3, scripts: { add }, ...options });
  client.on("error", fail);
  return client.connect();
}

async function main() {
  const client = await open();
  await client.flushAll();
  await types(client);
  await scripts(client);
  await scans(client);
  await pubsub(client);
  await blocking(client);
  const conflicts = await transactions(client);
  const old = await open({ RESP: 2 });
  assert.deepEqual({ ...(await old.hGetAll("h")) }, { f: "1", g: "2" });
  assert.equal(await old.add("script", 1), 24);
  old.destroy();
  await client.close();
  const { version } = require("redis/package.json");
  console.log(`node-redis ${version}: ok, ${N_TRANSACTIONS} transactions, ${conflicts} conflicts`);
}

async function types(client) {
  assert.equal(await client.set("k", "v", { expiration: { type: "EX", value: 100 }, condition: "NX" }), "OK");
  assert.equal(await client.set("k", "w", { condition: "NX" }), null);
  assert.equal(await client.ttl("k"), 100);
  assert.equal(await client.hSet("h", { f: "1", g: "2" }), 2);
  assert.deepEqual({ ...(await client.hGetAll("h")) }, { f: "1", g: "2" });
  assert.deepEqual(await client.sAdd("s", ["x", "y"]), 2);
  assert.deepEqual((await client.sMembers("s")).sort(), ["x", "y"]);
  await client.zAdd("z", [{ score: 1.5, value: "a" }, { score: Infinity, value: "b" }]);
  const ranked = [{ value: "a", score: 1.5 }, { value: "b", score: Infinity }];
  assert.deepEqual((await client.zRangeWithScores("z", 0, -1)).map((item) => ({ ...item })), ranked);
  assert.equal(await client.zScore("z", "a"), 1.5);
  const buffers = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const binary = Buffer.from([0, 13, 10, 255]);
  await client.set("bin", binary);
  assert.deepEqual(await buffers.get("bin"), binary);
  await assert.rejects(client.lPush("k", "x"), /^SimpleError: WRONGTYPE|WRONGTYPE/);
  const many = await Promise.all(Array.from({ length: 5000 }, (_, n) => client.incrBy("n", n)));
  assert.equal(many[4999], (4999 * 5000) / 2);
}

async function scripts(client) {
  assert.equal(await client.add("script", 5), 10);
  await client.scriptFlush();
  assert.equal(await client.add("script", 5), 20);
  assert.deepEqual(await client.multi().add("script", 1).get("script").exec(), [22, "11"]);
  const map = "redis.setresp(3) return redis.call('HGETALL', KEYS[1])";
  assert.deepEqual({ ...(await client.eval(map, { keys: ["h"] })) }, { f: "1", g: "2" });
  assert.equal(await client.eval("return {double = 1.5}"), 1.5);
}

async function scans(client) {
  const entries = Object.fromEntries(Array.from({ length: 700 }, (_, n) => [`scan:${n}`, String(n)]));
  await client.mSet(entries);
  const found = new Set();
  for await (const keys of client.scanIterator({ MATCH: "scan:*", COUNT: 50 })) keys.forEach((key) => found.add(key));
  assert.equal(found.size, 700);
}

// One RESP3 connection hears messages between its own replies.
async function pubsub(client) {
  const heard = [];
  const listener = await open();
  await listener.subscribe("news", (message) => heard.push(message));
  await listener.pSubscribe("n*", (message, channel) => heard.push(`${channel} ${message}`));
  const reading = Array.from({ length: 300 }, () => listener.get("k"));
  for (let n = 0; n < 100; n++) assert.equal(await client.publish("news", String(n)), 2);
  assert.ok((await Promise.all(reading)).every((value) => value === "v"));
  while (heard.length < 200) await listener.ping();
  const plain = heard.filter((message) => !message.startsWith("news"));
  assert.deepEqual(plain, Array.from({ length: 100 }, (_, n) => String(n)));
  await listener.unsubscribe("news");
  assert.equal(await client.publish("news", "x"), 1);
  await listener.close();
}

async function blocking(client) {
  const waiter = await open();
  const popped = waiter.blPop(["none", "late"], 10);
  const moved = (await open()).blMove("late2", "to", "LEFT", "RIGHT", 10);
  await client.rPush("late", "a");
  await client.multi().set("x", "1").rPush("late2", "b").exec();
  assert.deepEqual({ ...(await popped) }, { key: "late", element: "a" });
  assert.equal(await moved, "b");
  assert.deepEqual(await client.lRange("to", 0, -1), ["b"]);
  assert.equal(await waiter.blPop("none", 0.05), null);
  waiter.destroy();
}

async function transactions(client) {
  let conflicts = 0;
  const pool = createClientPool({ socket, RESP: 3 }, { minimum: 4, maximum: 8 });
  pool.on("error", fail);
  await pool.connect();
  const one = async () => {
    for (;;) {
      try {
        return await pool.execute(async (member) => {
          await member.watch(["w", "v"]);
          const value = Number((await member.get("w")) ?? 0);
          await member.multi().set("w", String(value + 1)).incr("v").exec();
        });
      } catch (error) {
        if (!(error instanceof WatchError)) throw error;
        conflicts++;
      }
    }
  };
  await Promise.all(Array.from({ length: N_TRANSACTIONS }, one));
  assert.deepEqual(await client.mGet(["w", "v"]), [String(N_TRANSACTIONS), String(N_TRANSACTIONS)]);
  assert.ok(conflicts > 0);
  pool.destroy();
  return conflicts;
}

const guard = setTimeout(() => fail(new Error("not done after 60 s")), 60_000);
function fail(error) {
  console.error("node-redis:", error);
  process.exit(1);
}
main().then(() => process.exit(0), fail);
