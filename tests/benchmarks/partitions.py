"""`python -m tests.benchmarks.partitions`: an experiment with finished jobs in a partition a day.

It copies the jobs of a filled database, with their indexes, into a plain table and into one that is
partitioned by the day on which a job ends; what has not ended is in a partition of its own. The
primary key of a partitioned table must contain its partition key, so it is (id, ended_on): no
foreign key can name a job by its id, and no index makes an id or a unique key unique. Then both
take turns: an insert, a claim, the end of a job (which moves its row), a job by its id; and the
oldest day is removed, by DELETE in batches and VACUUM, or by DROP. PostgreSQL only; the database is
dropped. Triggers are left out of both.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.benchmarks.server import Server

PLAIN, PARTED = "bench_plain", "bench_parted"
DAYS, BATCH = 10, 1_000
WAITING = 20_000

_STEPS = {
    "insert": """
        INSERT INTO {table} SELECT (j).* FROM (
            SELECT jsonb_populate_record(w, jsonb_build_object('id', gen_random_uuid())) AS j
            FROM {table} AS w WHERE w.state = 'available' LIMIT 1) AS one
    """,
    "claim": """
        UPDATE {table} SET state = 'active', run = run + 1, attempt = attempt + 1, worker_id = 'w',
            started_at = now(), lease_until = now() + interval '1 minute'
        WHERE id = ANY(ARRAY(SELECT id FROM {table}
            WHERE queue = 'default' AND state = 'available' AND hold = 0
            ORDER BY priority DESC, enqueued_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)) {live}
    """,
    "end": """
        UPDATE {table} SET state = 'completed', finished_at = now(), lease_until = NULL {moves}
        WHERE id = (SELECT id FROM {table} WHERE state = 'active' LIMIT 1) {live}
    """,
    "a job by its id": "SELECT * FROM {table} WHERE id = '{id}'",
}
_PARTS: Mapping[str, Mapping[str, str]] = {
    PLAIN: {"live": "", "moves": ""},
    PARTED: {"live": "AND ended_on = 'infinity'", "moves": ", ended_on = current_date"},
}


class Experiment:
    """Both tables, in a database that has been filled."""

    def __init__(self, server: Server, database: str) -> None:
        self._server, self._database = server, database

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement by itself."""
        return self._server.run(self._database, statement)

    def prepare(self) -> None:
        """Make both tables with the same rows and indexes."""
        made = "(LIKE ojs_job INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING GENERATED)"
        self.run(f"CREATE TABLE {PLAIN} {made}")
        self.run(f"ALTER TABLE {PLAIN} ADD ended_on date NOT NULL DEFAULT 'infinity'")
        self.run(
            f"CREATE TABLE {PARTED} (LIKE {PLAIN} INCLUDING ALL) PARTITION BY RANGE (ended_on)"
        )
        # The day after today as well: the run may pass midnight.
        for day in range(-DAYS, 2):
            first, last = f"current_date + {day}", f"current_date + {day + 1}"
            ((first, last),) = self.run(f"SELECT ({first})::text, ({last})::text")
            self.run(
                f"CREATE TABLE {PARTED}_{day + DAYS} PARTITION OF {PARTED}"
                f" FOR VALUES FROM ('{first}') TO ('{last}')"
            )
        self.run(
            f"CREATE TABLE {PARTED}_live PARTITION OF {PARTED}"
            " FOR VALUES FROM ('infinity') TO (MAXVALUE)"
        )
        columns = ", ".join(
            f'"{name}"'
            for (name,) in self.run(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'ojs_job'::regclass"
                " AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
            )
        )
        for table in (PLAIN, PARTED):
            self.run(
                f"INSERT INTO {table} ({columns}, ended_on) SELECT {columns}, CASE WHEN finished_at"
                f" IS NULL THEN 'infinity' ELSE current_date - (hashtext(id::text) & 7) END"
                " FROM ojs_job"
            )
            self.run(f"ALTER TABLE {table} ADD PRIMARY KEY (id, ended_on)")
        for (index,) in self.run(
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index"
            " WHERE indrelid = 'ojs_job'::regclass AND NOT indisprimary"
        ):
            found = re.fullmatch(r"CREATE (UNIQUE )?INDEX (\S+) ON \S+ (.*)", index)
            assert found is not None
            for table in (PLAIN, PARTED):
                self.run(f"CREATE INDEX ON {table} {found[3]}")
        self.run("VACUUM ANALYZE")
        self.run("CHECKPOINT")

    def take_turn(self, table: str, step: str) -> tuple[float, float]:
        """Return the milliseconds and the kilobytes of WAL of a step."""
        ((key,),) = self.run(f"SELECT id FROM {table} WHERE state = 'completed' LIMIT 1")
        statement = _STEPS[step].format(table=table, id=key, **_PARTS[table])
        wal = self._wal()
        began = time.perf_counter()
        self.run(statement)
        return (time.perf_counter() - began) * 1000, (self._wal() - wal) / 1024

    def remove_a_day(self, table: str) -> tuple[int, float, float]:
        """Return how many jobs were removed, in how many seconds, and the megabytes of WAL."""
        ((day, jobs),) = self.run(
            f"SELECT ended_on, count(*) FROM {table} GROUP BY ended_on ORDER BY ended_on LIMIT 1"
        )
        wal, began = self._wal(), time.perf_counter()
        if table == PARTED:
            ((name,),) = self.run(
                f"SELECT tableoid::regclass::text FROM {table} WHERE ended_on = '{day}' LIMIT 1"
            )
            self.run(f"DROP TABLE {name}")
        else:
            for _ in range(0, jobs, BATCH):
                self.run(
                    f"DELETE FROM {table} WHERE id = ANY(ARRAY(SELECT id FROM {table}"
                    f" WHERE ended_on = '{day}' LIMIT {BATCH}))"
                )
            self.run(f"VACUUM {table}")
        return jobs, time.perf_counter() - began, (self._wal() - wal) / 1_048_576

    def _wal(self) -> float:
        return float(self.run("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])


def measure(experiment: Experiment, turns: int) -> Iterator[str]:
    """Yield the lines of the result."""
    yield f"{'':28}{'plain':>10}{'parted':>10}{'ratio':>8}"
    for step in _STEPS:
        took: dict[str, list[tuple[float, float]]] = {PLAIN: [], PARTED: []}
        for _ in range(turns):
            for table, found in took.items():
                found.append(experiment.take_turn(table, step))
        for at, what in enumerate(("ms", "WAL, KiB")):
            one, two = (statistics.median(each[at] for each in took[table]) for table in took)
            if two:
                name = f"{step}, {what}"
                yield f"{name:28}{one:10.2f}{two:10.2f}{two / max(one, 0.01):8.2f}"
    jobs, one, one_wal = experiment.remove_a_day(PLAIN)
    dropped, two, two_wal = experiment.remove_a_day(PARTED)
    yield f"{f'a day ({jobs:,} and {dropped:,}), s':28}{one:10.2f}{two:10.2f}"
    yield f"{'its WAL, MiB':28}{one_wal:10.1f}{two_wal:10.1f}"


def main(given: Sequence[str] | None = None) -> None:
    """Read the arguments, fill and measure."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.partitions", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=101)
    options = parser.parse_args(given)
    from tests.benchmarks.admin import set_up

    server = Server()
    database = server.create("ojs_bench_partitions")
    try:
        set_up(server, database)
        from django.db import connections

        from tests.benchmarks import filling

        filling.fill(finished=options.rows, waiting=WAITING)
        connections.close_all()
        experiment = Experiment(server, database)
        experiment.prepare()
        for line in measure(experiment, options.turns):
            print(line, flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
