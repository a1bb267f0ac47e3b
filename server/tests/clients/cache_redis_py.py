"""redis-py's client-side cache (RESP3, CLIENT TRACKING) while another process writes: what it reads never goes back in time, each write,
deletion, expiry and flush becomes visible, and most reads never reach the server."""

import multiprocessing
import sys
import time

import redis
from redis.cache import CacheConfig

N_KEYS = 50
N_WRITES = 3000
WAIT = 10


def write(port):
    """Versions of each key go up; now and then a key is written by a script, a transaction, RENAME or SET with a deadline."""
    client = redis.Redis(port=port)
    for n in range(1, N_WRITES + 1):
        key = f"key:{n % N_KEYS}"
        time.sleep(0.0005)  # so that there are reads between two writes
        match n % 11:
            case 0:
                client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, key, n)
            case 1:
                client.pipeline().set(key, n).incr("transactions").execute()
            case 2:
                client.set(f"new:{n}", n)
                client.rename(f"new:{n}", key)
            case 3:
                client.set(key, n, px=600_000)
            case 4:
                client.mset({key: n, "other": n})
            case _:
                client.set(key, n)


def until(what, ready):
    end = time.monotonic() + WAIT
    n_reads = 1
    while not ready():
        assert time.monotonic() < end, f"{what}: stale for {WAIT} s"
        n_reads += 1
        time.sleep(0.0005)
    return n_reads


def under_writes(port, cached):
    context = multiprocessing.get_context("fork")
    writer = context.Process(target=write, args=(port,))
    writer.start()
    seen = [0] * N_KEYS
    n_reads = n_changes = 0
    while writer.is_alive():
        for at in range(N_KEYS):
            value = int(cached.get(f"key:{at}") or 0)
            assert value >= seen[at], f"key:{at} went back from {seen[at]} to {value}"
            n_changes += value > seen[at]
            seen[at] = value
            n_reads += 1
    writer.join()
    assert writer.exitcode == 0
    plain = redis.Redis(port=port, decode_responses=True)
    for at in range(N_KEYS):
        until(f"key:{at}", lambda: cached.get(f"key:{at}") == plain.get(f"key:{at}"))
    return n_reads, n_changes


def one_by_one(port, cached):
    """Each kind of change reaches a key that is in the cache."""
    plain = redis.Redis(port=port, decode_responses=True)

    def check(name, expected, change):
        assert cached.get(name) is not None
        change()
        until(name, lambda: cached.get(name) == expected)

    for n in range(200):
        plain.set("k", f"v{n}")
        check("k", "changed", lambda: plain.set("k", "changed"))
    plain.set("k", "v")
    check("k", None, lambda: plain.delete("k"))
    plain.set("k", "v", px=60)
    check("k", None, lambda: None)
    plain.set("k", "v")
    check("k", None, lambda: plain.pexpire("k", 40))
    plain.set("k", "v")
    check("k", None, plain.flushdb)
    plain.hset("h", "f", "1")
    assert cached.hget("h", "f") == "1"
    plain.hset("h", "f", "2")
    until("h", lambda: cached.hget("h", "f") == "2")
    plain.mset({"a": 1, "b": 1})
    assert cached.mget("a", "b") == ["1", "1"]
    plain.set("b", 2)
    until("a b", lambda: cached.mget("a", "b") == ["1", "2"])
    # The connection's own writes count too.
    cached.set("a", 5)
    until("a", lambda: cached.get("a") == "5")


def gets(client):
    return client.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"]


def main():
    port = int(sys.argv[1])
    plain = redis.Redis(port=port)
    plain.flushall()
    cached = redis.Redis(port=port, protocol=3, decode_responses=True, cache_config=CacheConfig(max_size=1000))
    one_by_one(port, cached)
    n_reads, n_changes = under_writes(port, cached)
    assert n_changes > N_KEYS, f"only {n_changes} changes were seen"
    plain.config_resetstat()
    for _ in range(100):
        for at in range(N_KEYS):
            cached.get(f"key:{at}")
    assert gets(plain) == 0, f"{gets(plain)} of {100 * N_KEYS} reads of unchanged keys reached the server"
    print(f"redis-py cache: ok, {n_reads} reads, {n_changes} changes seen beside {N_WRITES} writes, none stale")


if __name__ == "__main__":
    main()
