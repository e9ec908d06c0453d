"""A process that enqueues: `python -m tests.extensions.limits.producer QUEUE NUMBER HOW`.

`api`: in transactions of a few jobs, of which every other one has a limit by key. `sql`: jobs that
only store the attribute `rate_limit`, as a process does that knows no limits.
"""

from __future__ import annotations

import sys

import django

#: One job of a key at a time.
KEYS = ("red", "green")


def policy(number: int) -> dict[str, object]:
    """Return the limit of a job."""
    return {"key": KEYS[number % len(KEYS)], "concurrency": 1}


def by_api(queue: str, number: int) -> None:
    """Enqueue as this process knows it."""
    from django.db import transaction

    from tests.factories import push

    for start in range(0, number, 4):
        with transaction.atomic():
            for each in range(start, min(start + 4, number)):
                limit = {"rate_limit": policy(each // 2)} if each % 2 else {}
                push(queue=queue, type="worker.rest", args=[0.01], **limit)


def by_sql(queue: str, number: int) -> None:
    """Insert rows that have the attribute, and neither a key nor a hold."""
    from django.db import connection

    from django_ojs.models import Job
    from django_ojs.spec import ids, json
    from tests.factories import push

    # No worker takes it, so that all copies are of a job that waits.
    source = push(queue="source", type="worker.rest", args=[0.01])
    columns = [each.column for each in Job._meta.concrete_fields]
    given = {"id": "%s", "queue": "%s", "options": "%s", "hold": "0"}
    chosen = ", ".join(given.get(name, name) for name in columns)
    statement = (
        f"INSERT INTO ojs_job ({', '.join(columns)}) SELECT {chosen} FROM ojs_job WHERE id = %s"
    )
    field = Job._meta.pk
    for each in range(number):
        values = {
            "id": field.get_db_prep_value(ids.uuid7(), connection),
            "queue": queue,
            "options": json.dumps({"rate_limit": policy(each)}),
        }
        order = [values[name] for name in columns if name in values]
        with connection.cursor() as cursor:
            cursor.execute(statement, [*order, field.get_db_prep_value(source.pk, connection)])


def main() -> None:
    """Enqueue what the arguments say."""
    django.setup()
    queue, number, how = sys.argv[1:]
    {"api": by_api, "sql": by_sql}[how](queue, int(number))


if __name__ == "__main__":
    main()
