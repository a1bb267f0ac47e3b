"""The jobs of rq_queue.py, as the worker processes import them."""

import os
import time

import redis

connection = redis.Redis(port=int(os.environ["SKERRY_CLIENT_PORT"]))


def double(n):
    connection.incr("ran")
    return 2 * n


def gather(*_):
    from rq import get_current_job

    return sum(job.return_value() for job in get_current_job().fetch_dependencies())


def flaky(until):
    if connection.incr("tries") < until:
        raise ValueError("not yet")
    return "healed"


def stuck():
    connection.rpush("stuck", os.getpid())
    time.sleep(120)
