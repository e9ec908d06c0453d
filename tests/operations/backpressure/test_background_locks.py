"""A transaction that holds the lock of a queue delays the background's other queues hardly at all.

The time that a producer waits is longer here than that of any test: what waits so long fails it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.operations import rejection_counts
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronRunPhase
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.outbox import local
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.models import Job
from django_ojs.operations import ack, activate, queues, retry
from django_ojs.spec.errors import QueueFull
from tests.factories import EnvelopeFactory, in_state, jobs, push, put
from tests.model_factories import CronRunFactory
from tests.operations.cron.scenes import make_due, register
from tests.operations.workflows.scenes import chain, create, job, states, take
from tests.other_session import open_transaction
from tests.worker.waiting import BOUND

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql,  # On SQLite no transaction stays open beside one that writes.
]


@pytest.fixture(autouse=True)
def _endless_wait_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOCK_TIMEOUT", 4 * BOUND)


def locked_queue() -> AbstractContextManager[Callable[[], None]]:
    """Let another session hold the lock of the queue `locked`, as `open_transaction`.

    The queue has room for one job more.
    """
    queues.configure("locked", {"backpressure": {"max_depth": 2}})
    return open_transaction(lambda: push(queue="locked"))


def rejections_of(queue: str) -> int:
    rejection_counts.recorder.reset()  # It has a thread, which may be writing.
    return Event.primary.filter(type__startswith="backpressure", queue=queue).count()


def of_queue(name: str) -> int:
    return jobs().filter(queue=name).count()


def test_a_cron_job_is_tried_again_and_the_others_are_enqueued() -> None:
    for name in ("free", "locked"):
        register(name, template={"options": {"queue": name}})
    with locked_queue() as commit:
        due = make_due("free", "locked")
        assert cron.fire_due() == 1
        assert (of_queue("free"), of_queue("locked")) == (1, 0)
        assert cron.get("locked").due_at == due
        commit()
    # Whether the queue was full was not known: no job was rejected, or put into the outbox.
    assert not OutboxEntry.objects.exists()
    assert not rejections_of("locked")
    assert cron.fire_due() == 1
    assert of_queue("locked") == 2


def test_a_held_job_is_released_later() -> None:
    register("report", overlap_policy="enqueue", template={"options": {"queue": "locked"}})
    with locked_queue() as commit:
        CronRunFactory(
            name="report", job_id=push(queue="locked", pending=True).pk, phase=CronRunPhase.HELD
        )
        assert cron.fire_due() == 0
        commit()
    assert not rejections_of("locked")
    assert cron.fire_due() == 1


def test_a_step_of_a_workflow_is_tried_again_and_the_others_start() -> None:
    names = ("free", "locked")
    made = [create(chain(job(f"first.{name}"), job(f"then.{name}", queue=name))) for name in names]
    for name in names:
        ack.ack(take(f"first.{name}").id)
    with locked_queue() as commit:
        workflows.advance_due()
        assert [states(each)[f"then.{name}"] for each, name in zip(made, names, strict=True)] == [
            "enqueued",
            "ready",
        ]
        commit()
    assert not rejections_of("locked")
    workflows.advance_due()
    assert states(made[1])["then.locked"] == "enqueued"


def test_the_outbox_stores_the_jobs_of_the_other_queues() -> None:
    for name in ("locked", "free"):
        put(EnvelopeFactory(queue=name))
    with locked_queue() as commit:
        assert local.deliver() == 1
        assert Job.primary.get(queue="free")
        commit()


@pytest.mark.parametrize("operation", ["activate", "retry"])
def test_an_activation_or_a_retry_that_the_lock_keeps_waiting_is_rejected(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They are no work of the background, and wait as a producer does: here for a moment.
    monkeypatch.setattr(bounds, "LOCK_TIMEOUT", 0.1)
    job = (
        push(queue="locked", pending=True)
        if operation == "activate"
        else in_state("discarded", queue="locked")
    )
    call = activate.activate if operation == "activate" else retry.retry
    with locked_queue() as commit:
        with pytest.raises(QueueFull, match="transactions are open") as caught:
            call(job.pk)
        commit()
    # The transaction was usable still for what is read after that.
    assert caught.value.details["retry_after"] > 0
    assert call(job.pk).state == "available"
