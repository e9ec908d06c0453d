"""`python -m tests.benchmarks.crowd`: what many worker processes cost one database.

For each number of processes, it starts machines of eight processes with one thread each, and waits
until all are known. While they have nothing to do, it counts what the server does for them: its
transactions (a statement of an idle worker is one), the heartbeats that are written, its
connections and its CPU time; and it measures the memory of the processes. Then jobs arrive one by
one, ten a second, and it counts what each costs beyond that. Then jobs that sleep for `--sleep`
seconds arrive, twenty for each process, and it counts how many are done in a second. `--pooler`
puts PgBouncer in transaction mode between them, with twenty connections to the server. PostgreSQL
only; the database is dropped.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from example_project import embedded_server
from tests.benchmarks import starts
from tests.benchmarks.contenders import CORE, by_name
from tests.benchmarks.processes import Children, wait_until
from tests.benchmarks.producer import Producer
from tests.benchmarks.server import HOME, URL_VARIABLE, Server

#: Worker processes of one command, as on one machine.
OF_A_MACHINE = 8
#: Connections of PgBouncer to the server.
POOL = 20
JOBS_EACH = 20
#: Jobs that arrive one by one, and the seconds between two.
SINGLE_JOBS, GAP = 100, 0.1
#: Seconds for all processes to start, and for all jobs to end.
START_SECONDS, DRAIN_SECONDS = 600.0, 600.0
#: Each process has five connections, and one more for a handler that uses the database.
MOST_CONNECTIONS = 2_400

ROWS = {
    "processes": "{:,.0f}",
    "seconds until all are known": "{:,.1f}",
    "connections to the server": "{:,.0f}",
    "idle: transactions a second": "{:,.1f}",
    "idle: heartbeats written a second": "{:,.1f}",
    "idle: CPU of the server, % of a core": "{:,.1f}",
    "idle: CPU of the workers, % of a core": "{:,.1f}",
    "memory of a process, MB": "{:,.1f}",
    "a single job: transactions": "{:,.1f}",
    "a single job: CPU of the server, ms": "{:,.1f}",
    "a single job: CPU of the workers, ms": "{:,.1f}",
    "jobs a second": "{:,.0f}",
    "transactions for each job": "{:,.2f}",
    "CPU of the server, ms for each job": "{:,.2f}",
}


def use_a_server_of_many_connections() -> None:
    """Have the embedded server of this run take the connections of hundreds of processes."""
    embedded_server.SERVER_SETTINGS = {"max_connections": str(MOST_CONNECTIONS)}
    if URL_VARIABLE not in os.environ:
        os.environ[URL_VARIABLE] = embedded_server.start(HOME / "crowd")


class Watch:
    """What the server has done for a database."""

    def __init__(self, server: Server, database: str) -> None:
        self._server, self._database = server, database

    def read(self, workers: Children) -> dict[str, float]:
        """Return the sums since the database was made, and the CPU time of server and workers."""
        # From another database, so that this statement is not counted.
        (transactions,) = self._server.run(
            "postgres",
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s",
            [self._database],
        )[0]
        (beats,) = self._server.run(
            self._database,
            "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'ojs_worker'",
        )[0]
        return {
            "transactions": float(transactions),
            "beats": float(beats),
            "cpu": self._server.cpu() or 0.0,
            "workers": workers.cpu(),
        }

    def connections(self) -> int:
        """Return how many sessions the server has of the database, without ours."""
        found = self._server.run(
            "postgres", "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [self._database]
        )
        return int(found[0][0]) - 1

    def workers(self) -> int:
        """Return how many worker processes are known."""
        return int(self._server.run(self._database, "SELECT count(*) FROM ojs_worker")[0][0])


def measure(
    server: Server, producer: Producer, processes: int, options: argparse.Namespace, **extra: str
) -> dict[str, float]:
    """Start so many processes, and return a value for each of `ROWS`."""
    watch = Watch(server, producer.database)
    producer.do("reset")
    server.run(producer.database, "DELETE FROM ojs_worker")
    with _workers(producer, processes, extra) as (workers, started):
        began = time.monotonic()
        wait_until(
            lambda: watch.workers() >= processes,
            seconds=START_SECONDS,
            step=0.2,
            what=f"{processes} worker processes",
            watch=workers,
        )
        found: dict[str, float] = {"processes": processes}
        found["seconds until all are known"] = time.monotonic() - began
        time.sleep(options.settle)
        before, began = watch.read(workers), time.monotonic()
        time.sleep(options.seconds)
        after, seconds = watch.read(workers), time.monotonic() - began
        idle = {name: (after[name] - before[name]) / seconds for name in after}
        found["connections to the server"] = watch.connections()
        found["idle: transactions a second"] = idle["transactions"]
        found["idle: heartbeats written a second"] = idle["beats"]
        found["idle: CPU of the server, % of a core"] = idle["cpu"] * 100
        found["idle: CPU of the workers, % of a core"] = idle["workers"] * 100
        found["memory of a process, MB"] = workers.memory() / processes

        found |= _of_single_jobs(producer, watch, workers, started, idle)

        jobs = processes * JOBS_EACH
        before, began = watch.read(workers), time.monotonic()
        producer.do("fill", jobs=jobs, kind="nap")
        wait_until(
            lambda: starts.count(started) >= SINGLE_JOBS + jobs,
            seconds=DRAIN_SECONDS,
            step=0.05,
            what="the last job",
            watch=workers,
        )
        seconds, after = time.monotonic() - began, watch.read(workers)
        found["jobs a second"] = jobs / seconds
        found["transactions for each job"] = (after["transactions"] - before["transactions"]) / jobs
        found["CPU of the server, ms for each job"] = (after["cpu"] - before["cpu"]) * 1000 / jobs
        return found


def _of_single_jobs(
    producer: Producer, watch: Watch, workers: Children, started: Path, idle: Mapping[str, float]
) -> dict[str, float]:
    before, began = watch.read(workers), time.monotonic()
    producer.do("trickle", first=0, jobs=SINGLE_JOBS, gap=GAP)
    wait_until(
        lambda: starts.count(started) >= SINGLE_JOBS,
        seconds=DRAIN_SECONDS,
        step=0.05,
        what="the last single job",
        watch=workers,
    )
    after, seconds = watch.read(workers), time.monotonic() - began
    each = {
        name: (after[name] - before[name] - idle[name] * seconds) / SINGLE_JOBS for name in after
    }
    return {
        "a single job: transactions": each["transactions"],
        "a single job: CPU of the server, ms": each["cpu"] * 1000,
        "a single job: CPU of the workers, ms": each["workers"] * 1000,
    }


@contextmanager
def _workers(
    producer: Producer, processes: int, extra: Mapping[str, str]
) -> Iterator[tuple[Children, Path]]:
    with tempfile.TemporaryDirectory(prefix="ojs-crowd-") as folder:
        started = Path(folder) / "starts"
        command = ["-m", "django", "ojs_worker", "--threads", "1", "-v0", "--processes"]
        full, rest = divmod(processes, OF_A_MACHINE)
        machines = [OF_A_MACHINE] * full + [rest] * bool(rest)
        children = Children(
            [[*command, str(each)] for each in machines],
            {**producer.environment, starts.VARIABLE: str(started), **extra},
            Path(folder) / "log",
        )
        try:
            yield children, started
        except (RuntimeError, TimeoutError):
            print((Path(folder) / "log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            children.stop()


def render(found: Sequence[Mapping[str, float]]) -> str:
    """Return the table: a column for each number of processes."""
    return "\n".join(
        f"{row:40}" + "".join(f"{form.format(each[row]):>12}" for each in found)
        for row, form in ROWS.items()
    )


def main(given: Sequence[str] | None = None) -> None:
    """Read the arguments, and measure each number of processes."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.crowd", description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--seconds", type=float, default=30.0, help="of watching idle workers")
    parser.add_argument("--settle", type=float, default=15.0, help="seconds before that")
    parser.add_argument("--sleep", type=float, default=0.5, help="seconds that each job takes")
    parser.add_argument("--pooler", action="store_true", help="with PgBouncer between")
    options = parser.parse_args(given)

    use_a_server_of_many_connections()
    os.environ[starts.NAP_VARIABLE] = str(options.sleep)
    server = Server()
    database = server.create(f"ojs_crowd_{os.getpid()}")
    log = Path(tempfile.mkstemp(prefix="ojs-crowd-")[1])
    producer = Producer(by_name(CORE), database, log)
    found = []
    try:
        producer.do("setup")
        server.settle(database)
        with _pooler(server) if options.pooler else nullcontext({}) as extra:
            for processes in sorted(set(options.processes)):
                print(f"{processes} processes", file=sys.stderr, flush=True)
                found.append(measure(server, producer, processes, options, **extra))
    finally:
        producer.close()
        server.close()
        log.unlink()
    print(render(found))


@contextmanager
def _pooler(server: Server) -> Iterator[dict[str, str]]:
    from tests.faults.bouncer import bouncer

    to: dict[str, Any] = conninfo_to_dict(server.url)
    address = {
        "HOST": to["host"],
        "PORT": to.get("port", ""),
        "USER": to.get("user", "postgres"),
        "PASSWORD": to.get("password", ""),
    }
    with bouncer(address, POOL, MOST_CONNECTIONS) as clients:
        at = f"{quote(clients['HOST'], safe='')}:{clients['PORT']}"
        yield {URL_VARIABLE: f"postgresql://{address['USER']}@{at}/postgres"}


if __name__ == "__main__":
    main()
