"""Celery with the server as broker and result store: group, chord, chain, retry, countdown, revoke, priorities, 500 tasks by two
workers, and a worker that is killed in the middle of its tasks."""

import os
import sys
import time

port = sys.argv[1]
os.environ["SKERRY_CLIENT_PORT"] = port
import redis  # noqa: E402
from celery import __version__, chain, chord, group  # noqa: E402
from celery.exceptions import TaskRevokedError  # noqa: E402
from celery_app import add, app, fails, flaky, rare, record, total  # noqa: E402
from workers import WAIT, kill_group, start, stop, until  # noqa: E402

N_TASKS = 500


def start_worker(name, concurrency, queues="celery", visibility=600):
    argv = [sys.executable, "-m", "celery", "-q", "-A", "celery_app", "worker", "--loglevel", "CRITICAL", "-Q", queues]
    argv += ["-c", str(concurrency), "-n", f"{name}@test"]
    return start(argv, SKERRY_CLIENT_VISIBILITY=str(visibility), PYTHONWARNINGS="ignore")


def plain():
    assert add.delay(2, 3).get(timeout=WAIT) == 5
    assert group(add.s(n, n) for n in range(10))().get(timeout=WAIT) == [2 * n for n in range(10)]
    assert chord((add.s(n, 1) for n in range(20)), total.s())().get(timeout=WAIT) == sum(range(20)) + 20
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=WAIT) == 10
    nested = chord([group(add.s(n, n) for n in range(3)), add.s(1, 1)], total.s() | add.s(100))()
    assert nested.get(timeout=WAIT) == 108
    assert flaky.delay(4).get(timeout=WAIT) == 4
    failed = fails.delay()
    try:
        failed.get(timeout=WAIT)
        raise AssertionError("ValueError expected")
    except ValueError as error:
        assert str(error) == "as it should"
    assert failed.state == "FAILURE"
    began = time.monotonic()
    assert add.apply_async((1, 1), countdown=1).get(timeout=WAIT) == 2
    assert time.monotonic() - began >= 1
    revoked = add.apply_async((1, 1), countdown=2)
    revoked.revoke()
    try:
        revoked.get(timeout=WAIT)
        raise AssertionError("TaskRevokedError expected")
    except TaskRevokedError:
        pass
    assert set(app.control.ping(timeout=2)[0]) <= {"one@test", "two@test"}


def many():
    record.set("ran:add", 0)
    results = [add.apply_async((n, n), priority=n % 10) for n in range(N_TASKS)]
    assert [result.get(timeout=WAIT) for result in results] == [2 * n for n in range(N_TASKS)]
    assert record.get("ran:add") == str(N_TASKS), "a task ran more than once"


def killed():
    """Late acknowledgement: what the killed worker held comes back and is done by another."""
    doomed = start_worker("doomed", 3, "rare")
    try:
        results = [rare.apply_async((n,), queue="rare") for n in range(3)]
        until("three stuck tasks", lambda: record.get("stuck") == "3")
    finally:
        kill_group(doomed)
    heir = start_worker("heir", 3, "rare", visibility=4)
    try:
        assert [result.get(timeout=WAIT) for result in results] == [0, 1, 4]
    finally:
        stop(heir)
    for n in range(3):
        assert record.llen(f"ran:rare:{n}") >= 2


def main():
    record.flushall()
    workers = [start_worker("one", 2), start_worker("two", 2)]
    try:
        until("two workers", lambda: len(app.control.ping(timeout=1)) == 2)
        plain()
        many()
    finally:
        for worker in workers:
            stop(worker)
    killed()
    broker = redis.Redis(port=int(port), db=1)
    assert broker.llen("celery") == 0 and broker.hlen("unacked") == 0, broker.hgetall("unacked")
    print(f"celery {__version__}: ok, {N_TASKS} tasks once each, 3 given again after a kill")


if __name__ == "__main__":
    main()
