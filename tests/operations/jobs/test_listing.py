"""Pages of jobs in the order of an index: nothing twice, nothing missing, and no endless look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from django_ojs.models import Job
from django_ojs.operations import fail, queues
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import about, count, index_scans, list_jobs
from django_ojs.operations.keyset import PageRequest
from django_ojs.spec import ids
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import State
from django_ojs.storage.dialects.json_contains import JSONMatch
from tests.cases import together
from tests.factories import (
    BOOM,
    HOUR,
    MINUTE,
    active,
    age,
    hourly,
    in_state,
    jobs,
    push,
    push_many,
    read,
)

pytestmark = pytest.mark.django_db


def pages(which: JobFilter, **values: Any) -> list[list[Job]]:
    """Turn over all pages, to their end and back."""
    wanted = PageRequest(limit=values.pop("limit", 50))
    found = [list_jobs(which, wanted, **values)]
    while found[-1].after is not None:
        assert len(found) < 50, "The pages have no end."
        found.append(list_jobs(which, replace(wanted, cursor=found[-1].after), **values))
    back: list[Job] = []
    page = found[-1]
    while page.before is not None:
        page = list_jobs(which, replace(wanted, cursor=page.before, backwards=True), **values)
        back = page.rows + back
    assert back + found[-1].rows == [job for each in found for job in each.rows]
    return [each.rows for each in found]


def some(state: State, count: int = 7) -> list[Job]:
    made = []
    for n in range(count):
        job = in_state(state, queue="q", priority=n % 3 if state is State.AVAILABLE else 0)
        age(job.pk, n % 4 * MINUTE)
        made.append(job)
    return made


@together("state", list(State), undo=True)
@together("queue", [None, "q"], undo=True)
def test_each_state_is_turned_over_whole_in_its_order(state: State, queue: str | None) -> None:
    made = {job.pk for job in some(state)}
    in_state("scheduled" if state != "scheduled" else "retryable", queue="other")
    which = JobFilter(states=(state,), queue=queue)
    turned = pages(which, limit=3)
    keys = [job.pk for page in turned for job in page]
    assert len(turned) == 3
    assert sorted(keys) == sorted(made)
    order = index_scans(which)[0].order
    ordered = jobs().filter(pk__in=made).order_by(*order)
    assert keys == [job.pk for job in ordered]


def test_discarded_jobs_and_dead_letters_are_in_one_order() -> None:
    made = []
    for n in range(8):
        job = in_state(
            "discarded", retry=hourly(1, on_exhaustion="discard" if n % 2 else "dead_letter")
        )
        age(job.pk, n % 3 * MINUTE)
        made.append(job.pk)
    assert 0 < jobs().filter(dead_letter=True).count() < 8
    keys = [job.pk for page in pages(JobFilter(states=(State.DISCARDED,)), limit=3) for job in page]
    assert keys == [job.pk for job in jobs().order_by("-finished_at", "-pk")]
    dead = [job.pk for page in pages(JobFilter(dead_letter=True), limit=2) for job in page]
    assert dead == [key for key in keys if jobs().get(pk=key).dead_letter]


def test_a_look_ends_and_says_where_to_go_on() -> None:
    (rare,) = push_many(1, queue="rare")
    push_many(9, queue="common")
    found = list_jobs(JobFilter(queue="rare"), scan_limit=4)
    assert (found.rows, found.scanned) == ([], 4)
    assert found.after is not None
    assert [job.pk for page in pages(JobFilter(queue="rare"), scan_limit=4) for job in page] == [
        rare.pk
    ]
    assert count(JobFilter(type="test.job"), scan_limit=4) == (4, True)
    assert count(JobFilter(type="test.job")) == (10, False)
    assert count(JobFilter(queue="rare"), scan_limit=4) == (1, False)


def test_two_ways_that_end_in_different_places_lose_nothing() -> None:
    for n in range(12):
        job = in_state(
            "discarded",
            queue="q",
            retry=hourly(1, on_exhaustion="dead_letter" if n < 9 else "discard"),
        )
        age(job.pk, (n * 7 % 12) * MINUTE)
    which = JobFilter(states=(State.DISCARDED,), queue="q", error_type=BOOM.type)
    keys = [job.pk for page in pages(which, limit=2, scan_limit=3) for job in page]
    assert keys == [job.pk for job in jobs().order_by("-finished_at", "-pk")]


ARGS: list[Any] = [
    "x@example.com",
    {"user_id": 42, "vip": True, "name": "Ann", "none": None, "list": [5, [6]]},
    [7, [8, "in a list"], {"deep": 9, "none": None}, False],
    'é "\\" \U0001f600',
    1.0,
]
META = {"tenant_id": "acme", "deep": {"er": 1.5}, "text": "42", "list": [5, {"er": 6}]}


@together(
    ("column", "path", "values", "found"),
    [
        ("args", "user_id", (42, "42"), True),
        ("args", "user_id", ("42",), False),
        ("args", "user_id", (4,), False),
        ("args", "vip", (True,), True),
        ("args", "vip", (1,), False),
        ("args", "none", (None,), True),
        ("args", "name", ("Ann",), True),
        ("args", "0", ("x@example.com",), True),
        ("args", "1", ("x@example.com",), False),
        ("args", "1.user_id", (42,), True),
        ("args", "9", ("x",), False),
        ("args", "", ("x@example.com",), True),
        ("args", "", ('é "\\" \U0001f600',), True),
        ("args", "3", ('é "\\" \U0001f600',), True),
        ("args", "", (1,), True),
        ("args", "", (True,), False),
        # What is in a list is not what the argument, or the member, is.
        ("args", "", (7,), False),
        ("args", "", ("in a list", 8), False),
        ("args", "", (False,), False),
        ("args", "2", (7,), False),
        ("args", "deep", (9,), False),
        ("args", "2.deep", (9,), False),
        ("args", "list", (5,), False),
        ("args", "list", (6,), False),
        ("args", "1.list", (5,), False),
        ("meta", "list", (5,), False),
        ("meta", "list.er", (6,), False),
        ("meta", "tenant_id", ("acme",), True),
        ("meta", "tenant_id", ("acm",), False),
        ("meta", "deep.er", (1.5,), True),
        ("meta", "text", (42, "42"), True),
        ("meta", "text", (42,), False),
        ("meta", "missing", (None,), False),
        ("meta", "' OR 1=1 --", ("x",), False),
        ("meta", "%s", ("%s",), False),
        ("tags", "", ("vip",), True),
        ("tags", "", ("vi",), False),
    ],
    undo=True,
)
def test_what_a_job_holds_is_found_by_path_and_kind(
    column: Any, path: str, values: tuple[Any, ...], found: bool
) -> None:
    job = push(args=ARGS, meta=META, tags=("new", "vip"))
    push(args=[], meta={})
    keys = tuple(path.split(".")) if path else ()
    which = JobFilter(held=(JSONMatch(column=column, path=keys, values=values),))
    assert [each.pk for each in list_jobs(which).rows] == ([job.pk] if found else [])


def test_other_words_of_a_filter_find_their_jobs() -> None:
    failed = in_state("retryable")
    other = push(tags=("vip",), args=[1])
    for which, job in (
        (JobFilter(error="it BROKE"), failed),
        (JobFilter(error=BOOM.type), failed),
        (JobFilter(error="%"), None),
        (JobFilter(tags=("vip",)), other),
        (JobFilter(ids=(other.pk,)), other),
        (JobFilter(ids=(other.pk,), queue=failed.queue), None),
    ):
        assert list_jobs(which).rows == ([] if job is None else [job])


def test_a_look_for_old_jobs_begins_where_they_are() -> None:
    old = [ids.uuid7(), ids.uuid7()]
    day = 24 * HOUR
    made = read(push().pk).created_at
    for index, key in enumerate(old):
        # As a client made them, three days ago.
        then = int((made - 3 * day).timestamp() * 1000) + index
        key = UUID(int=then << 80 | key.int & ((1 << 80) - 1))
        push(id=key)
        age(key, 3 * day)
        old[index] = key
    push_many(9)
    found = list_jobs(JobFilter(until=made - 2 * day), scan_limit=4)
    assert [job.pk for job in found.rows] == old[::-1]
    ended = [in_state("completed").pk for _ in range(6)]
    age(ended[0], day)
    which = JobFilter(states=(State.COMPLETED,), ended_until=made - HOUR)
    assert [job.pk for job in list_jobs(which, scan_limit=4).rows] == ended[:1]


def test_a_queue_with_a_limit_of_its_own_is_read_in_the_order_of_its_claims() -> None:
    which = JobFilter(states=(State.AVAILABLE,), queue="limited")
    without = index_scans(which, in_steps=True)
    queues.configure("limited", {"concurrency": 1})
    assert index_scans(which, in_steps=True) == without
    push(queue="limited", rate_limit={"key": "k", "concurrency": 1})
    assert index_scans(which, in_steps=True) != without


def test_a_scan_of_discarded_jobs_reads_dead_letters_too() -> None:
    for kind in ("dead_letter", "discard"):
        job = active(retry=RetryPolicy(max_attempts=1, on_exhaustion=kind))
        fail.fail(job.id, BOOM)
    discarded = JobFilter(states=(State.DISCARDED,))
    assert (about(discarded), about(replace(discarded, dead_letter=True))) == (2, 1)
