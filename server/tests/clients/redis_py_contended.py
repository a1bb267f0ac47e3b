"""redis-py under contention, from several processes and threads: Lock (blocking, expiry, reacquire, extend), counters in pipelines
with WATCH, registered scripts, pub/sub in a thread, and blocking queues; each count must come out exactly."""

import multiprocessing
import sys
import threading
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError

N_PROCESSES = 4
N_ROUNDS = 150
N_MESSAGES = 2000
N_ITEMS = 2000


def in_processes(work, port, protocol, n=N_PROCESSES):
    """Runs work in processes of their own and fails if one of them does."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=(port, protocol, at)) for at in range(n)]
    for process in processes:
        process.start()
    return processes


def joined(processes):
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, f"{process.name} ended with {process.exitcode}"


def connect(port, protocol):
    return redis.Redis(port=port, protocol=protocol, decode_responses=True)


def under_lock(port, protocol, _):
    """Reads, waits a moment and writes: only the lock makes the sum right."""
    client = connect(port, protocol)
    for _ in range(N_ROUNDS):
        with client.lock("lock:sum", timeout=30, sleep=0.001):
            value = int(client.get("sum") or 0)
            client.set("sum", value + 1)


def locks(client, port, protocol):
    joined(in_processes(under_lock, port, protocol))
    assert client.get("sum") == str(N_PROCESSES * N_ROUNDS)
    first, second = client.lock("l", timeout=5), client.lock("l", timeout=5)
    assert first.acquire(blocking=False) and not second.acquire(blocking=False)
    assert first.owned() and not second.owned() and first.locked()
    assert first.extend(10) and 10 <= client.ttl("l") <= 15
    assert first.reacquire() and client.ttl("l") <= 5
    first.release()
    try:
        first.release()
        raise AssertionError("LockError expected")
    except LockError:
        pass
    short = client.lock("l", timeout=0.05)
    assert short.acquire() and second.acquire(blocking_timeout=5)
    try:
        short.release()
        raise AssertionError("LockNotOwnedError expected")
    except LockNotOwnedError:
        pass
    second.release()
    assert client.exists("l") == 0


def watching(port, protocol, at):
    """Moves one between two of five accounts, and counts how often somebody came between."""
    client = connect(port, protocol)
    conflicts = 0
    for n in range(N_ROUNDS):
        source, target = f"account:{(n + at) % 5}", f"account:{(n * 3 + at + 1) % 5}"
        if source == target:
            continue
        while True:
            with client.pipeline() as pipe:
                try:
                    pipe.watch(source, target)
                    left, right = int(pipe.get(source)), int(pipe.get(target))
                    pipe.multi()
                    pipe.set(source, left - 1).set(target, right + 1).incr("moves")
                    pipe.execute()
                    break
                except redis.WatchError:
                    conflicts += 1
    client.incrby("conflicts", conflicts)


def transactions(client, port, protocol):
    client.mset({f"account:{n}": 1000 for n in range(5)})
    joined(in_processes(watching, port, protocol))
    assert sum(map(int, client.mget([f"account:{n}" for n in range(5)]))) == 5000
    expected = sum((n + at) % 5 != (n * 3 + at + 1) % 5 for n in range(N_ROUNDS) for at in range(N_PROCESSES))
    assert client.get("moves") == str(expected)
    return int(client.get("conflicts"))


def scripts(client):
    take = client.register_script("local n = redis.call('DECRBY', KEYS[1], ARGV[1]) return {n, ARGV[1] .. '!', false}")
    client.set("stock", 10)
    assert take(keys=["stock"], args=[3]) == [7, "3!", None]
    client.script_flush()
    assert take(keys=["stock"], args=[2]) == [5, "2!", None], "loads again after NOSCRIPT"
    with client.pipeline() as pipe:
        take(keys=["stock"], args=[1], client=pipe)
        pipe.get("stock")
        assert pipe.execute() == [[4, "1!", None], "4"]
    try:
        client.eval("return redis.call('INCR', KEYS[1], 'x')", 1, "stock")
        raise AssertionError("ResponseError expected")
    except redis.ResponseError as error:
        assert "Wrong number of args calling Redis command from script" in str(error), error


def publishing(port, protocol, at):
    client = connect(port, protocol)
    for n in range(N_MESSAGES):
        assert client.publish(f"news:{at}", n) == 1


def pubsub(client, port, protocol):
    heard = {f"news:{at}": [] for at in range(N_PROCESSES)}
    listener = client.pubsub()
    listener.psubscribe(**{"news:*": lambda message: heard[message["channel"]].append(int(message["data"]))})
    assert listener.get_message(timeout=5)["type"] == "psubscribe"
    thread = listener.run_in_thread(sleep_time=0.01)
    joined(in_processes(publishing, port, protocol))
    end = time.monotonic() + 20
    while any(len(messages) < N_MESSAGES for messages in heard.values()) and time.monotonic() < end:
        time.sleep(0.01)
    thread.stop()
    thread.join()
    assert all(messages == list(range(N_MESSAGES)) for messages in heard.values())


def popping(port, protocol, at):
    """Takes items until it is told to stop, from a list or from a sorted set, whichever the process is for."""
    client = connect(port, protocol)
    while True:
        item = (client.blpop(["jobs:high", "jobs:low"], 30) if at % 2 else client.bzpopmin(["jobs:ranked"], 30))[1]
        if item == "stop":
            return
        client.lpush("done", item)


def blocking(client, port, protocol):
    processes = in_processes(popping, port, protocol)
    threads = [threading.Thread(target=fill, args=(port, protocol, kind)) for kind in ("list", "zset")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(2):
        client.rpush("jobs:low", "stop")
        client.zadd("jobs:ranked", {"stop": "inf"})
        # One at a time, as a member is in a sorted set only once.
        while client.zcard("jobs:ranked"):
            time.sleep(0.005)
    joined(processes)
    done = client.lrange("done", 0, -1)
    assert len(done) == len(set(done)) == 2 * N_ITEMS, f"{len(done)} items of which {len(set(done))} differ"


def fill(port, protocol, kind):
    client = connect(port, protocol)
    for n in range(N_ITEMS):
        if kind == "list":
            client.rpush("jobs:high" if n % 2 else "jobs:low", f"list{n}")
        else:
            client.zadd("jobs:ranked", {f"zset{n}": n})


def main():
    port = int(sys.argv[1])
    conflicts = 0
    for protocol in (2, 3):
        client = connect(port, protocol)
        client.flushall()
        locks(client, port, protocol)
        conflicts += transactions(client, port, protocol)
        scripts(client)
        pubsub(client, port, protocol)
        blocking(client, port, protocol)
    assert conflicts > 0, "nobody ever came between"
    print(f"redis-py contended: ok, {2 * N_PROCESSES * N_ROUNDS} locks, {conflicts} conflicts, {4 * N_ITEMS} items taken once")


if __name__ == "__main__":
    main()
