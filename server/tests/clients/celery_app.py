"""The tasks of celery_queue.py, as the worker processes import them."""

import os
import time

import redis
from celery import Celery

PORT = os.environ["SKERRY_CLIENT_PORT"]
URL = f"redis://127.0.0.1:{PORT}"
app = Celery("tasks", broker=f"{URL}/1", backend=f"{URL}/2")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    # What a killed worker held is delivered again after this many seconds; long where nobody is killed, so that no slow machine
    # makes a task run twice.
    broker_transport_options={
        "visibility_timeout": int(os.environ.get("SKERRY_CLIENT_VISIBILITY", 600)),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "fanout_prefix": True,
        "fanout_patterns": True,
    },
    result_expires=600,
    task_track_started=True,
)
record = redis.Redis(port=int(PORT), db=3, decode_responses=True)


@app.task
def add(x, y):
    record.incr("ran:add")
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def flaky(self, until):
    tries = record.incr("ran:flaky")
    if tries < until:
        raise self.retry(countdown=0.1)
    return tries


@app.task
def fails():
    raise ValueError("as it should")


@app.task
def rare(n):
    """The first to run it sits on it for ever; whoever gets it again finishes it."""
    record.rpush(f"ran:rare:{n}", os.getpid())
    if record.llen(f"ran:rare:{n}") == 1:
        record.incr("stuck")
        time.sleep(120)
    return n * n
