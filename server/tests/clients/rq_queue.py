"""RQ: jobs and results by three worker processes, priorities of queues, dependencies, retries, the scheduler, a stop command over
pub/sub, and a worker that is killed in the middle of a job."""

import os
import signal
import sys
import time
from datetime import timedelta

port = sys.argv[1]
os.environ["SKERRY_CLIENT_PORT"] = port
from rq import Queue, Retry, VERSION, Worker  # noqa: E402
from rq.command import send_stop_job_command  # noqa: E402
from rq.job import JobStatus  # noqa: E402
from rq.registry import FailedJobRegistry, ScheduledJobRegistry, StartedJobRegistry  # noqa: E402
from rq_tasks import connection, double, flaky, gather, stuck  # noqa: E402
from workers import kill_group, start, stop, until  # noqa: E402

N_JOBS = 300


def start_worker(name, *queues):
    argv = [sys.executable, "-m", "rq.cli", "worker", "--url", f"redis://127.0.0.1:{port}", "--name", name, "--logging_level", "CRITICAL"]
    argv += ["--with-scheduler", "--maintenance-interval", "2", "--worker-ttl", "30", *queues]
    return start(argv)


def finished(job):
    until(job, lambda: job.get_status(refresh=True) in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED))
    return job


def plain(queue):
    jobs = queue.enqueue_many([Queue.prepare_data(double, (n,)) for n in range(N_JOBS)])
    last = queue.enqueue(gather, depends_on=jobs)
    assert [finished(job).return_value() for job in jobs] == [2 * n for n in range(N_JOBS)]
    assert connection.get("ran") == str(N_JOBS).encode(), "a job ran more than once"
    assert finished(last).return_value() == N_JOBS * (N_JOBS - 1)
    healed = queue.enqueue(flaky, 3, retry=Retry(max=3, interval=[1, 1, 1]))
    assert finished(healed).return_value() == "healed"
    failed = finished(queue.enqueue(flaky, 1000))
    assert failed.get_status() == JobStatus.FAILED and "not yet" in failed.latest_result().exc_string
    assert failed.id in FailedJobRegistry(queue=queue)
    began = time.time()
    later = queue.enqueue_in(timedelta(seconds=2), double, 21)
    assert later.id in ScheduledJobRegistry(queue=queue)
    # RQ rounds the time down to whole seconds.
    assert finished(later).return_value() == 42 and time.time() - began >= 1


def stopped(queue):
    job = queue.enqueue(stuck)
    until("a stuck job", lambda: connection.llen("stuck") == 1)
    send_stop_job_command(connection, job.id)
    assert finished(job).get_status() == JobStatus.STOPPED


def killed():
    """The job of a worker that is killed is told of as abandoned once its lease is over."""
    queue = Queue("doomed", connection=connection)
    doomed = start_worker("doomed", "doomed")
    job = queue.enqueue(stuck, job_timeout=600)
    until("a stuck job", lambda: connection.llen("stuck") == 2)
    kill_group(doomed)
    # The work horse has a session of its own.
    os.kill(int(connection.lindex("stuck", -1)), signal.SIGKILL)
    registry = StartedJobRegistry(queue=queue)
    assert registry.get_job_ids() == [job.id]
    heir = start_worker("heir", "doomed")
    try:
        # Its lease as if a while had passed.
        execution = job.get_executions()[0].composite_key
        connection.zadd(registry.key, {execution: time.time() - 1}, xx=True)
        finished(job)
        assert job.get_status() == JobStatus.FAILED and "Abandoned" in job.latest_result().exc_string
        assert finished(queue.enqueue(double, 4)).return_value() == 8
    finally:
        stop(heir)


def main():
    connection.flushall()
    high, low = Queue("high", connection=connection), Queue("low", connection=connection)
    backlog = [low.enqueue(double, 0, at_front=n % 2 == 0) for n in range(10)] + [high.enqueue(double, 0)]
    single = start_worker("single", "high", "low")
    ended = [finished(job).latest_result().created_at for job in backlog]
    assert min(ended) == ended[-1], "the job of the high queue came first"
    stop(single)
    connection.delete("ran")
    workers = [start_worker(name, "high", "low") for name in ("one", "two", "three")]
    try:
        until("three workers", lambda: Worker.count(connection) == 3)
        plain(low)
        stopped(high)
    finally:
        for worker in workers:
            stop(worker)
    killed()
    assert Worker.count(connection) <= 1 and high.count == low.count == 0
    print(f"rq {VERSION}: ok, {N_JOBS} jobs once each, one stopped, one abandoned by a kill")


if __name__ == "__main__":
    main()
