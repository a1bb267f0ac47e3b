// ioredis: Lua commands (defineCommand, dynamic key counts, buffers, NOSCRIPT, in pipelines and transactions) and auto-pipelining
// of 20,000 calls among twenty clients; every reply must belong to its request.
"use strict";
const assert = require("node:assert/strict");
const Redis = require("ioredis");

const options = { port: Number(process.argv[2]), maxRetriesPerRequest: 1 };
const N_CLIENTS = 20;
const N_CALLS = 1000;
const scripts = {
  // Takes from one counter and gives to another, unless that would leave too little.
  transfer: { numberOfKeys: 2, lua: `
    local have = tonumber(redis.call("GET", KEYS[1]) or "0")
    local amount = tonumber(ARGV[1])
    if have < amount then return redis.error_reply("POOR only " .. have) end
    redis.call("DECRBY", KEYS[1], amount)
    return { redis.call("INCRBY", KEYS[2], amount), have - amount }` },
  // The number of keys comes first in the call.
  total: { lua: `
    local sum = 0
    for _, key in ipairs(KEYS) do sum = sum + tonumber(redis.call("GET", key) or "0") end
    return sum` },
  echo: { numberOfKeys: 0, readOnly: true, lua: "return ARGV" },
  // Names its keys itself, as many libraries' scripts do.
  undeclared: { numberOfKeys: 1, lua: `
    local id = redis.call("INCR", KEYS[1] .. ":id")
    redis.call("HSET", KEYS[1] .. ":" .. id, "n", id, "by", ARGV[1])
    redis.call("ZADD", KEYS[1] .. ":index", id, id)
    return id` },
};

async function main() {
  const redis = new Redis({ ...options, scripts });
  await redis.flushall();
  await lua(redis);
  await contended();
  await autoPipelining();
  await blocking(redis);
  await redis.quit();
  console.log(`ioredis scripts: ok, ${N_CLIENTS * N_CALLS} calls pipelined by themselves`);
}

async function lua(redis) {
  await redis.set("from", 10);
  assert.deepEqual(await redis.transfer("from", "to", 4), [4, 6]);
  await assert.rejects(redis.transfer("from", "to", 7), /POOR only 6/);
  assert.equal(await redis.total(3, "from", "to", "none"), 10);
  const binary = Buffer.from([0, 255, 13, 10]);
  assert.deepEqual(await redis.echoBuffer(binary, "x"), [binary, Buffer.from("x")]);
  await redis.script("FLUSH");
  assert.deepEqual(await redis.transfer("from", "to", 1), [5, 5]);
  const replies = await redis.pipeline().transfer("from", "to", 1).get("from").transfer("from", "to", 100).exec();
  assert.deepEqual(replies[0], [null, [6, 4]]);
  assert.deepEqual(replies[1], [null, "4"]);
  assert.match(replies[2][0].message, /POOR only 4/);
  assert.equal(await redis.total(2, "from", "to"), 10);
  const inside = await redis.multi().transfer("from", "to", 1).total(2, "from", "to").exec();
  assert.deepEqual(inside, [[null, [7, 3]], [null, 10]]);
  assert.equal(await redis.eval("return redis.call('GET', KEYS[1])", 1, "to"), "7");
  assert.deepEqual(await redis.eval("return {1, 2.9, 'three', true, false, {4}}", 0), [1, 2, "three", 1, null, [4]]);
  await assert.rejects(redis.evalsha("f".repeat(40), 0), /^ReplyError: NOSCRIPT/);
}

async function contended() {
  const clients = Array.from({ length: 8 }, () => new Redis({ ...options, scripts }));
  await clients[0].mset("a", 10_000, "b", 0);
  const rounds = clients.map(async (client, at) => {
    for (let n = 0; n < 200; n++) {
      await (at % 2 ? client.transfer("a", "b", 3) : client.undeclared("job", at));
    }
  });
  await Promise.all(rounds);
  assert.deepEqual(await clients[0].mget("a", "b"), [String(10_000 - 2400), "2400"]);
  assert.equal(await clients[0].get("job:id"), "800");
  const index = await clients[0].zrange("job:index", 0, -1);
  assert.deepEqual(index, Array.from({ length: 800 }, (_, n) => String(n + 1)));
  assert.equal((await clients[0].hgetall("job:777")).n, "777");
  clients.forEach((client) => client.disconnect());
}

async function autoPipelining() {
  const clients = Array.from({ length: N_CLIENTS }, () => new Redis({ ...options, scripts, enableAutoPipelining: true }));
  await Promise.all(clients.map(async (client, at) => {
    const calls = Array.from({ length: N_CALLS }, async (_, n) => {
      const key = `auto:${at}:${n}`;
      switch (n % 5) {
        case 0: return assert.equal(await client.set(key, n), "OK");
        case 1: return assert.equal(await client.incrby(key, n), n);
        case 2: return assert.deepEqual(await client.echo(key, n), [key, String(n)]);
        case 3: return assert.deepEqual(await client.hset(key, { f: n }), 1);
        default: return assert.rejects(client.transfer(key, key, 1), /POOR only 0/);
      }
    });
    await Promise.all(calls);
    assert.equal(await client.get(`auto:${at}:500`), "500");
  }));
  clients.forEach((client) => client.disconnect());
}

// A blocked client of its own, fed from scripts of another.
async function blocking(redis) {
  const reader = new Redis(options);
  const got = (async () => {
    const items = [];
    while (items.length < 500) items.push((await reader.blpop("fed", 10))[1]);
    return items;
  })();
  for (let n = 0; n < 500; n += 5) {
    await redis.eval("for n = tonumber(ARGV[1]), ARGV[1] + 4 do redis.call('RPUSH', 'fed', n) end", 0, n);
  }
  assert.deepEqual(await got, Array.from({ length: 500 }, (_, n) => String(n)));
  reader.disconnect();
}

const guard = setTimeout(() => fail(new Error("not done after 60 s")), 60_000);
function fail(error) {
  console.error("ioredis scripts:", error);
  process.exit(1);
}
main().then(() => clearTimeout(guard), fail);
