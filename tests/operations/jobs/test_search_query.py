"""The search parser: a text becomes a filter, and errors for what cannot be parsed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.search_query import MAX_LENGTH, parse, qualifiers, render
from django_ojs.spec.states import State
from django_ojs.storage.dialects.json_contains import JSONMatch
from tests.cases import together

MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)
KEY = UUID("01a1fc00-0000-7000-8000-000000000001")


def held(column: Any, path: str, *values: Any) -> dict[str, Any]:
    return {"held": (JSONMatch(column=column, path=tuple(path.split(".")), values=values),)}


@together(
    ("text", "values"),
    [
        ("", {}),
        ("   ", {}),
        ("state:retryable", {"states": (State.RETRYABLE,)}),
        ("state:Available,scheduled", {"states": (State.AVAILABLE, State.SCHEDULED)}),
        ("queue:email type:email.*", {"queue": "email", "type": "email.*"}),
        ("type:email.send", {"type": "email.send"}),
        ("email", {"type": "email*"}),
        (str(KEY), {"ids": (KEY,)}),
        (f"id:{KEY}", {"ids": (KEY,)}),
        ("tag:vip tag:new", {"tags": ("vip", "new")}),
        ('tag:"two words"', {"tags": ("two words",)}),
        ('error:"card was \\"declined\\""', {"error": 'card was "declined"'}),
        ('error:"never closed', {"error": "never closed"}),
        ("error:https://x", {"error": "https://x"}),
        ("error_type:Boom is:dead", {"error_type": "Boom", "dead_letter": True}),
        ("args.user_id:42", held("args", "user_id", 42, "42")),
        ('args.user_id:"42"', held("args", "user_id", "42")),
        ("args.0:-1.5", held("args", "0", -1.5, "-1.5")),
        ("meta.tenant_id:acme", held("meta", "tenant_id", "acme")),
        ("meta.a.b:true", held("meta", "a.b", True, "true")),
        ("created:<2h", {"since": NOW - timedelta(hours=2)}),
        ("created:>2h", {"until": NOW - timedelta(hours=2)}),
        ("ended:<1w", {"ended_since": NOW - timedelta(weeks=1)}),
        ("created:>2026-01-31", {"since": datetime(2026, 1, 31, tzinfo=UTC)}),
        ("created:<2026-01-31T10:00+02:00", {"until": datetime(2026, 1, 31, 8, tzinfo=UTC)}),
        ("created:<=2026-01-31", {"until": datetime(2026, 2, 1, tzinfo=UTC)}),
        (
            'created:"2026-01-31 10:05"',
            {
                "since": datetime(2026, 1, 31, 10, 5, tzinfo=UTC),
                "until": datetime(2026, 1, 31, 10, 6, tzinfo=UTC),
            },
        ),
        ("priority:-5 worker:web-1", {"priority": -5, "worker_id": "web-1"}),
        ("queue:a,b", {"queues": ("a", "b")}),
        ("queue:a,", {"queue": "a"}),
        ("-queue:a -queue:b,c", {"not_queues": ("a", "b", "c")}),
        ("-type:a.b host:web-1", {"not_types": ("a.b",), "host": "web-1"}),
        (
            "-state:completed",
            {
                "states": tuple(each for each in State if each != "completed"),
                "states_excluded": True,
            },
        ),
        ("ran:>10s", {"ran_over": timedelta(seconds=10)}),
        ("ran:<1.5s", {"ran_under": timedelta(milliseconds=1500)}),
        ("waited:>1m waited:<2h", {"waited_over": MINUTE, "waited_under": 120 * MINUTE}),
        ("attempt:>1", {"attempts_from": 2}),
        ("attempt:<=999999", {"attempts_to": 999_999}),
        ("attempt:>999999", {"attempts_from": 1_000_000}),
        ("attempt:<0", {"attempts_to": -1}),
        (
            "retried_by:12 state:discarded",
            {"by_extensions": (("retried_by", "12"),), "states": (State.DISCARDED,)},
        ),
        ("attempt:=3", {"attempts_from": 3, "attempts_to": 3}),
        (f"parent:{KEY}", {"parent_id": KEY}),
        (f"workflow:{KEY}", {"workflow_id": KEY}),
    ],
)
def test_a_text_is_read_as_a_filter_and_written_as_one(text: str, values: dict[str, Any]) -> None:
    query = parse(text, now=NOW)
    assert query.errors == []
    assert query.filter is not None
    assert query.filter == JobFilter(**values)
    assert parse(render(query.filter)).filter == query.filter


@pytest.mark.parametrize(
    ("day", "begins", "ends"),
    [
        ("2026-11-18", "2026-11-17T23:00Z", "2026-11-18T23:00Z"),
        ("2026-10-25", "2026-10-24T22:00Z", "2026-10-25T23:00Z"),  # 25 hours.
    ],
)
def test_a_day_is_the_day_of_the_zone_that_the_pages_show(day: str, begins: str, ends: str) -> None:
    with timezone.override("Europe/Berlin"):
        found = parse(f"created:{day}").filter
    assert found == JobFilter(
        since=datetime.fromisoformat(begins), until=datetime.fromisoformat(ends)
    )


@together(
    ("text", "said"),
    [
        ("colour:red", "There is no qualifier colour. Did you mean meta.colour:red or"),
        ("queue.x:y", "There is no qualifier queue.x"),
        (f"{'x' * 50}:1", "There is no qualifier this"),
        ("tenant_id:acme", "Did you mean meta.tenant_id:acme or args.tenant_id:acme?"),
        ("queu:email", "Did you mean queue:email?"),
        ("user2666@example.com", "args.NAME:user2666@example.com or meta.NAME:user2666"),
        ("HTTP502", "To search in errors: error:HTTP502"),
        ("state:failed", "There is no state failed. Did you mean discarded? The states are"),
        ("state:running", "Did you mean active?"),
        ("state:completd", "Did you mean completed?"),
        ("queue:a queue:b", "queue is given twice"),
        ("created:<2h created:2026-01-31", "created is given twice"),
        ("created:2026-02-30", "there is no such time as 2026-02-30"),
        ("id:,", "id takes 1 to 100 ids"),
        ("state:,", "state must be one of"),
        ("queue:UPPER", "queue"),
        ("queue:\x00", "printable"),
        ("type:Not-A-Type", "type"),
        ("id:42", "id must be the complete id"),
        ("created:soon", "created must be an age"),
        ("created:>999999w", "there is no such time"),
        ("created:>0001-01-01T00:00+23:59", "there is no such time"),
        ("priority:1e3", "priority must be an integer"),
        ("priority:101", "priority must be an integer"),
        ("meta:acme", "meta needs a path"),
        ("args..x:1", "args needs a path"),
        ("is:gone", "is:dead"),
        ("workflow:12", "workflow must be the complete id of a workflow"),
        ("parent:12", "parent must be the complete id of a job"),
        ("retried_by:#12", "retried_by must be the number of a bulk operation"),
        ("ran:10s", "ran must be a duration such as ran:>10s"),
        ("waited:>1w", "waited must be a duration"),
        ("ran:>99999999d", "ran takes at most 10000 days"),
        ("ran:>1s ran:>2s", "ran is given twice"),
        ("attempt:two", "attempt must be a number"),
        ("attempt:>1 attempt:3", "attempt is given twice"),
        ("queue:a queue:b,c", "queue is given twice"),
        ("queue:a,UPPER", "queue"),
        ("-queue:,", "-queue needs a name"),
        ("-tag:vip", "Only queue, state and type can be excluded, as in -queue:email"),
        ("-state:nope", "There is no state nope"),
        (f"-state:{','.join(State)}", "-state excludes every state"),
        ("x" * (MAX_LENGTH + 1), "at most"),
    ],
)
def test_what_cannot_be_read_is_said_and_there_is_no_filter(text: str, said: str) -> None:
    query = parse(f"priority:3 {text}" if len(text) < MAX_LENGTH else text, now=NOW)
    assert len(query.errors) == 1
    assert said in query.errors[0]
    assert query.filter is None


def test_the_complaint_about_a_qualifier_names_all_there_are() -> None:
    (said,) = parse("colour:red").errors
    assert all(name in said for name in qualifiers())


@given(st.text(max_size=80))
def test_every_text_has_a_filter_or_errors(text: str) -> None:
    query = parse(text, now=NOW)
    assert (query.filter is None) == bool(query.errors)
    if query.filter is not None:
        assert parse(render(query.filter)).filter == query.filter
