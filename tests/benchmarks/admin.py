"""`python -m tests.benchmarks.admin`: how long each page of the admin takes, on a table of a size.

The pages are asked for by Django's test client, as a superuser: what is measured is the server's
work, all queries and the whole template. PostgreSQL only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator

from psycopg.conninfo import conninfo_to_dict

from tests.benchmarks.server import Server

#: The longest time of a page, in seconds.
TARGET_MS = 300


def pages() -> Iterator[tuple[str, str]]:
    """Return the pages, each with its address."""
    from tests.factories import jobs

    job, queue = "/admin/django_ojs/job/", "/admin/django_ojs/queue/"
    yield "overview", "/admin/django_ojs/overview/"
    yield "queues", queue
    yield "a queue", f"{queue}email/change/"
    yield "a job type", f"{job}type/?type=report.daily"
    yield "workers", "/admin/django_ojs/worker/"
    yield "jobs", job
    for search in (
        *("state:completed", "state:available", "queue:email state:available", "state:retryable"),
        *("state:discarded", "is:dead", "state:pending", "state:active", "queue:images"),
        *("type:report.*", "type:none.such", "args.user_id:42", "meta.tenant_id:t7", "tag:vip"),
        *(
            "error:502 state:retryable",
            "created:<2h",
            "created:>6d",
            "state:completed queue:images",
        ),
    ):
        yield f"jobs, {search}", f"{job}?q={search}"
    middle = jobs().order_by("pk")[jobs().count() // 2 : jobs().count() // 2 + 1]
    key = middle.values_list("pk", flat=True).get()
    yield "jobs, a page in the middle", f"{job}?after={key}"
    dead = jobs().filter(dead_letter=True).order_by("-finished_at").first()
    if dead is not None:
        yield "a dead letter's job", f"{job}{dead.pk}/change/"
    yield "a job of the middle", f"{job}{key}/change/"
    yield "dead letters by group", "/admin/django_ojs/deadletterjob/"
    bulk = "/admin/django_ojs/bulkoperation/"
    yield "bulk operations", bulk
    yield "bulk: the confirmation page", f"{bulk}create/retry/?q=is:dead+queue:email"


def measure(rounds: int) -> Iterator[tuple[str, float, float, int]]:
    """Yield each page with the median and the slowest of its times in ms, and its queries."""
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    user, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client(headers={"host": "localhost"})
    client.force_login(user)
    for name, address in pages():
        with CaptureQueriesContext(connection) as queries:
            response = client.get(address)
            asked = len(queries)
        if response.status_code != 200:
            raise RuntimeError(f"{name}: returned {response.status_code}")
        took = []
        for _ in range(rounds):
            start = time.perf_counter()
            client.get(address)
            took.append((time.perf_counter() - start) * 1000)
        yield name, statistics.median(took), max(took), asked


def _prepare(rows: int, dead: float) -> Server:
    server = Server()
    name = f"ojs_bench_admin_{rows}"
    known = server.run("postgres", "SELECT 1 FROM pg_database WHERE datname = %s", [name])
    if not known:
        # Kept for the next time: it takes minutes to fill.
        server.run("postgres", f'CREATE DATABASE "{name}"')
    parts = conninfo_to_dict(server.url) | {"dbname": name}
    host = parts.pop("host", "")
    address = f"postgresql://{parts.get('user', '')}@/{name}?host={host}"
    os.environ["DATABASE_URL"] = address if str(host).startswith("/") else _url(server.url, name)
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    import django

    django.setup()
    from django.core.management import call_command

    from django_ojs.operations.figures import stats

    call_command("migrate", verbosity=0, interactive=False)
    there = sum(number for counts in stats.by_queue().values() for number in counts.values())
    if there < rows:
        call_command("ojs_loadjobs", rows, first=there, dead=dead)
    return server


def _url(url: str, name: str) -> str:
    base, _, query = url.partition("?")
    return f"{base.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


def main() -> None:
    """Read the arguments, fill and measure."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.admin", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dead", type=float, default=0.02, help="share of dead letters")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    _prepare(arguments.rows, arguments.dead)
    slow = 0
    print(f"{arguments.rows:,} jobs; median and slowest of {arguments.rounds}\n")
    print(f"{'page':36}{'median ms':>10}{'slowest':>10}{'queries':>9}")
    for name, median, slowest, queries in measure(arguments.rounds):
        late = median > TARGET_MS
        slow += late
        print(f"{name:36}{median:10.0f}{slowest:10.0f}{queries:9}{'  over' if late else ''}")
    print(f"\n{slow} pages over {TARGET_MS} ms." if slow else f"\nAll within {TARGET_MS} ms.")
    sys.exit(bool(slow))


if __name__ == "__main__":
    main()
