"""Queues as web frameworks write them by hand: jobs move by Lua between a list and sorted sets of the delayed and the reserved, workers
call it by EVALSHA and die in the middle of jobs; every job is deleted once, whatever happens."""

import json
import multiprocessing
import os
import random
import sys
import time

import redis
from redis.exceptions import NoScriptError

N_JOBS = 2000
N_WORKERS = 4
N_DEATHS = 12
# How long a job is reserved before others may have it, in seconds.
RESERVED = 0.6

# Puts a job at the end of the list, and a token where blocked workers wait.
PUSH = """
redis.call('rpush', KEYS[1], ARGV[1])
redis.call('rpush', KEYS[2], 1)
return redis.call('llen', KEYS[1])
"""

# Takes the first job, counts the attempt inside its text, and reserves it until ARGV[1].
RESERVE = """
local job = redis.call('lpop', KEYS[1])
if not job then return {false, false} end
local changed = cjson.decode(job)
changed.attempts = changed.attempts + 1
changed = cjson.encode(changed)
redis.call('zadd', KEYS[2], ARGV[1], changed)
redis.call('lpop', KEYS[3])
return {job, changed}
"""

# What is due by ARGV[1] goes back to the list, a hundred at a time because of the limit of unpack.
MIGRATE = """
local due = redis.call('zrangebyscore', KEYS[1], '-inf', ARGV[1])
if #due > 0 then
    redis.call('zremrangebyrank', KEYS[1], 0, #due - 1)
    for first = 1, #due, 100 do
        redis.call('rpush', KEYS[2], unpack(due, first, math.min(first + 99, #due)))
        for _ = first, math.min(first + 99, #due) do redis.call('rpush', KEYS[3], 1) end
    end
end
return #due
"""

# A reserved job is put off until ARGV[2].
RELEASE = """
if redis.call('zrem', KEYS[2], ARGV[1]) == 0 then return 0 end
return redis.call('zadd', KEYS[1], ARGV[2], ARGV[1])
"""

# The next of the schedule that is due, one at a time; the queue's name stands in the job, so its key is not declared.
ENQUEUE_DUE = """
local job = redis.call('zrange', KEYS[1], '-inf', ARGV[1], 'byscore', 'limit', 0, 1)[1]
if not job then return false end
redis.call('zrem', KEYS[1], job)
local queue = cjson.decode(job).queue
redis.call('sadd', 'queues', queue)
redis.call('lpush', 'queue:' .. queue, job)
return job
"""


class Scripts:
    """Calls by hash, and loads what the server does not know."""

    def __init__(self, client):
        self.client = client
        self.hashes = {}

    def __call__(self, script, keys, *args):
        if script not in self.hashes:
            self.hashes[script] = self.client.script_load(script)
        try:
            return self.client.evalsha(self.hashes[script], len(keys), *keys, *args)
        except NoScriptError:
            return self.client.eval(script, len(keys), *keys, *args)


LIST, DELAYED, HELD, NOTIFY = "q", "q:delayed", "q:reserved", "q:notify"


def worker(port, seed):
    client = redis.Redis(port=port, decode_responses=True)
    call, random_ = Scripts(client), random.Random(seed)
    while client.get("deleted") != str(N_JOBS):
        for source in (DELAYED, HELD):
            call(MIGRATE, [source, LIST, NOTIFY], time.time())
        _, held = call(RESERVE, [LIST, HELD, NOTIFY], time.time() + RESERVED)
        if held is None:
            client.blpop(NOTIFY, 0.1)
            continue
        fate = random_.random()
        if fate < 0.02 and client.incr("deaths") <= N_DEATHS:
            os._exit(9)
        if fate < 0.1 and json.loads(held)["attempts"] < 3:
            call(RELEASE, [DELAYED, HELD], held, time.time() + 0.05)
        elif client.zrem(HELD, held):
            client.pipeline().incr("deleted").hincrby("by job", json.loads(held)["id"], 1).execute()


def reserved(port, client):
    call = Scripts(client)
    for n in range(N_JOBS):
        call(PUSH, [LIST, NOTIFY], json.dumps({"id": n, "attempts": 0, "body": "x" * (n % 50)}))
    client.script_flush()
    context = multiprocessing.get_context("fork")
    living, started = [], 0
    end = time.monotonic() + 60
    while client.get("deleted") != str(N_JOBS):
        assert time.monotonic() < end, f"only {client.get('deleted')} of {N_JOBS} jobs are done"
        living = [process for process in living if process.is_alive()]
        while len(living) < N_WORKERS:
            living.append(context.Process(target=worker, args=(port, started)))
            living[-1].start()
            started += 1
        time.sleep(0.02)
    for process in living:
        process.join(10)
    done = client.hgetall("by job")
    assert len(done) == N_JOBS and set(done.values()) == {"1"}, "each job is deleted once"
    assert client.llen(LIST) == client.zcard(HELD) == client.zcard(DELAYED) == 0
    return started - N_WORKERS


def poller(port, at):
    """What a scheduler does: moves what is due, and takes from the queues; the first of them by BLMOVE into a list of its own."""
    client = redis.Redis(port=port, decode_responses=True)
    call = Scripts(client)
    own = f"own:{at}"
    while client.llen("worked") < N_JOBS:
        while call(ENQUEUE_DUE, ["schedule"], time.time()):
            pass
        if at == 0:
            job = client.blmove("queue:slow", own, 0.05, "RIGHT", "LEFT")
        else:
            job = (client.brpop(["queue:critical", "queue:default"], 0.05) or (None, None))[1]
        if job:
            with client.pipeline() as pipe:
                pipe.lrem(own, -1, job).rpush("worked", json.loads(job)["jid"]).incr("stat:processed")
                assert pipe.execute()[0] == (1 if at == 0 else 0)


def scheduled(port, client):
    with client.pipeline(transaction=True) as pipe:
        for n in range(N_JOBS):
            job = {"jid": n, "queue": ("critical", "default", "slow")[n % 3]}
            pipe.zadd("schedule", {json.dumps(job): time.time() + (n % 10) / 10})
        pipe.execute()
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=poller, args=(port, n)) for n in range(N_WORKERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, f"a scheduler ended with {process.exitcode}"
    assert sorted(map(int, client.lrange("worked", 0, -1))) == list(range(N_JOBS)), "each job once"
    assert client.get("stat:processed") == str(N_JOBS)


def main():
    port = int(sys.argv[1])
    client = redis.Redis(port=port, decode_responses=True)
    client.flushall()
    n_deaths = reserved(port, client)
    assert n_deaths > 0, "no worker died"
    client.flushall()
    scheduled(port, client)
    print(f"reserve: ok, {N_JOBS} jobs deleted once though {n_deaths} workers died, {N_JOBS} scheduled ones run once")


if __name__ == "__main__":
    main()
