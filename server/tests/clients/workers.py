"""Worker processes of the queue programs: started in a group of their own, ended with their children, waited for."""

import atexit
import os
import signal
import subprocess
import time
from pathlib import Path

WAIT = 60


def start(argv, **env):
    """A worker in a process group of its own, so that its children can be killed with it."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **env}
    worker = subprocess.Popen(argv, cwd=Path(__file__).parent, env=env, start_new_session=True)
    atexit.register(kill_group, worker)
    return worker


def kill_group(worker):
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def stop(worker):
    worker.terminate()
    worker.wait(timeout=WAIT)


def until(what, ready):
    end = time.monotonic() + WAIT
    while not ready():
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.02)
