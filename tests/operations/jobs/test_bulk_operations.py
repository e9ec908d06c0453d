"""Bulk operations: what is ordered is done to each job once, whoever works it and dies of it."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import override_settings
from django.utils import timezone

from django_ojs.extensions.limits import limit_journal
from django_ojs.models import BulkOperation, BulkOperationJob, Job
from django_ojs.models.bulk_operation import BulkActionName, BulkState
from django_ojs.operations import ack, cancel, delete, fail, fetch, queues
from django_ojs.operations.jobs import (
    bulk_execution,
    bulk_operations,
    bulk_step,
    filter_json,
    listing,
)
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.search_query import parse, render
from django_ojs.spec import ids
from django_ojs.spec.errors import InvalidRequest, NotFound
from django_ojs.spec.states import State
from django_ojs.storage import in_memory_state
from django_ojs.storage.dialects.json_contains import JSONMatch
from tests.cases import together
from tests.factories import (
    BOOM,
    MINUTE,
    age,
    hourly,
    in_state,
    jobs,
    push,
    push_many,
    read,
)
from tests.threads import at_once

pytestmark = pytest.mark.django_db

DISCARDED = JobFilter(states=(State.DISCARDED,), queue="q")


def discarded(number: int, **values: Any) -> list[Any]:
    made = [in_state("discarded", **({"queue": "q"} | values)).pk for _ in range(number)]
    age(made, MINUTE)
    return made


def to_the_end(**values: int) -> None:
    for _ in range(100):
        if bulk_execution.work_once(**values) is None:
            return
    raise AssertionError("It has no end.")


def again(operation: BulkOperation) -> BulkOperation:
    found = bulk_operations.get(operation.pk)
    assert found.matched == found.done + found.skipped + found.failed
    return found


def test_all_jobs_of_a_filter_are_retried_chunk_by_chunk() -> None:
    made = discarded(7)
    other = in_state("discarded", queue="other").pk
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    assert (operation.state, operation.expected) == (BulkState.PENDING, 7)
    assert bulk_execution.work_once(chunk=3) == 3
    halfway = again(operation)
    assert (halfway.state, halfway.done) == (BulkState.RUNNING, 3)
    to_the_end(chunk=3)
    done = again(operation)
    assert (done.state, done.done, done.skipped, done.failed) == (BulkState.DONE, 7, 0, 0)
    assert done.finished_at is not None
    assert {read(key).state for key in made} == {"available"}
    assert read(other).state == "discarded"


def test_dead_letters_and_merely_discarded_jobs_are_both_gone_through() -> None:
    discarded(3, retry=hourly(1, on_exhaustion="dead_letter"))
    discarded(3, retry=hourly(1, on_exhaustion="discard"))
    operation = bulk_operations.order(BulkActionName.DELETE, DISCARDED, by="ann")
    to_the_end(chunk=2)
    assert again(operation).done == 6
    assert not jobs().filter(queue="q").exists()


def test_a_look_that_finds_nothing_goes_on() -> None:
    push_many(9, queue="other")
    mine = push(queue="mine")
    push_many(9, queue="other")
    operation = bulk_operations.order(
        BulkActionName.CANCEL, JobFilter(queue="mine", type="test.*"), by="ann"
    )
    age(jobs().values_list("pk", flat=True), MINUTE)
    to_the_end(scan_limit=4)
    assert again(operation).done == 1
    assert read(mine.pk).state == "cancelled"


def test_jobs_that_come_after_the_order_are_left_alone() -> None:
    old = push(queue="q")
    age(old.pk, MINUTE)
    bulk_operations.order(BulkActionName.CANCEL, JobFilter(queue="q"), by="ann")
    BulkOperation.objects.update(created_at=read(old.pk).created_at)
    new = push(queue="q")
    to_the_end()
    assert (read(old.pk).state, read(new.pk).state) == ("cancelled", "available")


def test_a_job_that_fails_again_is_not_retried_twice() -> None:
    made = discarded(2)
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    bulk_execution.work_once(chunk=1)
    assert len([key for key in made if read(key).state == "available"]) == 1
    jobs().filter(state="available").update(state="discarded", finished_at=operation.created_at)
    BulkOperation.objects.update(created_at=operation.created_at)
    to_the_end(chunk=1)
    assert again(operation).matched == 2


def test_what_became_of_the_jobs_of_a_retry_is_known_for_a_week() -> None:
    made = discarded(5)
    other = in_state("completed").pk
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    to_the_end(chunk=2)
    cancel.cancel(made[0])
    delete.delete(made[0])
    for claimed in fetch.fetch(["q"], count=3, worker_id="w"):
        if claimed.id == made[1]:
            fail.fail(claimed.id, BOOM)
        else:
            ack.ack(claimed.id)
    found = bulk_operations.retried(again(operation))
    assert found is not None
    numbers = (found.followed, found.completed, found.failed_again, found.open, found.gone)
    assert numbers == (5, 2, 1, 1, 1)
    which = JobFilter(by_extensions=retried_by(operation))
    assert {job.pk for job in listing.list_jobs(which).rows} == set(made[1:])
    failed = JobFilter(by_extensions=retried_by(operation), states=(State.DISCARDED,))
    assert [job.pk for job in listing.list_jobs(failed).rows] == [made[1]]
    assert listing.count(failed) == (1, False)
    assert other not in {job.pk for job in which.jobs()}

    assert bulk_operations.prune_followed() == 0
    ended = timezone.now() - timedelta(days=7, minutes=1)
    BulkOperation.objects.update(finished_at=ended)
    assert bulk_operations.prune_followed(limit=3) == 3
    assert bulk_operations.prune_followed() == 2
    assert bulk_operations.retried(again(operation)) is None
    assert read(made[1]).state == "discarded"


def retried_by(operation: BulkOperation) -> tuple[tuple[str, str], ...]:
    return (("retried_by", str(operation.pk)),)


def test_what_failed_again_can_be_retried_again() -> None:
    made = discarded(2)
    first = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    to_the_end()
    claimed = fetch.fetch(["q"], count=2, worker_id="w")
    fail.fail(claimed[0].id, BOOM)
    ack.ack(claimed[1].id)
    age(made, MINUTE)
    failed = JobFilter(by_extensions=retried_by(first), states=(State.DISCARDED,))
    second = bulk_operations.order(BulkActionName.RETRY, failed, by="ann")
    to_the_end()
    assert again(second).done == 1
    assert read(claimed[0].id).state == "available"


def test_of_a_large_retry_the_first_jobs_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_operations, "MAX_FOLLOWED", 3)
    discarded(5)
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    to_the_end(chunk=2)
    found = bulk_operations.retried(again(operation))
    assert found is not None
    assert (found.followed, again(operation).done) == (3, 5)


def test_the_jobs_of_another_action_are_not_followed() -> None:
    discarded(2)
    operation = bulk_operations.order(BulkActionName.DELETE, DISCARDED, by="ann")
    to_the_end()
    assert bulk_operations.retried(again(operation)) is None
    assert not BulkOperationJob.objects.exists()


def test_a_job_that_waits_longer_than_a_duration_only_since_the_order_is_left() -> None:
    long, later = push_many(2)
    jobs().filter(pk=long.pk).update(enqueued_at=F("enqueued_at") - timedelta(hours=1))
    which = JobFilter(queue=long.queue, waited_over=timedelta(minutes=5))
    operation = bulk_operations.order(BulkActionName.CANCEL, which, by="ann")
    assert operation.expected == 1
    # Maintenance executes it ten minutes later.
    for model, field in ((Job, "created_at"), (Job, "enqueued_at"), (BulkOperation, "created_at")):
        model.objects.update(**{field: F(field) - timedelta(minutes=10)})
    to_the_end()
    assert again(operation).done == 1
    assert (read(long.pk).state, read(later.pk).state) == ("cancelled", "available")


def test_a_search_that_excludes_a_state_cancels_no_running_job() -> None:
    waits, runs = in_state("available", queue="a"), in_state("active", queue="q")
    which = parse("-state:completed").filter
    assert which is not None
    assert set(which.jobs()) == {waits, runs}
    bulk_operations.order(BulkActionName.CANCEL, which, by="ann")
    to_the_end()
    assert read(waits.pk).state == "cancelled"
    assert read(runs.pk).state == "active"
    # Its page, and the tab of a state, show the states that are named.
    applied = bulk_operations.applicable(BulkActionName.CANCEL, which)
    assert "active" not in render(applied)
    assert parse(render(which)).filter == which


def test_a_job_whose_limit_key_opens_meanwhile_is_cancelled_too() -> None:
    policy = {"key": "acme", "concurrency": 1}
    held = [push(queue="q", rate_limit=policy).pk for _ in range(3)]
    (running,) = fetch.fetch(["q"], count=3, worker_id="w")
    others = [push(queue="q").pk, push(queue="q", rate_limit={**policy, "key": "other"}).pk]
    which = JobFilter(queue="q", states=(State.AVAILABLE,))
    operation = bulk_operations.order(BulkActionName.CANCEL, which, by="ann")
    assert operation.expected == 4
    for _ in others:
        bulk_execution.work_once(chunk=1)
    ack.ack(running.id)
    assert limit_journal.open_due()
    to_the_end(chunk=1)
    assert again(operation).done == 4
    assert {read(key).state for key in {*held, *others} - {running.id}} == {"cancelled"}


def test_an_operation_goes_on_when_its_queue_gets_a_limit_key() -> None:
    push_many(3, queue="q")
    which = JobFilter(queue="q", states=(State.AVAILABLE,))
    operation = bulk_operations.order(BulkActionName.CANCEL, which, by="ann")
    bulk_execution.work_once(chunk=1)
    later = push(queue="q", rate_limit={"key": "acme", "concurrency": 1})
    age(later.pk, -MINUTE)
    in_memory_state.reset()
    to_the_end(chunk=1)
    assert (again(operation).state, again(operation).done) == (BulkState.DONE, 3)
    assert read(later.pk).state == "available"


@pytest.mark.parametrize("action", [BulkActionName.DELETE, BulkActionName.CANCEL])
def test_it_changes_the_jobs_as_of_the_time_at_which_they_were_seen(action: BulkActionName) -> None:
    state = "discarded" if action == BulkActionName.DELETE else "available"
    seen = [in_state(state, queue="q").pk for _ in range(2)]
    age(seen, 2 * MINUTE)
    later = [in_state(state, queue="q").pk for _ in range(3)]
    which, at = JobFilter(queue="q", type="test.job"), bulk_operations.moment() - MINUTE
    operation = bulk_operations.order(action, which, by="ann", as_of=at)
    age(later, 1)
    to_the_end()
    done = again(operation)
    assert (done.expected, done.done, done.skipped) == (2, 2, 0)
    assert jobs().filter(pk__in=later, state=state).count() == 3
    assert jobs().filter(pk__in=seen, state=state).count() == 0


def test_a_time_that_has_not_come_is_now() -> None:
    discarded(2)
    ahead = timezone.now() + timedelta(days=1)
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann", as_of=ahead)
    (later,) = discarded(1)
    age(later, -2 * MINUTE)
    to_the_end()
    assert again(operation).done == 2
    assert read(later).state == "discarded"


def test_a_retry_changes_the_dead_letters_first() -> None:
    dead = discarded(2, retry=hourly(1, on_exhaustion="dead_letter"))
    discarded(1, retry=hourly(1, on_exhaustion="discard"))
    changes = {"queue": "elsewhere", "priority": 7, "retry": {"max_attempts": 9}}
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann", changes=changes)
    to_the_end()
    assert again(operation).done == 2
    for key in dead:
        job = read(key)
        assert (job.state, job.queue, job.priority) == ("available", "elsewhere", 7)
        assert job.max_attempts == 9


# Rejections are recorded from another thread, which on SQLite waits for this one's transaction.
@pytest.mark.django_db(transaction=True)
def test_what_stands_in_the_way_of_some_is_counted_with_its_reason() -> None:
    discarded(5)
    queues.configure("q", {"backpressure": {"max_depth": 3}})
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    to_the_end()
    done = again(operation)
    assert (done.done, done.failed, done.skipped) == (3, 2, 0)
    assert done.reasons == {"queue q is full": 2}
    assert {error["job_id"] for error in done.errors} == {
        str(key) for key in jobs().filter(state="discarded").values_list("pk", flat=True)
    }


@pytest.mark.django_db(transaction=True)
def test_the_reason_names_the_full_queue_that_the_jobs_were_to_move_to() -> None:
    discarded(3, retry=hourly(1, on_exhaustion="dead_letter"))
    queues.configure("narrow", {"backpressure": {"max_depth": 1}})
    changes = {"queue": "narrow"}
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann", changes=changes)
    to_the_end()
    assert again(operation).reasons == {"queue narrow is full": 2}


def test_a_job_that_moved_on_is_skipped_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = discarded(1)
    real = bulk_step.BulkStep.run

    def late(self: Any, keys: Any) -> Any:
        bulk_retry = bulk_step.RETRY.single
        assert bulk_retry is not None
        bulk_retry(key)
        return real(self, keys)

    monkeypatch.setattr(bulk_step.BulkStep, "run", late)
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    to_the_end()
    done = again(operation)
    assert (done.done, done.skipped, done.failed) == (0, 1, 0)
    assert done.errors[0]["job_id"] == str(key)
    assert "The job is available" in done.errors[0]["error"]


def test_a_killed_worker_has_done_nothing_that_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discarded(6)
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    bulk_execution.work_once(chunk=2)

    class Killed(BaseException):
        pass

    def killed(self: Any, *args: Any, **kwargs: Any) -> None:
        raise Killed

    # After the jobs have changed, before the figures have.
    with monkeypatch.context() as patch:
        patch.setattr(BulkOperation, "save", killed)
        with pytest.raises(Killed):
            bulk_execution.work_once(chunk=2)
    assert jobs().filter(state="available").count() == again(operation).done == 2
    to_the_end(chunk=2)
    assert again(operation).done == 6


def test_a_stopped_operation_does_no_more() -> None:
    discarded(4)
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    bulk_execution.work_once(chunk=2)
    assert bulk_operations.stop(operation.pk, by="bob")
    to_the_end()
    stopped = again(operation)
    assert (stopped.state, stopped.stopped_by, stopped.done) == (BulkState.STOPPED, "bob", 2)
    assert jobs().filter(state="discarded").count() == 2
    assert not bulk_operations.stop(operation.pk, by="bob")


def test_an_operation_that_breaks_does_not_hold_up_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discarded(1)
    broken = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    BulkOperation.objects.update(cursor="seven|nowhere")
    sound = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    to_the_end()
    assert again(broken).state == BulkState.STOPPED
    assert again(sound).done == 1


def test_two_operators_of_one_group_share_its_jobs() -> None:
    discarded(9)
    first = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    second = bulk_operations.order(BulkActionName.DELETE, DISCARDED, by="bob")
    bulk_execution.work_once(chunk=4)
    to_the_end(chunk=4)
    assert again(first).done + again(second).done == 9


@together(
    ("action", "which", "changes"),
    [
        (BulkActionName.DELETE, JobFilter(), None),
        # As the search "" and the search * are read.
        (BulkActionName.DELETE, JobFilter(type="*"), None),
        (BulkActionName.DELETE, JobFilter(states=(State.AVAILABLE,)), None),
        (BulkActionName.RETRY, JobFilter(states=(State.COMPLETED,)), None),
        (BulkActionName.CANCEL, JobFilter(states=(State.DISCARDED,)), None),
        (BulkActionName.DELETE, JobFilter(queue="q"), {"priority": 1}),
    ],
    undo=True,
)
def test_what_makes_no_sense_is_rejected(
    action: BulkActionName, which: JobFilter, changes: Any
) -> None:
    with pytest.raises(InvalidRequest):
        bulk_operations.order(action, which, by="ann", changes=changes)
    assert not BulkOperation.objects.exists()


def test_states_that_do_not_allow_it_are_left_out() -> None:
    operation = bulk_operations.order(
        BulkActionName.DELETE, JobFilter(states=(State.COMPLETED, State.AVAILABLE)), by="ann"
    )
    assert operation.filter == {"states": ["completed"]}


def test_an_operation_that_is_not_there_is_said_to_be() -> None:
    with pytest.raises(NotFound):
        bulk_operations.get(1)


def test_every_filter_is_kept_as_it_was_meant() -> None:
    job = push()
    which = JobFilter(
        queue="q",
        states=(State.COMPLETED,),
        states_excluded=True,
        type="a.*",
        since=job.created_at,
        until=job.created_at,
        ended_since=job.created_at,
        ended_until=job.created_at,
        priority=0,
        error="x",
        error_type="y",
        message="z",
        dead_letter=False,
        ids=(ids.uuid7(),),
        worker_id="w",
        parent_id=ids.uuid7(),
        workflow_id=ids.uuid7(),
        queues=("q", "r"),
        not_queues=("s",),
        not_types=("b",),
        host="h",
        ran_over=timedelta(milliseconds=1),
        ran_under=timedelta(days=1),
        waited_over=timedelta(seconds=1.5),
        waited_under=timedelta(hours=1),
        attempts_from=0,
        attempts_to=3,
        tags=("a",),
        held=(
            JSONMatch(column="args", path=("a", "b"), values=(1, "1", None)),
            JSONMatch(column="meta", path=("0",), values=(True,), positions=(("a.b", 0),)),
        ),
        by_extensions=(("tenant", "t"), ("limit", "k")),
        within=frozenset({"q"}),
        at=job.created_at,
        by_current_queue=True,
    )
    rendered = filter_json.render(which)
    assert rendered.keys() == {each.name for each in fields(JobFilter)}
    assert filter_json.read(json.loads(json.dumps(rendered))) == which


def test_what_an_operation_stored_before_is_read() -> None:
    stored = {
        "states": ["discarded"],
        "ended_until": "2026-01-31T14:05:09+00:00",
        "ran_over": 1500,
        "held": [{"column": "meta", "path": ["a"], "values": ["b"]}],
    }
    assert filter_json.read(stored) == JobFilter(
        states=(State.DISCARDED,),
        ended_until=datetime(2026, 1, 31, 14, 5, 9, tzinfo=UTC),
        ran_over=timedelta(seconds=1.5),
        held=(JSONMatch(column="meta", path=("a",), values=("b",)),),
    )


@pytest.mark.django_db(transaction=True)
def test_two_that_work_it_at_once_do_each_job_once() -> None:
    discarded(40)
    operation = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    at_once([lambda: to_the_end(chunk=2)] * 3)
    to_the_end()
    assert again(operation).done == 40
    assert jobs().filter(queue="q", state="available").count() == 40


def test_operations_that_were_over_long_ago_are_pruned_and_open_ones_never() -> None:
    discarded(4)
    done = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    to_the_end()
    stopped = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    bulk_operations.stop(stopped.pk, by="bob")
    waiting = bulk_operations.order(BulkActionName.RETRY, DISCARDED, by="ann")
    ago = timezone.now() - timedelta(days=179)
    rows = bulk_operations.operations()
    rows.update(created_at=ago)
    rows.exclude(pk=waiting.pk).update(finished_at=ago)
    assert bulk_operations.prune() == 0
    rows.filter(pk=done.pk).update(finished_at=ago - timedelta(days=2))
    rows.filter(pk=waiting.pk).update(created_at=ago - timedelta(days=900))
    assert bulk_operations.prune() == 1
    with override_settings(OJS={"KEEP_BULK_OPERATIONS": "P1D"}):
        assert (bulk_operations.prune(limit=1), bulk_operations.prune(limit=1)) == (1, 0)
    assert list(rows.values_list("pk", flat=True)) == [waiting.pk]
