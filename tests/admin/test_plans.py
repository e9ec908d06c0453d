"""No page reads all jobs: what PostgreSQL plans for each, with 250,000 or a million of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_ojs.models.bulk_operation import BulkActionName
from django_ojs.operations import keyset
from django_ojs.operations.jobs import bulk_execution, bulk_operations
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.storage import database
from django_ojs.storage.figures import counts
from tests import factories
from tests.admin.test_pages import fill
from tests.admin.users import at, root
from tests.factories import jobs
from tests.sizes import FULL

#: More than a search reads at once, so that each plan shows how far it reads.
ROWS = 1_000_000 if FULL else 250_000
#: Between the ends of two jobs: twelve days in all, of which each search by time has its share.
_SECONDS = 1_000_000 // ROWS

#: Ids in the order of time, as clients make them: to sort random ones in takes longer.
_LOAD = """
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, started_at, finished_at, dead_letter,
                     error, due_at)
SELECT ('0192' || lpad(to_hex(n), 8, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid,
       'type.t' || n %% 20, 'queue-' || n %% 5,
       CASE WHEN n %% 10 = 0 THEN 'available' WHEN n %% 50 = 1 THEN 'discarded'
            WHEN n %% 500 = 2 THEN 'retryable' ELSE 'completed' END,
       0, '[]', '{}', '{}', 1, 3, 0, 1, now() - interval '1 hour', now() - interval '1 hour',
       now() - interval '50 min',
       CASE WHEN n %% 10 = 0 OR n %% 500 = 2 THEN NULL
            ELSE now() - n * %s * interval '1 second' END,
       n %% 50 = 1,
       CASE WHEN n %% 50 = 1 THEN '{"type": "Boom", "message": "it broke"}'::jsonb END,
       CASE WHEN n %% 500 = 2 THEN now() + n * interval '1 second' END
FROM generate_series(1, %s) AS n
"""

#: Unsuccessful runs, as many as there are discarded jobs.
_LOAD_ATTEMPTS = """
INSERT INTO ojs_attempt (job_id, attempt, run, worker_id, outcome, started_at, finished_at)
SELECT id, 1, 1, 'web-' || row_number() OVER () % 20, 'failed', started_at, finished_at
FROM ojs_job WHERE state = 'discarded'
"""

_PAGES = (
    *("overview/", "queue/", "queue/?sort=depth", "queue/queue-1/change/", "worker/"),
    "job/type/?type=type.t1",
    *("worker/worker-0/change/", "event/", "queue/action/purge/?key=queue-1"),
    *("worker/action/deregister/?key=worker-0", "bulkoperation/", "deadletterjob/"),
    "bulkoperation/create/retry/?q=is:dead",
    "bulkoperation/create/retry/?q=is:dead+queue:queue-1+type:type.t1+error_type:Boom",
    "bulkoperation/create/cancel/?q=state:available+type:type.t3",
)
_SEARCHES = (
    *("", "state:completed", "state:available", "state:discarded", "state:pending"),
    *("state:retryable", "state:active", "state:scheduled,retryable", "is:dead", "is:alive"),
    *("queue:queue-1", "queue:queue-1 state:available", "queue:queue-1 state:completed"),
    *("type:none", "type:type.t1*", "args.user_id:42", "meta.tenant_id:t7", "tag:vip"),
    *("error:broke state:discarded", "error_type:Boom", "worker:web-1", "priority:10"),
    *("created:<2h", "created:>6d", "ended:<1d", "state:completed ended:>2d"),
)


def plans_of(client: Client, address: str, table: str = "ojs_job") -> Iterator[tuple[str, str]]:
    """Open a page, and yield each statement about the jobs, or another table, with its plan."""
    with CaptureQueriesContext(database.connection()) as captured:
        assert client.get(at(address)).status_code == 200, address
    for statement in (query["sql"] for query in captured.captured_queries):
        if table not in statement or not statement.lstrip().startswith(("SELECT", "WITH")):
            continue
        with database.connection().cursor() as cursor:
            cursor.execute("EXPLAIN " + statement.replace("%", "%%"), [])
            yield statement, "\n".join(row[0] for row in cursor.fetchall())


@pytest.mark.sized
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_no_page_reads_all_jobs() -> None:
    # One test, so that they are stored once.
    fill(3)
    job = factories.active("worker-0", queue="held")
    with database.connection().cursor() as cursor:
        cursor.execute(_LOAD, [_SECONDS, ROWS])
        cursor.execute(_LOAD_ATTEMPTS)
        cursor.execute("VACUUM ANALYZE ojs_job, ojs_attempt")
    counts.fold()
    client = root()
    retry = bulk_operations.order(BulkActionName.RETRY, JobFilter(type="type.t1"), by="root")
    while not bulk_operations.get(retry.pk).done:
        bulk_execution.work_once()
    last = jobs().filter(state="available").order_by("-pk").values_list("pk", flat=True)[0]
    middle = jobs().order_by("pk").values_list("pk", flat=True)[1000]
    dead = jobs().filter(dead_letter=True).order_by("finished_at", "pk")
    cursor = keyset.write((middle,))
    cursor_of_dead = keyset.write(dead.values_list("finished_at", "pk")[1000])
    addresses = (
        *(*_PAGES, f"job/?after={cursor}", f"job/?before={cursor}"),
        *(f"job/?q=is:dead&after={cursor_of_dead}", f"job/?q=is:dead&before={cursor_of_dead}"),
        *(f"job/{last}/change/", "job/?q=queue:none", f"bulkoperation/{retry.pk}/change/"),
        *(f"job/{middle}/change/", f"job/{job.id}/change/", f"job/action/delete/?key={middle}"),
        *(f"job/?q={search}" for search in _SEARCHES),
    )
    checked = 0
    for address in addresses:
        for statement, plan in plans_of(client, address):
            checked += 1
            for table in ("ojs_job", "ojs_attempt"):
                assert f"Seq Scan on {table}" not in plan, f"{address}\n{statement}\n{plan}"
            # The only offsets are the ends of the ranges that a search reads.
            _, turned, rest = statement.partition(" OFFSET ")
            assert not turned or rest.split()[0] in ("99999", "19999", "25000", "9999"), (
                f"{address}\n{statement}"
            )
    assert checked > len(addresses)
