"""A pool of redis-py workers on a stream's consumer group whose processes die holding entries: with XAUTOCLAIM every one of 10,000
entries is handled at least once, none is lost, and nothing stays pending."""

import multiprocessing
import os
import random
import sys
import time

import redis

N_ENTRIES = int(os.environ.get("SKERRY_CLIENT_JOBS", 10_000))
N_WORKERS = 4
N_DEATHS = 10
IDLE_MS = 300
STREAM, GROUP = "work", "pool"


def connect(port, protocol=2):
    return redis.Redis(port=port, decode_responses=True, protocol=protocol)


def worker(port, at, done, deaths):
    client, choice = connect(port, 2 + at % 2), random.Random(at)
    name = f"worker{at}"
    cursor = "0-0"
    while done.value < N_ENTRIES or client.xpending(STREAM, GROUP)["pending"]:
        cursor, claimed, _ = client.xautoclaim(STREAM, GROUP, name, IDLE_MS, cursor, count=50)
        entries = claimed + fresh(client.xreadgroup(GROUP, name, {STREAM: ">"}, count=20, block=50))
        # It dies with entries that it has not handled, or handled and not acknowledged.
        fate = choice.random() if entries else 0.5
        if fate < 0.02 and may_die(deaths):
            os._exit(9)
        count(client, entries, done)
        if fate > 0.98 and may_die(deaths):
            os._exit(9)
        pipe = client.pipeline()
        for entry, _ in entries:
            pipe.xack(STREAM, GROUP, entry)
        pipe.execute()


def count(client, entries, done):
    pipe = client.pipeline(transaction=False)
    for _, fields in entries:
        pipe.hincrby("handled", fields["n"], 1)
    replies = pipe.execute()
    with done.get_lock():
        done.value += replies.count(1)


def may_die(deaths):
    with deaths.get_lock():
        deaths.value += 1
        return deaths.value <= N_DEATHS


def fresh(reply):
    """The entries of XREADGROUP on one stream, in either protocol's form."""
    if not reply:
        return []
    if isinstance(reply, dict):
        return [entry for batch in reply[STREAM] for entry in batch]
    return reply[0][1]


def add(port):
    client = connect(port)
    for first in range(0, N_ENTRIES, 100):
        pipe = client.pipeline(transaction=False)
        for n in range(first, min(first + 100, N_ENTRIES)):
            pipe.xadd(STREAM, {"n": n, "text": "x" * (n % 100)})
        pipe.execute()


def main():
    port = int(sys.argv[1])
    client = connect(port)
    client.flushall()
    client.xgroup_create(STREAM, GROUP, "$", mkstream=True)
    context = multiprocessing.get_context("fork")
    done, deaths = context.Value("i", 0), context.Value("i", 0)
    writer = context.Process(target=add, args=(port,))
    writer.start()
    living, started = [], 0
    end = time.monotonic() + 90
    while done.value < N_ENTRIES or client.xpending(STREAM, GROUP)["pending"]:
        assert time.monotonic() < end, f"{done.value} of {N_ENTRIES} done, {client.xpending(STREAM, GROUP)}"
        living = [process for process in living if process.is_alive()]
        while len(living) < N_WORKERS:
            living.append(context.Process(target=worker, args=(port, started, done, deaths)))
            living[-1].start()
            started += 1
        time.sleep(0.05)
    for process in [writer, *living]:
        process.join(20)
        assert process.exitcode == 0, f"{process.name} ended with {process.exitcode}"
    check(client, started)
    n_again = sum(map(int, client.hvals("handled"))) - N_ENTRIES
    print(f"stream workers (redis-py): ok, {N_ENTRIES} entries, {started - N_WORKERS} workers died, {n_again} handled again")


def check(client, started):
    assert started > N_WORKERS, "no worker died"
    handled = client.hgetall("handled")
    assert sorted(map(int, handled)) == list(range(N_ENTRIES)), "every entry once at least"
    assert client.xlen(STREAM) == N_ENTRIES
    info = client.xinfo_groups(STREAM)[0]
    assert (info["pending"], info["lag"], info["entries-read"]) == (0, 0, N_ENTRIES), info
    # A worker that read nothing before it died is not a consumer, or is one since XAUTOCLAIM named it.
    consumers = client.xinfo_consumers(STREAM, GROUP)
    assert 0 < len(consumers) <= started and all(consumer["pending"] == 0 for consumer in consumers), consumers


if __name__ == "__main__":
    main()
