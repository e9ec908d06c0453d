"""No page reads the jobs from one end to the other: what PostgreSQL plans, with many of them."""

from __future__ import annotations

import pytest
from django.test.utils import CaptureQueriesContext

from django_ojs.storage import database
from tests import factories
from tests.admin.test_pages import BASE, fill
from tests.admin.users import root

ROWS = 120_000

_LOAD = """
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, started_at, finished_at, dead_letter)
SELECT gen_random_uuid(), 'type.' || n %% 20, 'queue-' || n %% 5,
       CASE WHEN n %% 10 = 0 THEN 'available' WHEN n %% 50 = 1 THEN 'discarded'
            ELSE 'completed' END,
       0, '[]', '{}', '{}', 1, 3, 0, 1, now() - interval '1 hour', now() - interval '1 hour',
       now() - interval '50 min',
       CASE WHEN n %% 10 = 0 THEN NULL ELSE now() - n * interval '1 second' END,
       n %% 50 = 1
FROM generate_series(1, %s) AS n
"""


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_no_page_reads_all_jobs() -> None:
    fill(3)
    job = factories.active("worker-0", queue="held")
    with database.connection().cursor() as cursor:
        cursor.execute(_LOAD, [ROWS])
        cursor.execute("ANALYZE ojs_job")
    client = root()
    looked = 0
    for page in (
        *("overview/", "queue/", "queue/?sort=depth", "queue/queue-1/change/", "worker/"),
        *("worker/worker-0/change/", "event/", "queue/do/purge/?key=queue-1"),
        "worker/do/deregister/?key=worker-0",
    ):
        with CaptureQueriesContext(database.connection()) as captured:
            assert client.get(BASE + page).status_code == 200
        for statement in (query["sql"] for query in captured.captured_queries):
            if "ojs_job" not in statement or not statement.lstrip().startswith(("SELECT", "WITH")):
                continue
            looked += 1
            with database.connection().cursor() as cursor:
                cursor.execute("EXPLAIN " + statement.replace("%", "%%"), [])
                plan = "\n".join(row[0] for row in cursor.fetchall())
            assert "Seq Scan on ojs_job" not in plan, f"{page}\n{statement}\n{plan}"
    assert looked >= 5
    assert job.id
