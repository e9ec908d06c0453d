"""A search in the background: it reads all jobs, changes none, and finds each match once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_ojs.models import AuditEntry, BulkOperation, BulkOperationJob
from django_ojs.models.bulk_operation import BulkActionName, BulkState
from django_ojs.operations import delete
from django_ojs.operations.jobs import background_search, bulk_execution, bulk_operations, listing
from django_ojs.operations.jobs.background_search import NotStarted
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.search_query import parse
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.figures import counts
from tests.factories import HOUR, MINUTE, age, hourly, in_state, jobs, push, push_many, read

pytestmark = pytest.mark.django_db


def started(text: str, *, by: str = "ann") -> BulkOperation:
    which = parse(text).filter
    assert which is not None
    return background_search.start(which, by=by)


def again(search: BulkOperation) -> BulkOperation:
    return bulk_operations.get(search.pk)


def to_the_end(scan_limit: int = 4) -> None:
    for _ in range(200):
        if bulk_execution.work_once(scan_limit=scan_limit) is None:
            return
    raise AssertionError("It has no end.")


def found(search: BulkOperation, **values: int) -> list[Any]:
    return [job.pk for job in background_search.found(search, **values).jobs]


def test_it_reads_all_jobs_step_by_step_and_lists_those_that_match_as_they_come() -> None:
    wanted = [push(queue="mail", args=[{"user_id": 42}]).pk]
    push_many(9, queue="mail")
    wanted.append(push(queue="mail", args=[{"user_id": 42}]).pk)
    age(jobs().values_list("pk", flat=True), MINUTE)
    counts.fold()
    before = list(jobs().order_by("pk").values())
    search = started("args.user_id:42")
    assert (search.state, search.expected, search.jobs_read) == (BulkState.PENDING, 11, 0)

    assert bulk_execution.work_once(scan_limit=4) == 4
    halfway = again(search)
    assert (halfway.state, halfway.jobs_read, halfway.done) == (BulkState.RUNNING, 4, 1)
    assert found(search) == wanted[1:]
    # One that is enqueued meanwhile is not searched.
    late = push(queue="mail", args=[{"user_id": 42}]).pk
    age(late, -MINUTE)
    to_the_end()
    done = again(search)
    assert (done.state, done.jobs_read, done.done, done.skipped) == (BulkState.DONE, 11, 2, 0)
    assert done.finished_at is not None
    # The newest first, each once; a job that was deleted is counted.
    assert found(search) == wanted[::-1]
    first = background_search.found(search, limit=1)
    assert ([job.pk for job in first.jobs], first.after is None) == (wanted[1:], False)
    assert found(search, after=first.after or 0) == wanted[:1]
    assert list(jobs().exclude(pk=late).order_by("pk").values()) == before
    assert not AuditEntry.primary.exists()
    delete.erase([wanted[0]])
    assert background_search.found(search).deleted == 1


def test_it_finds_what_the_list_finds() -> None:
    """In each state, whose jobs are listed by an index of their own."""
    for each in State:
        for number in range(6):
            values: dict[str, Any] = {"tags": ["rare"] if number in (0, 4) else []}
            if each is State.DISCARDED:
                on_exhaustion = "discard" if number % 2 else "dead_letter"
                values["retry"] = hourly(1, on_exhaustion=on_exhaustion)
            in_state(each.value, **values)
    age(jobs().values_list("pk", flat=True), MINUTE)
    for text in ("tag:rare", *(f"tag:rare state:{state}" for state in State)):
        which = parse(text).filter
        assert which is not None
        search = started(text)
        to_the_end()
        assert again(search).state == BulkState.DONE, text
        listed = sorted(job.pk for job in listing.list_jobs(which).jobs)
        assert sorted(found(search)) == listed, text
        assert len(listed) == (16 if text == "tag:rare" else 2), text


def test_a_search_without_another_condition_ends_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_operations, "MAX_FOLLOWED", 3)
    made = [job.pk for job in push_many(8, queue="mail")]
    age(made, MINUTE)
    all_of_a_queue, few = started("queue:mail"), started("queue:mail state:available")
    to_the_end()
    for search in (all_of_a_queue, few):
        done = again(search)
        assert (done.state, done.done, len(found(search))) == (BulkState.DONE, 3, 3)
    assert found(all_of_a_queue) == made[:-4:-1]


@pytest.mark.parametrize("limit", [10_000, 10])
def test_a_job_that_moves_ahead_of_the_search_is_found_once(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that runs and fails: its next attempt is due later than those of the others."""
    monkeypatch.setattr(bulk_operations, "MAX_FOLLOWED", limit)
    due = timezone.now() + HOUR
    moving = [push(scheduled_at=due, tags=["rare"]).pk for _ in range(3)]
    others = [push(scheduled_at=due + HOUR, tags=["rare"]).pk for _ in range(7)]
    age(jobs().values_list("pk", flat=True), MINUTE)
    search = started("tag:rare state:scheduled")
    bulk_execution.work_once(scan_limit=3)
    assert found(search) == moving
    jobs().filter(pk__in=moving).update(due_at=due + HOUR / 2)
    # There is room for seven more, and the next ten begin with three that are stored.
    to_the_end(scan_limit=20)
    done = again(search)
    assert (done.state, done.done, done.matched) == (BulkState.DONE, 10, 10)
    assert found(search) == moving + others


