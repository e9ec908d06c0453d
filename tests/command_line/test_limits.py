"""`manage.py ojs limits`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.limits import limit_keys
from django_ojs.operations import fail, fetch
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.failure import Failure
from django_ojs.spec.times import format_timestamp, parse_timestamp
from tests.command_line.run import ojs as run
from tests.factories import WORKER, WorkerFactory, jobs_of_key, push, push_limited, push_many

pytestmark = pytest.mark.django_db


def claim() -> list[str]:
    found = fetch.fetch(["carrier"], count=100, worker_id=WORKER)
    return sorted(job.options["rate_limit"]["key"] for job in found)


@pytest.mark.both
def test_an_operator_finds_what_a_key_holds_back_pauses_it_and_lets_it_go() -> None:
    assert "No limit key is at its limit" in run("limits", "list").out
    assert run("limits", "list", "--all").out == "There are no limit keys.\n"
    assert "There are no limit keys." in run("limits", "show", "carrier").err
    WorkerFactory()
    push_limited("carrier:7", 5, concurrency=2)
    push_limited("free", 1, concurrency=9)
    assert claim() == ["carrier:7", "carrier:7", "free"]
    push_limited("free", 1, concurrency=9)
    # Only what holds jobs back, unless all are asked for.
    lines = run("limits", "list").out.splitlines()
    assert len(lines) == 2, lines
    assert lines[1].split()[:8] == ["carrier:7", "2", "at", "the", "same", "time", "2", "3"]
    assert " concurrency " in lines[1]
    listed = run("limits", "list", "--all", "--json").json
    assert [(each["key"], each["active"], each["waiting"]) for each in listed["limits"]] == [
        ("carrier:7", 2, 3),
        ("free", 1, 1),
    ]
    assert listed["total"] == 2
    assert "The first 1 of 2" in run("limits", "list", "--all", "--limit", 1).out

    # One that is paused starts nothing, and is listed.
    misspelt = run("limits", "pause", "fre")
    assert (misspelt.code, "Did you mean free?" in misspelt.err) == (2, True)
    assert "No job of free starts before 2" in run("limits", "pause", "free", "--for", "30m").out
    assert claim() == []
    # A job that is due before the end of the pause waits for it too.
    for minutes in (10, 50):
        at = timezone.now() + timedelta(minutes=minutes)
        push(queue="carrier", rate_limit={"key": "free", "concurrency": 9}, scheduled_at=at)
    (shown,) = run("limits", "show", "free", "--json").json["limits"]
    left = parse_timestamp(shown["paused_until"], "at") - timezone.now()
    assert timedelta(minutes=20) < left < timedelta(minutes=40)
    assert shown["waiting"] == 2
    shorter = run("limits", "pause", "free", "--for", "1m", "--json").json["limits"]
    assert shorter[0]["paused_until"] == shown["paused_until"]
    text = run("limits", "show", "free", "carrier:7").out
    assert "manage.py ojs limits resume free" in text
    assert "resume carrier:7" not in text
    assert "concurrency, since 2" in text
    assert "free" in run("limits", "list").out
    resumed = run("limits", "resume", "free", "carrier:7").out
    assert "The pause of free is over" in resumed
    assert "carrier:7 is not paused." in resumed
    assert claim() == ["free"]

    # A pause that is over when it is shown has no end to name.
    assert "before ." not in run("limits", "pause", "free", "--for", "1ms").out

    # The job that says that its service rejects calls waits for the end of the pause as well.
    until = format_timestamp(timezone.now() + timedelta(hours=2))
    running = jobs_of_key("carrier:7").filter(state="active").first()
    assert running is not None
    fail.fail(running.pk, Failure.parse({"type": "Busy", "rate_limit_until": until}))
    (shown,) = run("limits", "show", "carrier:7", "--json").json["limits"]
    assert (shown["active"], shown["waiting"]) == (1, 4)

    limit_keys.override("free", {"concurrency": 0}, until=timezone.now() + timedelta(hours=1))
    assert "0 at the same time, until 2" in run("limits", "show", "free").out
    assert "free" in run("limits", "list").out
    # Who did it is in the audit trail; the event about pauses is for those of handlers.
    trail = AuditEntry.objects.filter(object_type="limit_key").order_by("pk")
    assert [entry.action for entry in trail][:2] == ["limit_key.paused", "limit_key.opened"]
    (event,) = Event.objects.filter(type="rate_limit.dynamic_adjusted")
    assert event.subject == "carrier:7"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="reads a plan of PostgreSQL")
def test_a_key_is_counted_by_an_index_where_most_jobs_are_those_of_another_one() -> None:
    at = timezone.now() + timedelta(minutes=10)
    of_other = {"key": "other", "concurrency": 9}
    push_many(2_000, queue="carrier", rate_limit=of_other, scheduled_at=at)
    limit_keys.override("few", {"concurrency": 1})
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ojs_job")
        with CaptureQueriesContext(connection) as captured:
            assert limit_keys.get("few").waiting == 0
        (counting,) = [each["sql"] for each in captured if "AS later" in each["sql"]]
        cursor.execute("EXPLAIN " + counting)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan on ojs_job" not in plan, plan


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pause"], "Name a limit key"),
        (["list", "a"], "limits show KEY"),
        (["pause", "a", "--for", "90d"], "at most 31 days"),
        (["show", "a" * 300], "at most"),
    ],
)
def test_arguments_that_are_wrong(arguments: list[str], said: str) -> None:
    push_limited("a", 1, concurrency=1)
    done = run("limits", *arguments)
    assert done.code == 2
    assert said in done.err


@pytest.mark.once
def test_a_pause_of_no_time_names_the_field_and_its_bounds() -> None:
    for seconds in (0, -1):
        with pytest.raises(
            InvalidRequest, match="duration must be more than 0 and at most 31 days"
        ):
            limit_keys.pause(["a"], timedelta(seconds=seconds))
