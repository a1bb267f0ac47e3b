"""Rate limiters in Lua, under contention: a leaky bucket as a cell (GCRA), a sliding log, the `limits` library's windows; none lets one
more through than it may, and none starves."""

import sys
import threading
import time

import redis
from limits import RateLimitItemPerSecond, storage, strategies

N_THREADS = 8
SECONDS = 2.0

# The generic cell rate algorithm on the server's clock, in microseconds. One key: the time at which the bucket is empty again.
# Returns: limited, burst, remaining, when to try again, when it is full again (the last two in ms, -1 for now).
GCRA = """
redis.replicate_commands()
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local burst, count, period, quantity = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) * 1000000, tonumber(ARGV[4])
local interval = period / count
local empty = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local after = empty + interval * quantity
local allow_at = after - interval * (burst + 1)
if allow_at > now then
    return {1, burst + 1, math.floor((now - empty) / interval + burst + 1), math.ceil((allow_at - now) / 1000),
            math.ceil((empty - now) / 1000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
return {0, burst + 1, math.floor((now - allow_at) / interval), -1, math.ceil((after - now) / 1000)}
"""

# A log of the last window in a sorted set, one member a call; the counter beside it has a name made in the script.
SLIDING = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
    local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    return {0, oldest[2] + ARGV[2] - now}
end
local serial = redis.call('INCR', KEYS[1] .. ':serial')
redis.call('ZADD', KEYS[1], now, now .. '-' .. serial)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1] .. ':serial', ARGV[2])
return {1, 0}
"""


def hammer(port, attempt):
    """Every thread asks as fast as it can for a while; returns when (on our clock) each call was let through, and the calls."""
    passed, n_asked, failures = [], [], []

    def ask():
        client = redis.Redis(port=port)
        try:
            asked = 0
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                asked += 1
                if attempt(client):
                    passed.append(time.monotonic())
            n_asked.append(asked)
        except Exception as error:  # shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(N_THREADS)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return sorted(passed), sum(n_asked), time.monotonic() - begin


def gcra(port, client):
    burst, count = 9, 50
    script = client.register_script(GCRA)
    assert script(keys=["cell"], args=[2, 1, 60, 1]) == [0, 3, 2, -1, 60000]
    assert script(keys=["cell"], args=[2, 1, 60, 1])[:3] == [0, 3, 1]
    assert script(keys=["cell"], args=[2, 1, 60, 1])[:3] == [0, 3, 0]
    limited, most, left, retry, reset = script(keys=["cell"], args=[2, 1, 60, 1])
    assert (limited, most, left) == (1, 3, 0) and 59000 < retry <= 60000 and 179000 < reset <= 180000
    passed, asked, took = hammer(port, lambda each: script(keys=["fast"], args=[burst, count, 1, 1], client=each)[0] == 0)
    most = burst + 1 + count * took + 1
    assert len(passed) <= most, f"{len(passed)} passed of at most {most}"
    assert len(passed) >= burst + 1 + count * (SECONDS - 0.5), f"only {len(passed)} passed"
    return len(passed), asked


def sliding(port, client):
    limit, window_ms = 40, 500
    script = client.register_script(SLIDING)
    attempt = lambda each: script(keys=["slide"], args=[limit, window_ms], client=each)[0] == 1  # noqa: E731
    passed, asked, took = hammer(port, attempt)
    most = limit * (int(took * 1000 / window_ms) + 1)
    assert len(passed) <= most, f"{len(passed)} passed of at most {most}"
    assert len(passed) >= limit * (SECONDS * 1000 / window_ms - 1), f"only {len(passed)} passed"
    assert client.zcard("slide") <= limit
    return len(passed), asked


def library(port):
    """`limits`: its fixed, moving and sliding windows are Lua scripts too."""
    store = storage.RedisStorage(f"redis://127.0.0.1:{port}")
    item = RateLimitItemPerSecond(30, 60)
    for kind in (strategies.FixedWindowRateLimiter, strategies.MovingWindowRateLimiter, strategies.SlidingWindowCounterRateLimiter):
        limiter = kind(store)
        hits = []
        threads = [threading.Thread(target=lambda: hits.extend(limiter.hit(item, kind.__name__) for _ in range(10)))
                   for _ in range(N_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(hits) == 10 * N_THREADS and sum(hits) == 30, f"{kind.__name__} let {sum(hits)} of 30 through"
        assert not limiter.test(item, kind.__name__)
        assert limiter.get_window_stats(item, kind.__name__).remaining == 0
        limiter.clear(item, kind.__name__)
        assert limiter.test(item, kind.__name__)


def main():
    port = int(sys.argv[1])
    client = redis.Redis(port=port)
    client.flushall()
    cell, cell_asked = gcra(port, client)
    slid, slid_asked = sliding(port, client)
    library(port)
    print(f"rate limit: ok, cell let {cell} of {cell_asked} through, sliding {slid} of {slid_asked}, limits 30 of 80 three times")


if __name__ == "__main__":
    main()
