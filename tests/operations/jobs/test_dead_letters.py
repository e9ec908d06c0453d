"""Dead letters: listed newest first, counted, run again, deleted; and nothing else is one."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F, Subquery
from django.test.utils import CaptureQueriesContext

from django_ojs.models import Attempt, Job
from django_ojs.operations import fail, fetch, keyset
from django_ojs.operations.jobs import dead_letters
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.spec.errors import InvalidQueue, InvalidRequest, InvalidRetryPolicy, NotFound
from django_ojs.spec.failure import Failure
from django_ojs.spec.unique_policy import UniquePolicy
from tests.cases import together
from tests.factories import BOOM, active, hourly, in_state, read, snapshot

pytestmark = pytest.mark.django_db


def dead(error: str = "Boom", **values: Any) -> UUID:
    """Build a dead letter."""
    job = active(**({"retry": hourly(1)} | values))
    fail.fail(job.id, Failure(type=error, message="it broke"))
    return job.id


def discarded() -> UUID:
    """Build a job that was discarded and is no dead letter."""
    return in_state("discarded", retry=hourly(1, on_exhaustion="discard")).pk


def keys(which: JobFilter | None = None) -> list[UUID]:
    return [job.pk for job in page(which).rows]


def page(which: JobFilter | None = None, **wanted: Any) -> Page[Job]:
    return dead_letters.page(which or JobFilter(), PageRequest(**wanted))


def test_only_dead_letters_are_listed_the_newest_first() -> None:
    discarded()
    in_state("completed")
    made = [dead() for _ in range(3)]
    Job.objects.filter(pk=made[0]).update(finished_at=F("finished_at") + timedelta(hours=1))
    found = page()
    assert found.rows[0].pk == made[0]
    assert {job.pk for job in found.rows} == set(made)
    assert (found.count(), found.after) == ((3, False), None)


def test_pages_go_on_where_the_last_one_ended_though_many_ended_at_one_moment() -> None:
    made = {dead() for _ in range(7)}
    one, *others = made
    # As the database wrote it: on SQLite Django would write the same moment another way.
    moment = Job.objects.filter(pk=one).values_list("finished_at")
    Job.objects.filter(pk__in=others[:4]).update(finished_at=Subquery(moment))
    turned = keyset.all_rows(partial(dead_letters.page, JobFilter()), 2)
    seen = [job.pk for job in turned]
    assert len(seen) == 7
    assert set(seen) == made
    assert seen == keys()


def test_a_page_whose_jobs_are_deleted_while_it_is_read_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [dead() for _ in range(3)]
    fitting = dead_letters._fitting

    def delete_first(sizes: list[int | None]) -> int:
        for key in made[1:]:
            dead_letters.delete(key)
        return fitting(sizes)

    monkeypatch.setattr(dead_letters, "_fitting", delete_first)
    first = page(limit=2)
    monkeypatch.undo()
    assert (first.rows, first.after is None) == ([], False)
    assert [job.pk for job in page(cursor=first.after).rows] == made[:1]


def test_they_are_found_by_queue_type_error_and_time() -> None:
    one = dead(queue="a", type="email.send", error="Timeout")
    two = dead(queue="b", type="email.send", error="Rejected")
    assert keys(which=JobFilter(queue="a")) == [one]
    assert set(keys(which=JobFilter(type="email.send"))) == {one, two}
    assert keys(which=JobFilter(error_type="Rejected")) == [two]
    assert keys(which=JobFilter(within=frozenset({"b"}))) == [two]
    Job.objects.filter(pk=one).update(finished_at=F("finished_at") - timedelta(days=2))
    ended = read(two).finished_at
    assert ended is not None
    assert keys(which=JobFilter(ended_since=ended - timedelta(days=1))) == [two]
    assert keys(which=JobFilter(ended_until=ended - timedelta(days=1))) == [one]


def test_what_the_counts_do_not_have_is_counted_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyset, "COUNT_LIMIT", 2)
    dead(queue="old", error="Old")
    for _ in range(2):
        dead(queue="new", error="New")
    found = page()
    assert (found.count(), len(found.rows)) == ((3, False), 3)
    of_a_type = page(which=JobFilter(type="*"))
    assert of_a_type.count() == (2, True)
    figures = dead_letters.figures()
    assert figures.total == 3
    assert (figures.by_queue, figures.by_error_type) == ({"new": 2}, {"New": 2})
    assert figures.oldest_at == read(keys()[-1]).finished_at


def test_the_figures_are_by_queue_and_error() -> None:
    discarded()
    assert dead_letters.figures().total == 0
    assert dead_letters.figures().oldest_at is None
    for queue, error in (("a", "Timeout"), ("a", "Rejected"), ("b", "Timeout")):
        dead(queue=queue, error=error)
    figures = dead_letters.figures()
    assert figures.total == 3
    assert figures.by_queue == {"a": 2, "b": 1}
    assert figures.by_error_type == {"Timeout": 2, "Rejected": 1}
    newest, *_, oldest = page().rows
    assert (figures.newest_at, figures.oldest_at) == (newest.finished_at, oldest.finished_at)
    assert dead_letters.figures(frozenset({"b"})).by_queue == {"b": 1}


@pytest.mark.parametrize("operation", [dead_letters.retry, dead_letters.delete])
def test_what_is_no_dead_letter_is_neither_retried_nor_deleted(operation: Any) -> None:
    for job in (in_state("available"), in_state("completed"), read(discarded())):
        before = snapshot(job.pk)
        with pytest.raises(NotFound):
            operation(job.pk)
        assert snapshot(job.pk) == before


def test_a_retry_may_change_the_job() -> None:
    key = dead(args=["old"], meta={"keep": 1, "change": 1})
    changes = {
        "args": ["new"],
        "queue": "mended",
        "priority": 7,
        "meta": {"change": 2},
        "retry": {"max_attempts": 1},
    }
    job = dead_letters.retry(key, override=changes)
    assert (job.args, job.queue, job.priority) == (["new"], "mended", 7)
    assert job.meta == {"keep": 1, "change": 2}
    assert (job.max_attempts, job.retry_policy.max_attempts) == (1, 1)
    assert job.retry_policy.initial_interval == timedelta(hours=1)  # as it was
    assert [got.id for got in fetch.fetch(["mended"])] == [key]
    assert fail.fail(key, BOOM).state == "discarded"


def test_a_retry_that_changes_what_makes_a_job_unique_gives_it_another_key() -> None:
    policy = UniquePolicy(keys=("type", "args"))
    one, two = dead(args=["one"], unique=policy), dead(args=["two"], unique=policy)
    before = read(one).unique_key
    assert before is not None
    assert dead_letters.retry(one, override={"queue": "b", "meta": {"a": 1}}).unique_key == before
    mended = dead_letters.retry(two, override={"args": ["mended"]})
    assert mended.unique_key == policy.key(
        type="test.job", queue=mended.queue, args=["mended"], meta={}
    )


def test_a_retry_in_another_queue_has_the_limit_of_that_queue() -> None:
    own, named = (
        dead(rate_limit={"concurrency": 1}),
        dead(rate_limit={"key": "carrier", "concurrency": 1}),
    )
    for key in (own, named):
        dead_letters.retry(key, override={"queue": "mended"})
    keys = tuple(read(each).options["limit_key"] for each in (own, named))
    assert keys == ("queue:mended", "carrier")


def test_a_retry_without_changes_changes_nothing_else() -> None:
    key = dead(args=["old"], meta={"keep": 1})
    before = read(key)
    job = dead_letters.retry(key, override={"args": None, "queue": None})
    same = ("args", "queue", "meta", "priority", "max_attempts", "options")
    assert [getattr(job, name) for name in same] == [getattr(before, name) for name in same]


@together(
    ("override", "error"),
    [
        ({"queue": "No"}, InvalidQueue),
        ({"args": {"a": 1}}, InvalidRequest),
        ({"meta": [1]}, InvalidRequest),
        ({"priority": 101}, InvalidRequest),
        ({"priority": True}, InvalidRequest),
        ({"retry": {"max_attempts": -1}}, InvalidRetryPolicy),
        ({"type": "other.job"}, InvalidRequest),
        ({"state": "completed"}, InvalidRequest),
    ],
    undo=True,
)
def test_a_change_that_no_job_may_have_is_rejected_and_changes_nothing(
    override: dict[str, Any], error: type[InvalidRequest]
) -> None:
    key = dead()
    before = snapshot(key)
    with pytest.raises(error):
        dead_letters.retry(key, override=override)
    assert snapshot(key) == before


def test_a_deleted_dead_letter_is_gone_with_its_history() -> None:
    key = dead()
    dead_letters.delete(key)
    assert not Job.objects.exists()
    assert not Attempt.objects.exists()
    with pytest.raises(NotFound):
        dead_letters.delete(key)


@pytest.mark.postgresql
def test_lists_and_figures_read_the_index_of_dead_letters_and_not_the_table() -> None:
    dead(queue="a")
    others = ", ".join(each.column for each in Job._meta.concrete_fields if not each.primary_key)
    with connection.cursor() as cursor:
        # The plan is that of many dead letters, whatever the statistics of the table say by chance.
        cursor.execute(
            f"INSERT INTO ojs_job (id, {others})"
            f" SELECT gen_random_uuid(), {others} FROM ojs_job, generate_series(1, 1000)"
        )
        cursor.execute("ANALYZE ojs_job")
    with CaptureQueriesContext(connection) as captured:
        first = page(limit=1)
        for each in (first, page(JobFilter(queue="a"), cursor=first.after)):
            each.count()
        dead_letters.figures()
    touching = [query["sql"] for query in captured if '"ojs_job"' in query["sql"]]
    assert len(touching) == 7
    with connection.cursor() as cursor:
        # A thousand rows are still read as a whole by choice; many more would not be.
        cursor.execute("SET LOCAL enable_seqscan = off")
        for sql in touching:
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "Seq Scan on ojs_job" not in plan
            # A page is chosen by the index, by the sizes of its jobs, and read by their ids. The
            # counts have the others; those of a queue that are in another one are counted.
            is_moved = '"original_queue" IS NOT NULL' in sql
            index = "ojs_job_original_queue" if is_moved else "ojs_job_dead"
            assert ("ojs_job_pkey" if '"ojs_job"."id" IN (' in sql else index) in plan
