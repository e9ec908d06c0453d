"""Searches by duration, attempts, host and excluded names, and what they may read."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.workflows.models import WorkflowStep
from django_ojs.models import BulkOperationJob, Job
from django_ojs.operations import cancel, run_now
from django_ojs.operations.jobs import filter_json
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import count, list_jobs
from django_ojs.operations.jobs.search_hints import unknown_name
from django_ojs.operations.jobs.search_query import parse
from django_ojs.spec import ids
from django_ojs.spec.states import State
from tests import factories
from tests.factories import HOUR, MINUTE, active, age, hourly, in_state, jobs, push, read
from tests.model_factories import BulkOperationFactory

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)


def found(text: str) -> set[Any]:
    which = parse(text).filter
    assert which is not None
    assert filter_json.read(json.loads(json.dumps(filter_json.render(which)))) == which
    listed = {job.pk for job in list_jobs(which).rows}
    assert count(which) == (len(listed), False)
    return listed


def times(job: Job, *, waited: timedelta, ran: timedelta | None = None) -> None:
    """Let a job have waited and run so long."""
    row = jobs().filter(pk=job.pk)
    row.update(started_at=F("enqueued_at") + waited)
    if ran is not None:
        row.update(finished_at=F("enqueued_at") + waited + ran)


def test_jobs_are_found_by_how_long_they_ran_and_waited() -> None:
    quick, slow = in_state("completed"), in_state("completed")
    times(quick, waited=SECOND / 2, ran=2 * SECOND)
    times(slow, waited=2 * MINUTE, ran=11 * SECOND)
    failed = in_state("discarded")
    times(failed, waited=3 * MINUTE, ran=20 * SECOND)
    assert found("ran:>10s") == {slow.pk, failed.pk}
    assert found("ran:>10s ran:<15s") == {slow.pk}
    assert found("ran:>10s state:discarded") == {failed.pk}
    assert found("ran:<2.5s") == {quick.pk}
    assert found("ran:<2000ms") == set()
    assert found("waited:>1m") == {slow.pk, failed.pk}
    assert found("waited:<1m state:completed") == {quick.pk}


def test_what_still_runs_or_waits_counts_until_now() -> None:
    running, waiting, fresh = in_state("active"), push(), push()
    age(fresh.pk, MINUTE)
    jobs().filter(pk=running.pk).update(
        started_at=F("started_at") - HOUR, enqueued_at=F("enqueued_at") - HOUR
    )
    jobs().filter(pk=waiting.pk).update(enqueued_at=F("enqueued_at") - HOUR)
    assert found("ran:>59m") == {running.pk}
    assert found("waited:>59m") == {waiting.pk}
    assert found("waited:<59m") == {running.pk, fresh.pk}


def test_a_time_that_is_not_that_of_a_run_is_not_found() -> None:
    # Its last run was long before it ended: it waited for a retry, then was cancelled or expired.
    cancelled, expired = in_state("retryable", retry=hourly(3)), in_state("discarded")
    cancel.cancel(cancelled.pk)
    jobs().filter(pk=expired.pk).update(discard_reason="expired")
    jobs().update(started_at=F("started_at") - HOUR)
    assert found("ran:>1m") == set()
    # Available again: it started before it became available.
    again = in_state("retryable", retry=hourly(3))
    run_now.run_now(again.pk)
    cancel.cancel(again.pk)
    assert read(again.pk).started_at is not None
    assert again.pk not in found("waited:<1h")


def test_attempts_are_those_that_were_spent() -> None:
    made = []
    for attempt, returned in ((1, 0), (3, 1), (3, 0)):
        job = in_state("completed")
        jobs().filter(pk=job.pk).update(attempt=attempt, returned=returned)
        made.append(job.pk)
    assert found("attempt:>1") == set(made[1:])
    assert found("attempt:2") == {made[1]}
    assert found("attempt:<=2") == set(made[:2])
    assert found("attempt:>1 attempt:<3") == {made[1]}
    assert found("attempt:<1") == set()


def test_names_are_several_or_excluded() -> None:
    a, b, c = (push(queue=name, type=f"type.{name}").pk for name in "abc")
    assert found("queue:a,b") == {a, b}
    assert found("-queue:a") == {b, c}
    assert found("-queue:a,b") == found("-queue:a -queue:b") == {c}
    assert found("-type:type.a queue:a,b") == {b}
    done = in_state("completed").pk
    assert found("-state:available,scheduled") == {done}


def test_a_host_is_that_of_a_registered_worker() -> None:
    for name, host in (("one", "web-1"), ("two", "web-2")):
        factories.WorkerFactory(id=name, hostname=host)
    mine, _ = active("one"), active("two")
    assert found("host:web-1") == {mine.id}
    assert unknown_name(JobFilter(host="web-1")) is None
    hint = unknown_name(JobFilter(host="wbe-1"))
    assert hint is not None
    assert "Did you mean web-1? The hosts are web-1, web-2." in hint
    several = unknown_name(JobFilter(queues=("q-1", "no-such")))
    assert several is not None
    assert "There is no queue q-1." in several


#: Rows of each state, few of them active as on any site. Each combination of values exists.
#: Discarded jobs that are no dead letters are fewer than a scan reads, and fewer than PostgreSQL
#: expects. Jobs ended in another order than that of the table, so PostgreSQL expects their index to
#: be slow.
_FILL = """
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, due_at, started_at, lease_until,
                     finished_at, worker_id, dead_letter)
