"""Every trigger in every state the table does not have for it: rejected, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.operations import ack, activate, cancel, expiry, fail, fetch, promotion, retry
from django_ojs.operations import push as pushing
from django_ojs.operations.maintenance import timeouts
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, DuplicateJob, JobNotFound
from django_ojs.spec.ids import uuid7
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import transitions
from tests.cases import together
from tests.factories import BOOM, HOUR, WORKER, EnvelopeFactory, in_state, jobs, snapshot
from tests.spec.test_states import EVENTS, ROWS, STATES

pytestmark = pytest.mark.django_db

#: Operations that are asked to change one job, and say so when they cannot.
ASKED: dict[str, Callable[[UUID], Any]] = {
    "ack": ack.ack,
    "fail": lambda key: fail.fail(key, BOOM),
    "hold": lambda key: fail.postpone(key, BOOM, delay=HOUR),
    "return": fail.requeue,
    "cancel": cancel.cancel,
    "activate": activate.activate,
    "retry": retry.retry,
}
#: Steps that take the jobs they find, and must not find this one.
FOUND: dict[str, Callable[[UUID], Any]] = {
    "timer": lambda key: promotion.promote(),
    "expire": lambda key: expiry.expire(),
    "lapse": lambda key: rescue.lapse(),
    "rescue": lambda key: rescue.rescue([WORKER]),
    "overrun": lambda key: timeouts.enforce(),
    "fetch": lambda key: len(fetch.fetch([queue_of(key)], due=False)),
    "give_back": lambda key: rescue.give_back([(key, run_of(key))], worker_id=WORKER),
    "drop": lambda key: transitions.apply(
        Trigger.DROP, State.DISCARDED, {key: State.AVAILABLE}, finished_at=Now()
    ),
    "reschedule": lambda key: transitions.reschedule({key: timezone.now() + HOUR}),
}
#: The trigger of the table that an operation is, where the names differ.
EVENT_OF = {"hold": "fail", "rescue": "lapse", "give_back": "return", "overrun": "fail"}
VALID = {(trigger, source) for source, trigger, _ in ROWS}


def queue_of(key: UUID) -> str:
    return str(jobs().values_list("queue", flat=True).get(pk=key))


def run_of(key: UUID) -> int:
    return int(jobs().values_list("run", flat=True).get(pk=key))


def rejected(operations: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, state)
        for name, state in product(operations, STATES)
        if (EVENT_OF.get(name, name), state) not in VALID
    ]


def ripen(key: UUID, operation: str) -> None:
    """Make the job due, expired, lapsed, overrun and the worker's: only its state is in the way."""
    past = Now() - HOUR
    jobs().filter(pk=key).update(
        due_at=past,
        expires_at=None if operation == "fetch" else past,
        lease_until=past,
        started_at=past,
        timeout_ms=1,
        worker_id=WORKER,
    )


def test_every_trigger_of_the_table_is_tried() -> None:
    tried = {EVENT_OF.get(name, name) for name in [*ASKED, *FOUND]}
    # Nobody asks for what becomes of a job whose queue goes.
    assert tried | {"push", "delete_queue"} == set(EVENTS)


@together(("operation", "state"), rejected(ASKED), undo=True)
def test_what_the_table_does_not_have_is_rejected_and_changes_nothing(
    operation: str, state: str
) -> None:
    job = in_state(state)
    ripen(job.pk, operation)
    before = snapshot(job.pk)
    if (operation, state) == ("cancel", "cancelled"):  # core §7.6 (4): idempotent
        assert ASKED[operation](job.pk)[1] is State.CANCELLED
    else:
        with pytest.raises(Conflict) as caught:
            ASKED[operation](job.pk)
        details = caught.value.details
        assert (details["job_id"], details["current_state"]) == (str(job.pk), state)
        assert state not in (details["expected_state"], *details["expected_state"])
    assert snapshot(job.pk) == before


@together(("operation", "state"), rejected(FOUND), undo=True)
def test_a_step_leaves_jobs_in_other_states_alone(operation: str, state: str) -> None:
    job = in_state(state)
    ripen(job.pk, operation)
    before = snapshot(job.pk)
    assert FOUND[operation](job.pk) == 0
    assert snapshot(job.pk) == before


@together(
    ("operation", "state"),
    sorted((name, s) for name, s in product(FOUND, STATES) if (name, s) not in rejected(FOUND)),
    undo=True,
)
def test_the_same_step_takes_the_job_where_the_table_has_the_row(
    operation: str, state: str
) -> None:
    job = in_state(state)
    ripen(job.pk, operation)
    assert FOUND[operation](job.pk) == 1
    assert snapshot(job.pk)["job"]["state"] != state


@together("state", STATES, undo=True)
def test_an_id_cannot_be_pushed_again_whatever_became_of_its_job(state: str) -> None:
    job = in_state(state)
    before = snapshot(job.pk)
    with pytest.raises(DuplicateJob) as caught:
        pushing.push(EnvelopeFactory(id=job.pk, type="other.job"))
    assert caught.value.details == {"existing_job_id": str(job.pk)}
    assert snapshot(job.pk) == before


@together("operation", ASKED, undo=True)
def test_a_job_that_does_not_exist_is_not_found(operation: str) -> None:
    missing = uuid7()
    with pytest.raises(JobNotFound) as caught:
        ASKED[operation](missing)
    key = str(missing)
    assert caught.value.details == {"job_id": key, "resource_type": "job", "resource_id": key}


def test_the_expected_states_are_named_in_the_conflict() -> None:
    with pytest.raises(Conflict, match="is pending; ack needs it active") as caught:
        ack.ack(in_state("pending").pk)
    assert caught.value.details["expected_state"] == "active"
    with pytest.raises(Conflict) as caught:
        cancel.cancel(in_state("completed").pk)
    expected = caught.value.details["expected_state"]
    assert sorted(expected) == ["active", "available", "pending", "retryable", "scheduled"]


def test_a_move_that_the_table_does_not_have_cannot_even_be_written() -> None:
    job = in_state("available")
    with pytest.raises(Conflict, match="by ack to discarded"):
        transitions.apply(Trigger.ACK, State.DISCARDED, {job.pk: State.AVAILABLE}, run=F("run") + 1)
    assert snapshot(job.pk)["job"]["run"] == 0
