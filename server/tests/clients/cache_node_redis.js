// node-redis's client-side cache (RESP3, CLIENT TRACKING), of a client and of a pool, while others write: reads never go back in time,
// every write, deletion, expiry and flush becomes visible, and most reads never reach the server.
"use strict";
const assert = require("node:assert/strict");
const { createClient, createClientPool } = require("redis");
const { BasicClientSideCache, BasicPooledClientSideCache } = require("@redis/client");

const socket = { port: Number(process.argv[2]) };
const N_KEYS = 40;
const N_WRITES = 4000;
const WAIT_MS = 10_000;

async function main() {
  const writer = await open(createClient({ socket }));
  await writer.flushAll();
  const cache = new BasicClientSideCache({ maxEntries: 500, evictPolicy: "LRU" });
  const cached = await open(createClient({ socket, RESP: 3, clientSideCache: cache }));
  await oneByOne(cached, writer, cache);
  const single = await underWrites(cached, writer);
  const pooledCache = new BasicPooledClientSideCache({ maxEntries: 500 });
  const pool = createClientPool({ socket, RESP: 3 }, { clientSideCache: pooledCache, minimum: 3, maximum: 3 });
  const pooled = await underWrites(await open(pool), writer);
  const { hitCount } = cache.stats();
  assert.ok(hitCount > 0 && pooledCache.stats().hitCount > 0);
  cached.destroy();
  pool.destroy();
  writer.destroy();
  console.log(`node-redis cache: ok, ${single.reads} + ${pooled.reads} reads, ${single.changes} + ${pooled.changes} changes seen, `
    + `${hitCount} hits, none stale`);
}

async function open(client) {
  client.on("error", fail);
  return client.connect();
}

async function until(what, ready) {
  const end = Date.now() + WAIT_MS;
  while (!(await ready())) {
    assert.ok(Date.now() < end, `${what}: stale for ${WAIT_MS} ms`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

// Each kind of change reaches a key that is in the cache.
async function oneByOne(cached, writer, cache) {
  const check = async (expected, change) => {
    assert.notEqual(await cached.get("k"), null);
    const { hitCount } = cache.stats();
    await cached.get("k");
    await change();
    await until(String(change), async () => (await cached.get("k")) === expected);
    return hitCount;
  };
  for (let n = 0; n < 200; n++) {
    await writer.set("k", `v${n}`);
    await until("v", async () => (await cached.get("k")) === `v${n}`);
    await check("changed", () => writer.set("k", "changed"));
  }
  const again = async () => {
    await writer.set("k", "v");
    await until("v", async () => (await cached.get("k")) === "v");
  };
  await again();
  await check(null, () => writer.del("k"));
  await again();
  await check(null, () => writer.pExpire("k", 40));
  await again();
  await check(null, () => writer.flushDb());
  await again();
  await check("vv", () => writer.eval("return redis.call('APPEND', KEYS[1], 'v')", { keys: ["k"] }));
  await check("w", () => writer.multi().set("k", "w").incr("n").exec());
  await check("x", async () => {
    await writer.set("other", "x");
    await writer.rename("other", "k");
  });
  await check("own", () => cached.set("k", "own"));
}

async function underWrites(cached, writer) {
  const seen = new Array(N_KEYS).fill(0);
  await writer.flushAll();
  let isWriting = true;
  let reads = 0;
  let changes = 0;
  const writing = (async () => {
    for (let first = 1; first <= N_WRITES; first += 8) {
      await new Promise((resolve) => setTimeout(resolve, 2)); // so that there are reads between two writes
      await Promise.all(Array.from({ length: 8 }, (_, at) => writer.set(`key:${(first + at) % N_KEYS}`, first + at)));
    }
    isWriting = false;
  })();
  while (isWriting) {
    for (let at = 0; at < N_KEYS; at++) {
      const value = Number((await cached.get(`key:${at}`)) ?? 0);
      assert.ok(value >= seen[at], `key:${at} went back from ${seen[at]} to ${value}`);
      if (value > seen[at]) changes++;
      seen[at] = value;
      reads++;
    }
    // Cached reads are promises only: let the socket be read.
    await new Promise((resolve) => setImmediate(resolve));
  }
  await writing;
  for (let at = 0; at < N_KEYS; at++) {
    const last = await writer.get(`key:${at}`);
    await until(`key:${at}`, async () => (await cached.get(`key:${at}`)) === last);
  }
  assert.ok(changes > N_KEYS, `only ${changes} changes were seen`);
  return { reads, changes };
}

const guard = setTimeout(() => fail(new Error("not done after 60 s")), 60_000);
function fail(error) {
  console.error("node-redis cache:", error);
  process.exit(1);
}
main().then(() => process.exit(0), fail);
