"""`python -m tests.benchmarks.search_index`: the price of the indexes of `manage.py ojs index`.

Two copies of a database with made-up jobs, one with the indexes: each round does the same in both,
one after the other. PostgreSQL only.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.benchmarks import processes
from tests.benchmarks.admin import prepare
from tests.benchmarks.server import Server

WITHOUT, WITH = "ojs_bench_index_without", "ojs_bench_index_with"
_QUEUE = "bench"
#: The processor's time is counted in ticks of 10 ms, so that only the mean of many rounds is known.
_UNITS: dict[str, Callable[[list[float]], float]] = {
    "µs per job, median": statistics.median,
    "µs of the server's processor per job, mean": statistics.mean,
    "bytes of WAL per job, median": statistics.median,
}
_SEARCHES = (
    *("args.user_id:42", "args.0.user_id:42 state:completed", "args:none"),
    *("meta.tenant_id:t7", "meta.tenant_id:none", "args.user_id:42 state:discarded"),
)


@contextmanager
def _database(name: str) -> Iterator[None]:
    """Connect the default alias with a copy."""
    from django.db import connection

    kept = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = kept


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _args(number: int) -> list[dict[str, object]]:
    return [{"email": f"c{number}@example.com", "user_id": number, "order_id": number}]


def _one_by_one(jobs: int) -> None:
    import django_ojs as ojs

    for number in range(jobs):
        ojs.enqueue("bench.run", _args(number), queue=_QUEUE, meta={"tenant_id": f"t{number % 50}"})


def _in_batches(jobs: int) -> None:
    import django_ojs as ojs

    for start in range(0, jobs, 500):
        ojs.enqueue_batch(
            [
                ojs.request(
                    "bench.run", _args(number), queue=_QUEUE, meta={"tenant_id": f"t{number % 50}"}
                )
                for number in range(start, min(start + 500, jobs))
            ]
        )


def _drain() -> int:
    from django_ojs.operations import ack, fetch

    drained = 0
    while found := fetch.fetch([_QUEUE], count=100, worker_id="bench"):
        ack.ack_batch("bench", [(job.id, job.run, None) for job in found])
        drained += len(found)
    return drained


def _search(client: object, text: str) -> None:
    response = client.get("/admin/django_ojs/job/", {"q": text})  # type: ignore[attr-defined]
    if response.status_code != 200:
        raise RuntimeError(text)


def _spent() -> tuple[float, float, float]:
    """Return the time, the seconds this session has computed, and the bytes of WAL, each so far."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_backend_pid()")
        wal, process = cursor.fetchone()
    return time.perf_counter() * 1e6, processes.cpu(process) * 1e6, float(wal)


def _figures(jobs: int) -> dict[str, list[float]]:
    """Return what `_UNITS` names, per job, of one round in this database."""
    _one_by_one(50)  # A connection, and the plans of its statements.
    _drain()
    found = {}
    for name, action, number in (
        ("enqueue, one by one", lambda: _one_by_one(jobs), jobs),
        ("enqueue, batches of 500", lambda: _in_batches(10 * jobs), 10 * jobs),
        ("FETCH and ACK of 100", _drain, 11 * jobs),
    ):
        before = _spent()
        action()
        found[name] = [
            (after - start) / number for start, after in zip(before, _spent(), strict=True)
        ]
    return found


def _searches(times: int) -> dict[str, float]:
    """Return the median milliseconds of a page of the admin for each search."""
    from django.contrib.auth.models import User
    from django.test import Client

    user, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client(headers={"host": "localhost"})
    client.force_login(user)
    found = {}
    for text in _SEARCHES:
        _search(client, text)
        took = [_seconds(lambda text=text: _search(client, text)) for _ in range(times)]  # type: ignore[misc]
        found[text] = statistics.median(took) * 1000
    return found


def _build() -> None:
    from django.core.management import call_command

    from django_ojs.operations.jobs import search_index

    for column in search_index.INDEXES:
        took = _seconds(lambda column=column: search_index.create(column))  # type: ignore[misc]
        print(f"{column}: created in {took:.1f} s")
    call_command("ojs", "index")


def main() -> None:
    """Read the arguments, fill, copy and measure."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.search_index", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=100, help="jobs enqueued one by one")
    parser.add_argument("--rounds", type=int, default=31)
    arguments = parser.parse_args()
    prepare(arguments.rows, 0.02)
    from django.db import connection

    filled = connection.settings_dict["NAME"]
    connection.close()
    server = Server()
    try:
        for name in (WITHOUT, WITH):
            server.create(name, filled)
        with _database(WITH):
            _build()
        _compare(arguments.rounds, arguments.jobs)
    finally:
        connection.close()
        server.close()


def _compare(rounds: int, jobs: int) -> None:
    measured: dict[str, list[dict[str, list[float]]]] = {WITHOUT: [], WITH: []}
    for number in range(rounds):
        # Each is the first one in every second round.
        for name in sorted(measured, reverse=bool(number % 2)):
            with _database(name):
                measured[name].append(_figures(jobs))
    for index, (unit, average) in enumerate(_UNITS.items()):
        print(f"\n{unit:46}{'without':>10}{'with':>10}{'ratio':>8}")
        for what in measured[WITH][0]:
            without, with_ = (
                average([each[what][index] for each in measured[name]]) for name in (WITHOUT, WITH)
            )
            print(f"{what:46}{without:10.0f}{with_:10.0f}{with_ / without:8.2f}")
    pages = {}
    for name in measured:
        with _database(name):
            pages[name] = _searches(7)
    print(f"\n{'a page of the admin, ms':46}{'without':>10}{'with':>10}")
    for text in _SEARCHES:
        print(f"{text:46}{pages[WITHOUT][text]:10.0f}{pages[WITH][text]:10.0f}")


if __name__ == "__main__":
    main()
