"""A bulk operation whose workers are killed again and again does each job once, and says so.

20,000 jobs; 100,000 with OJS_FAULTS=full.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from django_ojs.models import BulkOperation
from django_ojs.models.bulk_operation import BulkActionName, BulkState
from django_ojs.operations.jobs import bulk_execution, bulk_operations
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.figures import counts
from tests import fork_server
from tests.factories import jobs
from tests.sizes import FULL
from tests.worker.waiting import BOUND, eventually

JOBS = 100_000 if FULL else 8_000
KILLS = 5

# Until it is killed: a step finds nothing while the session of the last one still has the lock.
_WORK = """
import time
import django
django.setup()
from django_ojs.operations.jobs import bulk_execution
print("ready", flush=True)
while True:
    if not bulk_execution.work():
        time.sleep(0.01)
"""

_DISCARDED = """
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, started_at, finished_at, dead_letter,
                     discard_reason)
SELECT gen_random_uuid(), 'shop.type', 'q', 'discarded', 0, '[]', '{}', '{}', 3, 3, 0, 3,
       now() - interval '1 hour', now() - interval '1 hour', now() - interval '50 min',
       now() - n * interval '1 millisecond' - interval '1 min', n %% 2 = 0, 'exhausted'
FROM generate_series(1, %s) AS n
"""


@contextmanager
def _killed_at_the_end(program: str, environment: dict[str, str]) -> Iterator[None]:
    """Start a process, wait until it is ready, and kill it when the block ends."""
    worker = fork_server.popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        yield
    finally:
        worker.kill()
        worker.wait(BOUND)
        if worker.stdout is not None:
            worker.stdout.close()


def _finished(key: int) -> BulkOperation:
    """Execute the rest of an operation here, and return it when it is over."""

    def is_over() -> bool:
        bulk_execution.work()
        return bulk_operations.get(key).state in bulk_operations.OVER

    eventually(is_over, "the operation is over")
    return bulk_operations.get(key)


@pytest.mark.postgresql
def test_every_job_is_retried_once_by_workers_that_are_killed(
    process_environment: dict[str, str],
) -> None:
    with database.connection().cursor() as cursor:
        cursor.execute(_DISCARDED, [JOBS])
    operation = bulk_operations.order(
        BulkActionName.RETRY, JobFilter(queue="q", states=(State.DISCARDED,)), by="ann"
    )
    assert operation.expected == JOBS
    for kill in range(KILLS):
        with _killed_at_the_end(_WORK, process_environment):
            # Each is killed with a part of the work done, in the middle of a chunk.
            until, wanted = time.monotonic() + BOUND, JOBS * (kill + 1) // (KILLS + 2)
            while bulk_operations.get(operation.pk).done < wanted:
                assert time.monotonic() < until
                time.sleep(0.003)
        # Its last commit may have been on the way.
        until = time.monotonic() + BOUND
        while bulk_operations.get(operation.pk).done != jobs().filter(state="available").count():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert bulk_operations.get(operation.pk).state == BulkState.RUNNING
    done = _finished(operation.pk)
    assert (done.state, done.matched, done.done) == (BulkState.DONE, JOBS, JOBS)
    assert (done.skipped, done.failed, done.errors) == (0, 0, [])
    assert counts.by_queue(["q"]) == {"q": {State.AVAILABLE: JOBS}}
