"""Lists of jobs: what they hold, in which order, how many there are, and at what cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.models import Job
from django_ojs.operations import ack
from django_ojs.operations.jobs import numbered_pages
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.states import State
from tests.cases import together
from tests.factories import (
    HOUR,
    MINUTE,
    active,
    age,
    ids_against_time,
    in_state,
    jobs,
    push,
    push_many,
    read,
    until_later,
)

pytestmark = [pytest.mark.django_db, pytest.mark.requirement("ADM-003")]


def keys(page: Page[Job]) -> list[UUID]:
    return [job.pk for job in page.rows]


def find(*, page: int = 1, per_page: int = 20, **values: Any) -> list[UUID]:
    order = {name: values.pop(name) for name in ("sort", "descending") if name in values}
    wanted = PageRequest(limit=per_page, offset=(page - 1) * per_page)
    return keys(numbered_pages.read(JobFilter(**values), wanted, **order))


def in_turn(number: int, **values: Any) -> list[UUID]:
    """Push jobs a minute apart, the first the oldest, under ids that say the opposite."""
    made = [push(id=key, **values).pk for key in ids_against_time(number)]
    for n, key in enumerate(reversed(made)):
        age(key, n * MINUTE)
    return made


def test_the_newest_job_comes_first_whatever_the_ids_say() -> None:
    made = in_turn(5)
    assert find() == list(reversed(made))
    assert find(descending=False) == made


@together("state", list(State), undo=True)
def test_a_state_selects_its_jobs_and_counts_them(state: State) -> None:
    job = in_state(state)
    others = [other for other in State if other is not state]
    for other in others:
        in_state(other)
    found = numbered_pages.read(JobFilter(states=(state,)))
    assert keys(found) == [job.pk]
    assert found.count() == (1, False)
    some = numbered_pages.read(JobFilter(states=tuple(others)))
    assert (some.total, job.pk in keys(some)) == (7, False)


def test_a_type_is_exact_or_the_beginning_of_some() -> None:
    send, bounce, mail = (
        push(type=name).pk for name in ("email.send", "email.bounce", "email_x.send")
    )
    assert find(type="email.send") == [send]
    assert set(find(type="email.*")) == {send, bounce}
    assert set(find(type="email_*")) == {mail}
    assert len(find(type="*")) == 3


def test_since_belongs_to_the_range_and_until_does_not() -> None:
    old, middle, new = in_turn(3)
    at = read(middle).created_at
    assert find(since=at) == [new, middle]
    assert find(until=at) == [old]
    assert find(since=at, until=at + timedelta(seconds=1)) == [middle]


def test_since_finds_finished_jobs_by_their_creation() -> None:
    claimed = active()
    until_later()
    job = ack.ack(claimed.id)
    assert find(states=(State.COMPLETED,), since=job.created_at) == [job.pk]
    assert find(states=(State.COMPLETED,), since=job.created_at + MINUTE) == []


def test_the_time_a_job_ended_is_another_bound() -> None:
    old, new = in_state("completed"), in_state("completed")
    age(old.pk, HOUR)
    at = read(new.pk).finished_at - MINUTE  # type: ignore[operator]  # it has ended
    assert find(ended_until=at) == [old.pk]
    assert find(ended_since=at) == [new.pk]


def test_priority_error_type_and_dead_letter_select_too() -> None:
    dead = in_state("discarded")
    high = push(priority=7)
    assert find(priority=7) == [high.pk]
    assert find(error_type="Boom") == [dead.pk]
    assert find(error_type="Bang") == []
    assert find(dead_letter=True) == [dead.pk]


def test_whoever_is_kept_to_queues_sees_no_others() -> None:
    mine = push(queue="mine")
    push(queue="theirs")
    found = numbered_pages.read(JobFilter(within=frozenset({"mine"})))
    assert (keys(found), found.total) == ([mine.pk], 1)
    assert numbered_pages.read(JobFilter(queue="theirs", within=frozenset({"mine"}))).total == 0
    assert numbered_pages.read(JobFilter(within=frozenset())).total == 0
    assert find(type="*", within=frozenset({"mine"})) == [mine.pk]


def test_scheduled_jobs_are_sorted_by_the_time_they_are_due() -> None:
    late, early = push(scheduled_at=2 * HOUR).pk, push(scheduled_at=HOUR).pk
    never = push().pk
    assert find(sort="scheduled_at", descending=False) == [early, late, never]
    assert find(sort="scheduled_at") == [late, early, never]
    assert find(sort="scheduled_at", states=(State.SCHEDULED,)) == [late, early]


@pytest.mark.parametrize("values", [{}, {"queue": "p"}, {"queue": "p", "states": ("available",)}])
def test_priorities_sort(values: dict[str, Any]) -> None:
    if "states" in values:
        values = values | {"states": (State.AVAILABLE,)}
    low, high, middle = (push(queue="p", priority=n).pk for n in (-5, 5, 0))
    assert find(sort="priority", **values) == [high, middle, low]
    assert find(sort="priority", descending=False, **values) == [low, middle, high]


def test_a_total_that_is_counted_by_looking_ends_at_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numbered_pages, "WINDOW", 3)
    push_many(3, queue="w", type="a.b")
    found = numbered_pages.read(JobFilter(type="a.b"))
    assert found.count() == (3, False)
    push_many(2, queue="w", type="a.b")
    for sort in numbered_pages.SORTS:
        found = numbered_pages.read(JobFilter(type="a.b"), sort=sort)
        assert found.count() == (3, True)
    found = numbered_pages.read(JobFilter(queue="w"))
    assert found.count() == (5, False)


@pytest.mark.parametrize("per_page", [1, 2, 3, 4])
def test_beyond_the_window_no_job_is_left_out_or_shown_twice(
    monkeypatch: pytest.MonkeyPatch, per_page: int
) -> None:
    monkeypatch.setattr(numbered_pages, "WINDOW", 3)
    made = in_turn(8)
    pages = [find(page=page, per_page=per_page) for page in range(1, 10)]
    assert sorted(key for page in pages for key in page) == sorted(made)


@pytest.mark.statements
def test_a_list_reads_no_arguments_and_looks_twice_at_most() -> None:
    push_many(5, queue="w")
    with CaptureQueriesContext(connection) as queries:
        numbered_pages.read(JobFilter(queue="w"))
    about_jobs = [query["sql"] for query in queries if '"ojs_job"' in query["sql"]]
    assert len(about_jobs) == 2
    assert not any('"args"' in sql or '"meta"' in sql for sql in about_jobs)


def test_an_empty_list_does_not_look_at_the_jobs() -> None:
    with CaptureQueriesContext(connection) as queries:
        numbered_pages.read(JobFilter(queue="nothing", states=(State.COMPLETED,)))
    assert not any('"ojs_job"' in query["sql"] for query in queries)


@together(
    ("values", "field"),
    [
        ({"queue": "UPPER"}, "queue"),
        ({"queue": "nul\0"}, "queue"),
        ({"type": "Upper.case"}, "type"),
        ({"type": "no%wild*"}, "type"),
        ({"type": "*.send"}, "type"),
        ({"type": "nul\0*"}, "type"),
        ({"type": "a" * 300 + "*"}, "type"),
        ({"error_type": "nul\0"}, "error_type"),
        ({"error_type": ""}, "error_type"),
    ],
    undo=True,
)
def test_a_filter_that_can_match_nothing_is_rejected(values: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        JobFilter(**values)  # type: ignore[arg-type]


@pytest.mark.postgresql
def test_a_page_of_a_queue_a_state_or_of_dead_letters_reads_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first page never reads the whole table."""
    # The window is to the table what it is on a site with some million jobs.
    monkeypatch.setattr(numbered_pages, "WINDOW", 200)
    with connection.cursor() as cursor:
        cursor.execute(FILL)
        cursor.execute("ANALYZE ojs_job")
    filters = [
        JobFilter(queue=queue, states=(state,))
        for queue in (None, "busy")
        for state in (State.AVAILABLE, State.COMPLETED, State.DISCARDED, State.SCHEDULED)
    ]
    dead = JobFilter(states=(State.DISCARDED,), dead_letter=True)
    for which, sort in [*((each, "created_at") for each in filters), (dead, "discarded_at")]:
        with CaptureQueriesContext(connection) as queries:
            found = numbered_pages.read(which, PageRequest(limit=20), sort=sort)
        assert len(found.rows) == 20, which
        explained = [plan(query["sql"]) for query in queries if '"ojs_job"' in query["sql"]]
        assert len(explained) >= 2, which
        for text in explained:
            assert "Seq Scan on ojs_job" not in text, (which, text)


def plan(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + sql)
        return "\n".join(row[0] for row in cursor.fetchall())


# One in twenty jobs waits; the rest have ended, a few of them badly.
FILL = """
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, due_at, finished_at, dead_letter)
SELECT (lpad(to_hex(n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid, 'a.b',
       CASE WHEN n % 3 = 0 THEN 'busy' ELSE 'q' || n % 20 END, state, 0, '[]', '{}', '{}', 0, 3,
       0, 0, now(), now(), CASE WHEN state = 'scheduled' THEN now() END,
       CASE WHEN state IN ('completed', 'discarded') THEN now() END, state = 'discarded'
FROM (SELECT n, CASE n % 20 WHEN 0 THEN 'available' WHEN 1 THEN 'scheduled' WHEN 2 THEN 'discarded'
                ELSE 'completed' END AS state FROM generate_series(1, 40000) AS n) AS made
"""


def test_what_is_shown_are_fields_of_a_job() -> None:
    assert set(numbered_pages.LISTED_FIELDS) <= {field.name for field in Job._meta.concrete_fields}
    assert jobs().count() == 0
