// BullMQ's features on one queue each: delay, priority, retry with backoff, rate limit, a flow of parent and children,
// a job scheduler, de-duplication, pause, and the event stream that tells of all of it.
"use strict";
const assert = require("node:assert/strict");
const Redis = require("ioredis");
const { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } = require("bullmq");

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: null };
const WAIT_MS = 30_000;
const opened = [];
let nChecks = 0;

async function main() {
  const redis = new Redis(connection);
  await redis.flushall();
  for (const check of [delay, priority, retry, rateLimit, flow, scheduler, deduplication, pause, cleaning]) {
    const name = check.name;
    const events = open(new QueueEvents(name, { connection }));
    await events.waitUntilReady();
    await within(check(open(new Queue(name, { connection })), events), name);
    while (opened.length) await opened.pop().close();
    nChecks++;
  }
  redis.disconnect();
  console.log(`bullmq ${require("bullmq/package.json").version}: ok, ${nChecks} features`);
}

function open(thing) {
  thing.on("error", fail);
  thing.setMaxListeners(100); // one for each job that is waited for
  opened.push(thing);
  return thing;
}

function work(queue, handler, options = {}) {
  return open(new Worker(queue.name, handler, { connection, ...options }));
}

async function delay(queue, events) {
  const seen = [];
  events.on("delayed", ({ jobId }) => seen.push(`delayed ${jobId}`));
  events.on("active", ({ jobId }) => seen.push(`active ${jobId}`));
  const added = Date.now();
  const late = await queue.add("late", { n: 1 }, { delay: 700, jobId: "late" });
  const soon = await queue.add("soon", { n: 2 }, { delay: 200, jobId: "soon" });
  assert.equal(await queue.getDelayedCount(), 2);
  work(queue, async (job) => ({ n: job.data.n, after: Date.now() - added }));
  const results = await Promise.all([late, soon].map((job) => job.waitUntilFinished(events, WAIT_MS)));
  assert.deepEqual(results.map((result) => result.n), [1, 2]);
  assert.ok(results[0].after >= 700 && results[1].after >= 200, JSON.stringify(results));
  assert.deepEqual(seen, ["delayed late", "delayed soon", "active soon", "active late"]);
}

async function priority(queue, events) {
  const order = [];
  const ranks = [7, 3, 9, 1, 5, 0, 3, 1];
  const jobs = [];
  for (const [at, rank] of ranks.entries()) jobs.push(await queue.add("job", { at }, { priority: rank }));
  assert.deepEqual(await queue.getCountsPerPriority([0, 1, 3, 9]), { 0: 1, 1: 2, 3: 2, 9: 1 });
  work(queue, async (job) => { order.push(job.data.at); });
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events, WAIT_MS)));
  assert.deepEqual(order, [5, 3, 7, 1, 6, 4, 0, 2]);
}

async function retry(queue, events) {
  const tries = { heals: 0, fails: 0, dies: 0 };
  work(queue, async (job) => {
    tries[job.name]++;
    if (job.name === "dies") throw new UnrecoverableError("never");
    if (job.name === "fails" || job.attemptsMade < 2) throw new Error(`try ${job.attemptsMade}`);
    return "healed";
  });
  const add = (name) => queue.add(name, {}, { attempts: 3, backoff: { type: "fixed", delay: 50 } });
  const [heals, fails, dies] = await Promise.all(["heals", "fails", "dies"].map(add));
  assert.equal(await heals.waitUntilFinished(events, WAIT_MS), "healed");
  await assert.rejects(fails.waitUntilFinished(events, WAIT_MS), /try 2/);
  await assert.rejects(dies.waitUntilFinished(events, WAIT_MS), /never/);
  assert.deepEqual(tries, { heals: 3, fails: 3, dies: 1 });
  assert.deepEqual((await queue.getFailed()).map((job) => job.name).sort(), ["dies", "fails"]);
  await (await queue.getJob(fails.id)).retry();
  await assert.rejects(fails.waitUntilFinished(events, WAIT_MS));
  assert.equal(tries.fails, 4);
}