SELECT (lpad(to_hex(n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid,
       'type.t' || n / 40 % 3, 'q' || n / 8 % 4, state, 0, '[]', '{}', '{}', 1 + n / 8 % 5, 9,
       0, 1, now(), now() - interval '1 hour', CASE WHEN state IN ('scheduled', 'retryable')
       THEN now() + n * interval '1 second' END,
       now() - interval '1 hour' + n / 8 % 7 * interval '1 minute',
       CASE WHEN state = 'active' THEN now() END,
       CASE WHEN state IN ('completed', 'cancelled', 'discarded')
       THEN now() - n * 7919 % 24000 * interval '1 second' END,
       'w' || n / 8 % 9, state = 'discarded' AND n / 8 % 60 > 0
FROM (SELECT n, (ARRAY['scheduled', 'available', 'pending', 'active', 'retryable', 'completed',
                       'cancelled', 'discarded'])[1 + n % 8] AS state
      FROM generate_series(1, 24000) AS n WHERE n % 8 <> 3 OR n % 400 = 3) AS made
"""
_LIMIT = 100


def rows_read(statement: str) -> float:
    """Return the number of rows of the largest scan of the jobs."""
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement.replace("%", "%%"), [])
        ((explained,),) = cursor.fetchall()
    return max(
        (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]
        for scan in scans(explained[0]["Plan"])
    )


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [scan for child in plan.get("Plans", ()) for scan in scans(child)]
    return [plan, *inner] if plan.get("Relation Name") == "ojs_job" else inner


@pytest.mark.postgresql
def test_no_state_and_qualifier_reads_more_than_the_scan_limit() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FILL)
        cursor.execute("ANALYZE ojs_job")
        # Of a large table it scans all rows by several processes instead.
        cursor.execute("SET LOCAL enable_bitmapscan = off")
    factories.WorkerFactory(id="w1", hostname="web-1")
    retry = BulkOperationFactory()
    followed = jobs().order_by("pk").values_list("pk", flat=True)[:_LIMIT]
    BulkOperationJob.objects.bulk_create(
        [BulkOperationJob(operation=retry, job_id=key) for key in followed]
    )
    workflow = ids.uuid7()
    WorkflowStep.objects.bulk_create(
        [
            WorkflowStep(id=key, workflow_id=workflow, position=at, key=str(at), condition="all")
            for at, key in enumerate(followed)
        ]
    )
    words = (
        *(f"workflow:{workflow}", f"workflow:{workflow} ran:>1s", f"workflow:{ids.uuid7()}"),
        *(f"retried_by:{retry.pk}", f"retried_by:{retry.pk} ran:>1s"),
        *("ran:>10s", "ran:<1ms", "waited:>1m", "waited:<1ms", "attempt:>1", "attempt:>99"),
        *("-queue:q1", "-queue:q0,q1,q2,q3", "queue:q1,q2", "queue:x,y", "-type:type.t1"),
        *(
            "worker:w1",
            "worker:none",
            "priority:1",
            "type:none",
            "tag:none",
            "args:1",
            "error:none",
        ),
        *("error:none", "host:web-1", "host:none", "ran:>1s waited:>1m attempt:2 -queue:q1"),
    )
    checked = 0
    for state in ("", *State):
        for word in words:
            which = parse(f"state:{state} {word}" if state else word).filter
            assert which is not None
            with CaptureQueriesContext(connection) as captured:
                list_jobs(which, scan_limit=_LIMIT)
                count(which, scan_limit=_LIMIT)
            for statement in [query["sql"] for query in captured.captured_queries]:
                # What asks which indexes there are reads no jobs.
                if "ojs_job" not in statement or "pg_index" in statement:
                    continue
                checked += 1
                assert rows_read(statement) <= _LIMIT + 1, statement
    assert checked > 2 * len(words) * len(State)
