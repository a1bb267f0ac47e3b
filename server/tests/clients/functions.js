// Functions by node-redis: libraries loaded, replaced, listed, dumped and restored; called with keys and arguments, read-only, in a
// transaction and from twenty clients at once.
"use strict";
const assert = require("node:assert/strict");
const { createClient } = require("redis");

const socket = { port: Number(process.argv[2]) };
const N_CLIENTS = 20;
const N_CALLS = 100;
const LIBRARY = `#!lua name=counters
  local function bump(keys, args)
    return redis.call("INCRBY", keys[1], args[1])
  end
  local function peek(keys)
    return redis.call("GET", keys[1]) or "nothing"
  end
  redis.register_function("bump", bump)
  redis.register_function{function_name = "peek", callback = peek, flags = {"no-writes"}, description = "reads"}`;

async function main() {
  const client = await open();
  await client.flushAll();
  await client.functionFlush();
  assert.equal(await client.functionLoad(LIBRARY), "counters");
  await assert.rejects(client.functionLoad(LIBRARY), /already exists/);
  assert.equal(await client.functionLoad(LIBRARY, { REPLACE: true }), "counters");
  const call = (name, ...args) => client.fCall(name, { keys: ["n"], arguments: args });
  assert.equal(await call("bump", "5"), 5);
  assert.equal(await client.fCallRo("peek", { keys: ["n"], arguments: [] }), "5");
  await assert.rejects(client.fCallRo("bump", { keys: ["n"], arguments: ["1"] }), /write flag|read-only|Can not/i);
  await assert.rejects(call("none"), /Function not found/);
  const inside = await client.multi().fCall("bump", { keys: ["n"], arguments: ["1"] }).get("n").exec();
  assert.deepEqual(inside, [6, "6"]);
  const [library] = await client.functionList();
  assert.deepEqual([...library.functions].map((each) => each.name).sort(), ["bump", "peek"]);
  const dump = await client.withTypeMapping({ 36: Buffer }).functionDump();
  await client.functionDelete("counters");
  await assert.rejects(call("peek"), /Function not found/);
  assert.equal(await client.functionRestore(dump), "OK");
  await Promise.all(Array.from({ length: N_CLIENTS }, async () => {
    const each = await open();
    const calls = Array.from({ length: N_CALLS }, () => each.fCall("bump", { keys: ["n"], arguments: ["1"] }));
    await Promise.all(calls);
    each.destroy();
  }));
  assert.equal(await call("peek"), String(6 + N_CLIENTS * N_CALLS));
  await client.functionFlush();
  await client.close();
  console.log(`functions: ok, ${N_CLIENTS * N_CALLS} calls`);
}

async function open() {
  const client = createClient({ socket, RESP: 3 });
  client.on("error", fail);
  return client.connect();
}

function fail(error) {
  console.error("functions:", error);
  process.exit(1);
}
main().then(() => process.exit(0), fail);