async function rateLimit(queue, events) {
  const starts = [];
  const jobs = await queue.addBulk(Array.from({ length: 12 }, (_, n) => ({ name: "job", data: { n } })));
  const begun = Date.now();
  for (let n = 0; n < 2; n++) {
    work(queue, async () => { starts.push(Date.now()); }, { concurrency: 3, limiter: { max: 4, duration: 400 } });
  }
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events, WAIT_MS)));
  starts.sort((a, b) => a - b);
  assert.equal(starts.length, 12);
  // Twelve at four each 400 ms: two whole windows pass before the last four, and none begins before the workers do. (A busy machine
  // may start the first job long after the server has counted it.)
  assert.ok(starts[11] - begun >= 750, `12 jobs at 4 each 400 ms took ${starts[11] - begun} ms`);
}

async function flow(queue, events) {
  const producer = open(new FlowProducer({ connection }));
  const leaf = (name) => ({ name, queueName: queue.name, data: { price: name.length } });
  const middle = { name: "middle", queueName: queue.name, children: [leaf("a"), leaf("bb")] };
  const tree = await producer.add({ name: "top", queueName: queue.name, children: [middle, leaf("ccc")] });
  assert.equal(await tree.job.getState(), "waiting-children");
  const order = [];
  work(queue, async (job) => {
    order.push(job.name);
    const values = Object.values(await job.getChildrenValues());
    return values.reduce((sum, value) => sum + value, job.data.price ?? 0);
  }, { concurrency: 2 });
  assert.equal(await tree.job.waitUntilFinished(events, WAIT_MS), 6);
  assert.deepEqual(order.slice(-1), ["top"]);
  assert.deepEqual([...order].sort(), ["a", "bb", "ccc", "middle", "top"]);
  const dependencies = await tree.job.getDependencies();
  assert.equal(Object.keys(dependencies.processed).length, 2);
}

async function scheduler(queue) {
  const runs = [];
  await queue.upsertJobScheduler("beat", { every: 150, limit: 4 }, { name: "tick", data: { from: "beat" } });
  assert.equal(await queue.getJobSchedulersCount(), 1);
  await new Promise((resolve) => {
    work(queue, async (job) => { if (runs.push(job.data.from) === 4) setTimeout(resolve, 400); });
  });
  assert.deepEqual(runs, ["beat", "beat", "beat", "beat"]);
  await queue.removeJobScheduler("beat");
  assert.equal(await queue.getJobSchedulersCount(), 0);
}

async function deduplication(queue, events) {
  const told = [];
  events.on("deduplicated", ({ deduplicationId }) => told.push(deduplicationId));
  const jobs = [];
  for (let n = 0; n < 5; n++) jobs.push(await queue.add("once", { n }, { deduplication: { id: "same" } }));
  assert.equal(new Set(jobs.map((job) => job.id)).size, 1);
  assert.equal(await queue.getWaitingCount(), 1);
  let runs = 0;
  work(queue, async () => { runs++; });
  await jobs[0].waitUntilFinished(events, WAIT_MS);
  assert.equal(runs, 1);
  while (told.length < 4) await new Promise((resolve) => setTimeout(resolve, 5));
}

async function pause(queue, events) {
  await queue.pause();
  let runs = 0;
  const worker = work(queue, async (job) => { runs++; await job.updateProgress(50); await job.log("half"); });
  await worker.waitUntilReady();
  const heard = new Promise((resolve) => events.on("progress", resolve));
  const job = await queue.add("job", {});
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.equal(runs, 0);
  await queue.resume();
  await job.waitUntilFinished(events, WAIT_MS);
  assert.equal((await heard).data, 50);
  assert.deepEqual(await queue.getJobLogs(job.id), { logs: ["half"], count: 1 });
}

async function cleaning(queue, events) {
  const jobs = await queue.addBulk(Array.from({ length: 30 }, (_, n) => ({ name: "job", data: { n } })));
  work(queue, async () => "done", { concurrency: 5 });
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events, WAIT_MS)));
  assert.equal(await queue.getCompletedCount(), 30);
  assert.equal((await queue.clean(0, 10, "completed")).length, 10);
  assert.equal(await queue.getCompletedCount(), 20);
  await jobs[29].remove().catch(() => {});
  await queue.obliterate({ force: true });
  assert.deepEqual(await queue.getJobCounts("completed", "wait", "active"), { completed: 0, wait: 0, active: 0 });
}

function within(promise, name) {
  const late = new Promise((_, reject) => setTimeout(reject, WAIT_MS, new Error(`${name} hangs`)).unref());
  return Promise.race([promise, late]);
}

function fail(error) {
  console.error("bullmq:", error);
  process.exit(1);
}

main().catch(fail);
