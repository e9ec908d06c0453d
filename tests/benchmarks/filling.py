"""Big tables, filled by the server itself with jobs like those a busy site leaves behind."""

from __future__ import annotations

from django.db import connection

#: The number of the limits by key as an extension, and what `Job.hold` is of a job that they hold.
BY_KEY = 14
HELD = 78

#: Rows in one statement: some seconds of work each.
CHUNK = 250_000

# UUIDv7 by hand: the milliseconds of the moment, the version, and what is left from a hash.
_ID = """(lpad(to_hex((extract(epoch FROM created) * 1000)::bigint), 12, '0') || '7'
         || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid"""

# Of a hundred finished jobs 95 were completed, two cancelled, three discarded, one of them a dead
# letter; a third has a result, a fifth metadata; twenty queues and forty types.
_FINISHED = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, started_at, finished_at, worker_id,
                     result, error, dead_letter, discard_reason)
SELECT {_ID}, 'shop.type_' || n %% 40,
       CASE WHEN n %% 2 = 0 THEN 'default' ELSE 'queue_' || n %% 20 END, state, 0,
       jsonb_build_array(n, 'customer-' || n %% 100000 || '@example.com', 'order_confirmation'),
       CASE WHEN n %% 5 = 0 THEN jsonb_build_object('trace_id', md5(n::text)) ELSE '{{}}' END,
       '{{}}', 1, 3, 0, 1, created, created, created + interval '20 milliseconds',
       created + interval '50 milliseconds', 'worker_' || n %% 8,
       CASE WHEN n %% 3 = 0 THEN jsonb_build_object('message_id', n) END,
       CASE WHEN state = 'discarded' THEN
            jsonb_build_object('type', 'handler_error', 'message', 'The card was declined.') END,
       n %% 100 = 97,
       CASE WHEN state = 'discarded' THEN 'exhausted' END
FROM (
    SELECT n, now() - interval '160 hours' * (1 - n / %s::float) AS created,
           CASE WHEN n %% 100 < 95 THEN 'completed' WHEN n %% 100 < 97 THEN 'cancelled'
                ELSE 'discarded' END AS state
    FROM generate_series(%s, %s) AS n
) AS jobs
"""

_WAITING = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, dead_letter)
SELECT {_ID}, 'shop.type_' || n %% 40, 'default', 'available', 0,
       jsonb_build_array(n, 'customer-' || n %% 100000 || '@example.com', 'order_confirmation'),
       '{{}}', '{{}}', 0, 3, 0, 0, created, created, false
FROM (
    SELECT n, now() - interval '1 hour' * (1 - n / %s::float) AS created
    FROM generate_series(%s, %s) AS n
) AS jobs
"""

# Of a thousand keys, each with a limit that lets none of them start. They are older than those that
# wait, and of a higher priority.
_HELD = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, dead_letter, hold)
SELECT {_ID}, 'shop.type_' || n %% 40, 'default', 'available', 5,
       jsonb_build_array(n, 'customer-' || n %% 100000 || '@example.com', 'order_confirmation'),
       '{{}}', jsonb_build_object('rate_limit', jsonb_build_object('key', key, 'concurrency', 1),
                                'limit_key', key), 0, 3, 0, 0, created, created, false, {HELD}
FROM (
    SELECT n, 'account-' || n %% 1000 AS key,
           now() - interval '1 hour' * (3 - n / %s::float) AS created
    FROM generate_series(%s, %s) AS n
) AS jobs
"""

_SLEEPING = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, created_at, enqueued_at, started_at, due_at, dead_letter)
SELECT {_ID}, 'bench.wait', 'default', 'scheduled', 0, jsonb_build_array(n, 0), '{{}}', '{{}}',
       1, 3, 1, 1, created, created, created, created + interval '1 year', false
FROM (
    SELECT n, now() - interval '1 hour' * (1 - n / %s::float) AS created
    FROM generate_series(%s, %s) AS n
) AS jobs
"""

_STEPS = """
INSERT INTO ojs_step (job_id, number, name, kind, outcome, attempts, until, signal, key, run,
                      started_at)
SELECT id, 0, 'go', 'wait', 'waiting', 0, due_at, 'go', id::text, 1, started_at
FROM ojs_job WHERE state = 'scheduled'
"""

#: A new table's pages have room left for small rows: new jobs would lie scattered, one a page, and
#: each statement would touch as many pages as jobs. A table that has been in use for a while has no
#: such room between two vacuums. So jobs run through it until a thousand new ones lie side by side.
_SIDE_BY_SIDE = 100
_MOST_BATCHES = 500


def fill(*, finished: int = 0, waiting: int = 0) -> None:
    """Add finished and waiting jobs, fold the counts, and have the table vacuumed and analyzed."""
    with connection.cursor() as cursor:
        for statement, rows in ((_FINISHED, finished), (_WAITING, waiting)):
            for start in range(1, rows + 1, CHUNK):
                cursor.execute(statement, [rows, start, min(rows, start + CHUNK - 1)])
    tidy()
    _check(finished + waiting)


def let_wait(jobs: int) -> None:
    """Add jobs that wait for a signal for a year, each at a step of its own."""
    with connection.cursor() as cursor:
        for start in range(1, jobs + 1, CHUNK):
            cursor.execute(_SLEEPING, [jobs, start, min(jobs, start + CHUNK - 1)])
        cursor.execute(_STEPS)
    tidy()
    _check(jobs)


def hold(held: int) -> None:
    """Add jobs that the limits by key hold, and their rule to the queue."""
    from django_ojs.storage import queue_configs

    with connection.cursor() as cursor:
        for start in range(1, held + 1, CHUNK):
            cursor.execute(_HELD, [held, start, min(held, start + CHUNK - 1)])
    queue_configs.add_rules(["default"], 1 << BY_KEY)
    tidy()


def _check(rows: int) -> None:

    from django_ojs.storage.figures import counts

    counted = sum(number for queue in counts.by_queue().values() for number in queue.values())
    if counted != rows:
        raise RuntimeError(f"the table should hold {rows} jobs, and the counts say {counted}")


def wear_in() -> None:
    """Run jobs through the table until new ones lie on few pages."""
    import django_ojs as ojs
    from django_ojs.operations.ack import ack_batch
    from django_ojs.operations.fetch import fetch

    requests = [ojs.request("bench.noop", [number]) for number in range(1000)]
    for _ in range(_MOST_BATCHES):
        stored = ojs.enqueue_batch(requests)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(DISTINCT (ctid::text::point)[0]) FROM ojs_job WHERE id = ANY(%s)",
                [[job.id for job in stored if job is not None]],
            )
            pages = cursor.fetchone()[0]
        jobs = fetch(["default"], count=len(requests), worker_id="bench", due=False)
        ack_batch("bench", [(job.id, job.run, None) for job in jobs])
        if pages < _SIDE_BY_SIDE:
            return


def tidy() -> None:
    """Leave the tables as maintenance and autovacuum leave them after a while."""
    from django_ojs.storage.figures import counts

    counts.fold()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
        cursor.execute("CHECKPOINT")
