"""`python -m tests.benchmarks.admin`: how long each page of the admin takes, on a table of a size.

The pages are asked for by Django's test client, as a superuser: what is measured is the server's
work, all queries and the whole template. PostgreSQL only.

`--searches` requests the list of jobs for each qualifier of a search, alone and with each state,
and prints the slowest search of each qualifier. `make bench` has the pages too
(`measures/admin.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

from tests.benchmarks.server import Server

if TYPE_CHECKING:
    from django.test import Client

#: The most milliseconds of a page: the median of its requests, and the slowest one.
MEDIAN_MS = 120
SLOWEST_MS = 300
_JOBS = "/admin/django_ojs/job/"
#: Searches by each qualifier: values that many jobs have, few and none.
_SEARCHES: dict[str, tuple[str, ...]] = {
    "state": ("-state:completed", "state:available,scheduled"),
    "queue": ("queue:images", "queue:email,images", "-queue:email", "queue:none"),
    "type": ("type:report.*", "type:report.daily", "-type:report.daily", "type:none.such"),
    "tag": ("tag:vip", "tag:none"),
    "id": ("id:{id}",),
    "parent": ("parent:{id}",),
    "workflow": ("workflow:{id}",),
    "error": ("error:502", 'error:"no such error"'),
    "error_type": ("error_type:Timeout", "error_type:None"),
    "message": ('message:"HTTP … of …"', 'message:"no such message"'),
    "args": ("args.user_id:42", "args.0:42", "args:42", "args.none:1"),
    "meta": ("meta.tenant_id:t7", "meta.tenant_id:none"),
    "created": ("created:<2h", "created:>6d", "created:<1s", "created:>3650d"),
    "ended": ("ended:<2h", "ended:>6d", "ended:<1s", "ended:>3650d"),
    "priority": ("priority:0", "priority:10", "priority:99"),
    "worker": ("worker:{worker}", "worker:none"),
    "host": ("host:{host}", "host:none"),
    "attempt": ("attempt:1", "attempt:>1", "attempt:99"),
    "ran": ("ran:>1s", "ran:<500ms", "ran:>1h"),
    "waited": ("waited:>1s", "waited:>1m", "waited:>3000h"),
    "is": ("is:dead",),
    "retried_by": ("retried_by:1",),
}


def pages() -> Iterator[tuple[str, str]]:
    """Return the pages, each with its address."""
    from django_ojs.models import Job

    job, queue = _JOBS, "/admin/django_ojs/queue/"
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
    middle = Job.primary.order_by("pk")[Job.primary.count() // 2 : Job.primary.count() // 2 + 1]
    key = middle.values_list("pk", flat=True).get()
    yield "jobs, a page in the middle", f"{job}?after={key}"
    dead = Job.primary.filter(dead_letter=True).order_by("-finished_at").first()
    if dead is not None:
        yield "a dead letter's job", f"{job}{dead.pk}/change/"
    yield "a job of the middle", f"{job}{key}/change/"
    yield "dead letters by group", "/admin/django_ojs/deadletterjob/"
    bulk = "/admin/django_ojs/bulkoperation/"
    yield "bulk operations", bulk
    yield "bulk: the confirmation page", f"{bulk}create/retry/?q=is:dead+queue:email"


def searches() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Return the searches of each qualifier, each with its address: alone, and with each state."""
    from django_ojs.models import Job, Worker
    from django_ojs.operations.jobs.search_query import qualifiers
    from django_ojs.spec.states import State

    if missing := qualifiers().keys() ^ _SEARCHES.keys():
        raise RuntimeError(f"_SEARCHES and the qualifiers differ: {sorted(missing)}")
    worker = Job.primary.exclude(worker_id=None).values_list("worker_id", flat=True).first()
    host = Worker.objects.values_list("hostname", flat=True).first()
    names = {"id": Job.primary.values_list("pk", flat=True)[0], "worker": worker, "host": host}
    for qualifier, examples in _SEARCHES.items():
        found = [example.format_map(names) for example in examples]
        if qualifier != "state":
            found += [f"{one} state:{state.value}" for one in found for state in State]
        yield qualifier, [(one, f"{_JOBS}?{urlencode({'q': one})}") for one in found]


