// BullMQ workers in processes that are killed in the middle of their jobs: each job they held is stalled, runs again elsewhere,
// and none is lost.
"use strict";
const assert = require("node:assert/strict");
const { fork } = require("node:child_process");
const Redis = require("ioredis");
const { Queue, QueueEvents, Worker } = require("bullmq");

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: null };
const N_JOBS = 200;
const N_CRASHES = 3;
// A killed worker's lock lives this long.
const LOCK_MS = 1000;
const options = { connection, lockDuration: LOCK_MS, stalledInterval: 500, maxStalledCount: N_CRASHES + 1 };

async function main() {
  const redis = new Redis(connection);
  await redis.flushall();
  const queue = new Queue("crash", { connection });
  const events = new QueueEvents("crash", { connection });
  await events.waitUntilReady();
  const stalled = new Set();
  events.on("stalled", ({ jobId }) => stalled.add(jobId));
  events.on("failed", ({ jobId, failedReason }) => fail(new Error(`${jobId} failed: ${failedReason}`)));
  const completed = [];
  const all = new Promise((resolve) => events.on("completed", ({ jobId }) => {
    if (completed.push(jobId) === N_JOBS) resolve();
  }));
  await queue.addBulk(Array.from({ length: N_JOBS }, (_, n) => ({ name: "job", data: { n }, opts: { jobId: `j${n}` } })));

  for (let n = 0; n < N_CRASHES; n++) {
    const child = fork(__filename, [process.argv[2], "child"]);
    const gone = new Promise((resolve) => child.once("exit", resolve));
    // It says "stuck" when it holds jobs that it will not finish.
    await new Promise((resolve) => child.once("message", resolve));
    child.kill("SIGKILL");
    await gone;
  }
  const held = (await queue.getActive()).map((job) => job.id);
  assert.ok(held.length >= 5, `the killed held ${held.length} jobs`);
  const worker = new Worker("crash", async (job) => `again ${job.data.n}`, { ...options, concurrency: 10 });
  worker.on("error", fail);
  await all;
  assert.equal(new Set(completed).size, N_JOBS);
  for (const id of held) assert.ok(stalled.has(id), `${id} was held and is not told of as stalled`);
  assert.equal(await queue.getCompletedCount(), N_JOBS);
  await Promise.all([worker.close(), events.close(), queue.close()]);
  redis.disconnect();
  console.log(`bullmq crash: ok, ${N_JOBS} jobs, ${N_CRASHES} workers killed, ${stalled.size} jobs ran again`);
}

// Finishes twenty jobs and sits on the next five.
function child() {
  let taken = 0;
  let stuck = 0;
  new Worker("crash", async (job) => {
    if (++taken <= 20) return job.data.n;
    if (++stuck === 5) process.send("stuck");
    return new Promise(() => {});
  }, { ...options, concurrency: 5 });
}

function fail(error) {
  console.error("bullmq crash:", error);
  process.exit(1);
}

if (process.argv[3] === "child") child();
else {
  const guard = setTimeout(() => fail(new Error("not done after 60 s")), 60_000);
  main().then(() => clearTimeout(guard), fail);
}
