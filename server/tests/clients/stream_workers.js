// A pool of ioredis workers on a consumer group that crash: connections drop between XREADGROUP and XACK, others take over with
// XAUTOCLAIM or XPENDING and XCLAIM; every entry is handled at least once, poisoned ones end in a dead-letter stream.
"use strict";
const assert = require("node:assert/strict");
const Redis = require("ioredis");

const options = { port: Number(process.argv[2]), maxRetriesPerRequest: 1 };
const nEntries = Number(process.env.SKERRY_CLIENT_JOBS ?? 10_000);
const N_WORKERS = 5;
const IDLE_MS = 200;
const MAX_DELIVERIES = 4;
const STREAM = "jobs", GROUP = "pool", DEAD = "jobs:dead";
const isPoison = (n) => n % 1000 === 500;

const handled = new Map();
let nCrashes = 0;
let nClaimed = 0;
let isOver = false;

async function main() {
  const redis = new Redis(options);
  await redis.flushall();
  await redis.xgroup("CREATE", STREAM, GROUP, "0", "MKSTREAM");
  const workers = Array.from({ length: N_WORKERS }, (_, at) => livesOn(at));
  for (let first = 0; first < nEntries; first += 200) {
    const pipeline = redis.pipeline();
    for (let n = first; n < Math.min(first + 200, nEntries); n++) pipeline.xadd(STREAM, "*", "n", n, "kind", `k${n % 7}`);
    for (const [error] of await pipeline.exec()) assert.equal(error, null);
  }
  const nPoison = Array.from({ length: nEntries }, (_, n) => n).filter(isPoison).length;
  while ((await redis.xlen(DEAD)) < nPoison || handled.size < nEntries - nPoison) await sleep(20);
  isOver = true;
  await Promise.all(workers);

  const [pending, lowest] = await redis.xpending(STREAM, GROUP);
  assert.deepEqual([pending, lowest], [0, null]);
  for (let n = 0; n < nEntries; n++) assert.ok(handled.has(n) !== isPoison(n), `entry ${n}`);
  const dead = await redis.xrange(DEAD, "-", "+");
  assert.deepEqual(dead.map(([, fields]) => Number(fields[1])).sort((a, b) => a - b), [...Array(nPoison).keys()].map((n) => n * 1000 + 500));
  assert.ok(nCrashes > 0 && nClaimed > 0, `${nCrashes} crashes, ${nClaimed} claimed`);
  assert.equal(await redis.xtrim(STREAM, "MAXLEN", 100), nEntries - 100);
  await redis.quit();
  console.log(`stream workers (ioredis): ok, ${nEntries} entries, ${nCrashes} crashes, ${nClaimed} claimed, ${nPoison} dead letters`);
}

// A worker that crashes is started again under another name.
async function livesOn(at) {
  for (let life = 0; !isOver; life++) {
    const redis = new Redis(options);
    redis.on("error", () => {});
    await work(redis, `w${at}.${life}`, at);
    redis.disconnect();
  }
}

async function work(redis, name, at) {
  let cursor = "0-0";
  for (let turn = 0; !isOver; turn++) {
    if (turn % 10 === 9) {
      const [next, claimed] = at % 2 ? await autoclaim(redis, name, cursor) : await claim(redis, name);
      cursor = next;
      nClaimed += claimed.length;
      await handle(redis, claimed);
    }
    const reply = await redis.xreadgroup("GROUP", GROUP, name, "COUNT", 25, "BLOCK", 30, "STREAMS", STREAM, ">");
    const entries = reply ? reply[0][1] : [];
    if (entries.length > 0 && Math.random() < 0.02) {
      nCrashes++;
      return;
    }
    await handle(redis, entries);
  }
}

async function autoclaim(redis, name, cursor) {
  const [next, entries, deleted] = await redis.xautoclaim(STREAM, GROUP, name, IDLE_MS, cursor, "COUNT", 30);
  assert.deepEqual(deleted, []);
  return [next, await withoutDead(redis, entries)];
}

async function claim(redis, name) {
  const pending = await redis.xpending(STREAM, GROUP, "IDLE", IDLE_MS, "-", "+", 30);
  if (pending.length === 0) return ["0-0", []];
  const entries = await redis.xclaim(STREAM, GROUP, name, IDLE_MS, ...pending.map(([id]) => id));
  return ["0-0", await withoutDead(redis, entries)];
}

// What was delivered too often goes to the dead letters: added and acknowledged in one transaction.
async function withoutDead(redis, entries) {
  const kept = [];
  for (const [id, fields] of entries) {
    const [found] = await redis.xpending(STREAM, GROUP, id, id, 1);
    if (!found || found[3] < MAX_DELIVERIES) kept.push([id, fields]);
    else if (isPoison(Number(fields[1]))) {
      await redis.watch(DEAD);
      if ((await redis.xpending(STREAM, GROUP, id, id, 1)).length === 0) await redis.unwatch();
      else await redis.multi().xadd(DEAD, "*", ...fields).xack(STREAM, GROUP, id).exec();
    } else kept.push([id, fields]);
  }
  return kept;
}

async function handle(redis, entries) {
  const good = entries.filter(([, fields]) => !isPoison(Number(fields[1])));
  for (const [, fields] of good) handled.set(Number(fields[1]), (handled.get(Number(fields[1])) ?? 0) + 1);
  if (good.length > 0) await redis.xack(STREAM, GROUP, ...good.map(([id]) => id));
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const guard = setTimeout(() => fail(new Error("not done after 90 s")), 90_000);
function fail(error) {
  console.error("stream workers (ioredis):", error);
  process.exit(1);
}
main().then(() => clearTimeout(guard), fail);
