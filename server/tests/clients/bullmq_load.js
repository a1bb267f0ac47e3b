// 10,000 BullMQ jobs by several workers while others are added: none is lost, none runs twice, every result is kept.
"use strict";
const assert = require("node:assert/strict");
const Redis = require("ioredis");
const { Queue, QueueEvents, Worker } = require("bullmq");

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: null };
const nJobs = Number(process.env.SKERRY_CLIENT_JOBS ?? 10_000);
const N_WORKERS = 4;
const BATCH = 250;

async function main() {
  const redis = new Redis(connection);
  await redis.flushall();
  // Every event is to be read, however late: four of each job.
  const queue = new Queue("load", { connection, streams: { events: { maxLen: 10 * nJobs } } });
  const events = new QueueEvents("load", { connection });
  events.on("error", fail);
  await events.waitUntilReady();
  const completed = new Set();
  const told = new Promise((resolve) => {
    events.on("completed", ({ jobId, returnvalue }) => {
      assert.equal(returnvalue, Number(jobId.slice(1)) * 2, jobId);
      assert.ok(!completed.has(jobId), `${jobId} is told of twice`);
      if (completed.add(jobId).size === nJobs) resolve();
    });
  });
  events.on("failed", ({ jobId, failedReason }) => fail(new Error(`${jobId} failed: ${failedReason}`)));

  const runs = new Map();
  const byWorker = new Array(N_WORKERS).fill(0);
  const workers = byWorker.map((_, at) => {
    const worker = new Worker("load", async (job) => {
      runs.set(job.data.n, (runs.get(job.data.n) ?? 0) + 1);
      byWorker[at]++;
      return job.data.n * 2;
    }, { connection, concurrency: 25, skipStalledCheck: false });
    worker.on("error", fail);
    worker.on("stalled", (id) => fail(new Error(`${id} stalled`)));
    return worker;
  });

  const start = Date.now();
  for (let first = 0; first < nJobs; first += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, nJobs - first) }, (_, at) => job(first + at));
    await queue.addBulk(batch);
  }
  await told;
  const seconds = (Date.now() - start) / 1000;

  assert.equal(runs.size, nJobs);
  const twice = [...runs].filter(([, times]) => times !== 1);
  assert.deepEqual(twice, [], "jobs that ran more than once");
  assert.ok(byWorker.every((n) => n > 0), `each worker had jobs: ${byWorker}`);
  const counts = await queue.getJobCounts("wait", "active", "delayed", "prioritized", "failed", "completed");
  assert.deepEqual(counts, { wait: 0, active: 0, delayed: 0, prioritized: 0, failed: 0, completed: nJobs });
  await Promise.all(workers.map((worker) => worker.close()));
  await events.close();
  await queue.close();
  redis.disconnect();
  console.log(`bullmq load: ok, ${nJobs} jobs, ${byWorker.join(" + ")} by ${N_WORKERS} workers, ${seconds.toFixed(1)} s`);
}

// Of ten jobs one is delayed a little and one has a priority; the others are plain.
function job(n) {
  const opts = { jobId: `j${n}` };
  if (n % 10 === 3) opts.delay = 1 + (n % 400);
  if (n % 10 === 7) opts.priority = 1 + (n % 5);
  return { name: "double", data: { n, text: "x".repeat(n % 300) }, opts };
}

function fail(error) {
  console.error("bullmq load:", error);
  process.exit(1);
}

const guard = setTimeout(() => fail(new Error("not done after 150 s")), 150_000);
main().then(() => clearTimeout(guard), fail);