def slowest_searches(rounds: int) -> Iterator[tuple[str, float, float, int]]:
    """Yield each qualifier with its slowest search: its median and slowest in ms, its queries."""
    for qualifier, found in searches():
        times = list(measure(found, rounds))
        name, *figures = max(times, key=itemgetter(1))
        yield f"{qualifier} ({len(found)}): {name}", *figures


def measure(
    addresses: Iterable[tuple[str, str]], rounds: int
) -> Iterator[tuple[str, float, float, int]]:
    """Yield each page with the median and the slowest of its times in ms, and its queries."""
    for name, took, asked in times_of(addresses, rounds):
        yield name, statistics.median(took), max(took), asked


def times_of(
    addresses: Iterable[tuple[str, str]], rounds: int
) -> Iterator[tuple[str, list[float], int]]:
    """Yield each page with its times in ms, and its queries. The first request is not timed."""
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    client = Client(headers={"host": "localhost"})
    log_in(client)
    for name, address in addresses:
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
        yield name, took, asked


def log_in(client: Client) -> None:
    """Log a client in as a superuser."""
    from django.contrib.auth.models import User

    user, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client.force_login(user)


def measure_pages(rounds: int) -> Iterator[tuple[str, float, float, int]]:
    """Yield the pages, as `measure` does."""
    yield from measure(pages(), rounds)


def prepare(rows: int, dead: float, name: str) -> Server:
    server = Server()
    known = server.run("postgres", "SELECT 1 FROM pg_database WHERE datname = %s", [name])
    if not known:
        # Kept for the next time: it takes minutes to fill.
        server.run("postgres", f'CREATE DATABASE "{name}"')
    set_up(server, name)
    from django.core.management import call_command

    from django_ojs.storage.figures import counts

    there = sum(number for counts in counts.by_queue().values() for number in counts.values())
    if there < rows:
        call_command("ojs_loadjobs", rows, first=there, dead=dead)
    return server


def set_up(server: Server, name: str, settings: str = "example_project.settings") -> None:
    """Let this process's Django have the site of the examples on a database, and migrate it."""
    parts = conninfo_to_dict(server.url) | {"dbname": name}
    host = parts.pop("host", "")
    address = f"postgresql://{parts.get('user', '')}@/{name}?host={host}"
    os.environ["DATABASE_URL"] = address if str(host).startswith("/") else _url(server.url, name)
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)


def _url(url: str, name: str) -> str:
    base, _, query = url.partition("?")
    return f"{base.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


def main() -> None:
    """Read the arguments, fill and measure."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.admin", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dead", type=float, default=0.02, help="share of dead letters")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--searches", action="store_true", help="each qualifier with each state")
    parser.add_argument("--database", help="its name; ojs_bench_admin_ROWS by default")
    parser.add_argument("--json", action="store_true", help="the times of each page, in one line")
    arguments = parser.parse_args()
    name = arguments.database or f"ojs_bench_admin_{arguments.rows}"
    prepare(arguments.rows, arguments.dead, name)
    if arguments.json:
        found = times_of(pages(), arguments.rounds)
        print(json.dumps({page: took for page, took, _ in found}))
        return
    slow = 0
    print(f"{arguments.rows:,} jobs; median and slowest of {arguments.rounds}\n")
    print(f"{'page':60}{'median ms':>10}{'slowest':>10}{'queries':>9}")
    wanted = slowest_searches if arguments.searches else measure_pages
    for name, median, slowest, queries in wanted(arguments.rounds):
        late = median > MEDIAN_MS or slowest > SLOWEST_MS
        slow += late
        print(f"{name:60}{median:10.0f}{slowest:10.0f}{queries:9}{'  over' if late else ''}")
    limits = f"a median of {MEDIAN_MS} ms and {SLOWEST_MS} ms at most"
    print(f"\n{slow} pages over {limits}." if slow else f"\nAll within {limits}.")
    sys.exit(bool(slow))


if __name__ == "__main__":
    main()