def test_a_change_does_not_wait_for_a_search() -> None:
    keys = [job.pk for job in push_many(6, queue="mail")]
    age(keys, MINUTE)
    search = started("tag:none")
    bulk_execution.work_once(scan_limit=2)
    bulk_operations.order(BulkActionName.CANCEL, JobFilter(queue="mail"), by="bob")
    bulk_execution.work_once()
    assert {read(key).state for key in keys} == {"cancelled"}
    assert again(search).jobs_read == 2
    to_the_end(2)
    assert again(search).state == BulkState.DONE


def test_it_is_stopped_kept_and_pruned() -> None:
    push_many(6, queue="mail", tags=["rare"])
    age(jobs().values_list("pk", flat=True), MINUTE)
    search = started("tag:rare")
    bulk_execution.work_once(scan_limit=2)
    assert bulk_operations.stop(search.pk, by="bob")
    assert not bulk_operations.stop(search.pk, by="bob")
    to_the_end()
    stopped = again(search)
    assert (stopped.state, stopped.stopped_by, stopped.done) == (BulkState.STOPPED, "bob", 2)
    assert not AuditEntry.primary.exists()
    # What it found is not shown to whoever may not search for it, by another way.
    assert listing.list_jobs(JobFilter(retried_by=search.pk)).jobs == []
    ended = timezone.now() - timedelta(days=7, minutes=1)
    bulk_operations.operations().update(finished_at=ended)
    assert bulk_operations.prune_followed() == 2
    assert found(search) == []
    bulk_operations.operations().update(finished_at=timezone.now() - timedelta(days=181))
    assert bulk_operations.prune() == 1


def test_a_user_has_few_searches() -> None:
    with pytest.raises(NotStarted, match="Write a search first"):
        background_search.start(JobFilter(), by="ann")
    push(queue="mail", tags=["a"])
    first = started("tag:a")
    # A second click leads to the same search.
    assert started("tag:a") == first
    assert started("tag:a", by="bob") != first
    for name in range(background_search.MAX_OPEN - 1):
        started(f"tag:other-{name}")
    with pytest.raises(NotStarted, match="You have 3 searches that have not ended"):
        started("tag:one-more")
    to_the_end()
    for number in range(bulk_execution.MAX_KEPT):
        started(f"tag:later-{number}")
        to_the_end()
    mine = background_search.searches().filter(ordered_by="ann")
    assert mine.count() == bulk_execution.MAX_KEPT + 1
    assert not mine.filter(pk=first.pk).exists()
    assert not BulkOperationJob.primary.filter(operation_id=first.pk).exists()
    assert background_search.searches().filter(ordered_by="bob").count() == 1


def test_a_step_that_fails_leaves_nothing_and_ends_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push_many(6, queue="mail", tags=["rare"])
    age(jobs().values_list("pk", flat=True), MINUTE)
    search = started("tag:rare")
    bulk_execution.work_once(scan_limit=2)

    def fails(*_args: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(bulk_execution, "_move", fails)
        bulk_execution.work_once(scan_limit=2)
    ended = again(search)
    assert (ended.state, ended.jobs_read, ended.done) == (BulkState.STOPPED, 2, 2)
    assert len(found(search)) == 2
    assert database.connection().needs_rollback is False
