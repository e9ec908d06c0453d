"""Jobs that run too long, or are not wanted any more, while they run."""

from __future__ import annotations

import pytest

import django_ojs as ojs
from django_ojs.handlers import Handler
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, history, marks, started, stored
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

ONCE = ojs.RetryPolicy(max_attempts=1)
#: Seconds. Long enough for a handler to store its first mark, also on a busy machine.
TIMEOUT = 4.0


def test_a_job_that_exceeds_its_timeout_fails_and_its_process_lives_on(start: Start) -> None:
    plain = stored(handlers.wait.options(timeout=TIMEOUT, retry=ONCE).enqueue())
    coroutine = stored(handlers.wait_async.options(timeout=TIMEOUT, retry=ONCE).enqueue())
    tree = start("--threads", "2").ready()
    (process,) = tree.children()
    for job in (plain, coroutine):
        becomes(job, "discarded")
        assert history(job) == [(1, "timeout", "timeout")]
    eventually(
        lambda: marks(plain) == ["started", "stopped by Interrupted, cancelled=True"],
        "the function is stopped",
    )
    eventually(
        lambda: marks(coroutine) == ["started", "stopped, cancelled=True"],
        "the coroutine is stopped",
    )
    becomes(stored(handlers.note.enqueue()), "completed")
    assert tree.children() == [process]


def test_a_timeout_goes_through_the_retry_policy(start: Start) -> None:
    job = stored(handlers.wait.options(timeout=0.2).enqueue())
    start().ready()
    becomes(job, "discarded")
    assert history(job) == [(attempt, "timeout", "timeout") for attempt in (1, 2, 3)]


def test_a_handler_that_catches_everything_can_see_that_it_should_stop(start: Start) -> None:
    job = stored(handlers.watch.options(timeout=TIMEOUT, retry=ONCE).enqueue())
    start("--threads", "1").ready()
    eventually(
        lambda: marks(job)[-1:] == ["saw that it was cancelled"], "it sees that it was cancelled"
    )
    assert becomes(job, "discarded").error["type"] == "timeout"


@pytest.mark.parametrize("handler", [handlers.wait, handlers.wait_async])
def test_cancelling_a_running_job_reaches_its_handler(
    start: Start, handler: Handler[..., object]
) -> None:
    job = stored(handler.enqueue())
    tree = start("--threads", "1").ready()
    started(job)
    ojs.cancel(job.pk)
    eventually(lambda: len(marks(job)) == 2, "the handler is stopped")
    assert marks(job)[1].endswith("cancelled=True")
    assert becomes(job, "cancelled").result is None
    # Its slot is free again.
    becomes(stored(handlers.note.enqueue()), "completed")
    assert "its claim is gone (cancelled" in tree.log


@pytest.mark.interrupts
def test_a_thread_that_cannot_be_stopped_blocks_neither_its_slot_nor_the_next_job(
    start: Start,
) -> None:
    # Fifty seconds in C, one slot: the next job must not wait for them.
    job = stored(handlers.deaf.options(timeout=TIMEOUT).enqueue(50.0))
    tree = start("--threads", "1", OJS_TEST_STUCK_AFTER="2").ready()
    started(job)
    after = stored(handlers.note.enqueue())
    becomes(after, "completed")
    becomes(job, "completed")
    assert history(job) == [(1, "timeout", "timeout")]
    assert marks(job) == ["started", "started", "done"]
    # And a process that keeps such a thread is replaced once its other jobs are done.
    (old,) = tree.children()
    eventually(lambda: tree.children() not in ([old], []), "the process is replaced")
    assert "has a handler that did not end" in tree.log
    becomes(stored(handlers.note.enqueue()), "completed")
