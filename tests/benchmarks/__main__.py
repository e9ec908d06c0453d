"""`python -m tests.benchmarks`: measure, print the table, append the samples to a file."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.benchmarks.field import Field
from tests.benchmarks.measures import (
    admin,
    bounds,
    cron,
    drain,
    enqueue,
    events,
    failures,
    figures,
    http,
    idle,
    limits,
    maintenance,
    names,
    poison,
    steps,
    tables,
    workflows,
)
from tests.benchmarks.results import Results
from tests.benchmarks.scale import QUICK, SMOKE, WHOLE, Scale
from tests.benchmarks.server import ROOT, Server
from tests.benchmarks.table import render

MEASURES: dict[str, Callable[[Field, Scale], None]] = {
    "enqueue": enqueue.measure,
    "drain": drain.measure,
    "idle": idle.measure,
    "http": http.measure,
    "tables": tables.measure,
    "bounds": bounds.measure,
    "maintenance": maintenance.measure,
    "cron": cron.measure,
    "workflows": workflows.measure,
    "figures": figures.measure,
    "names": names.measure,
    "poison": poison.measure,
    "failures": failures.measure,
    "limits": limits.measure,
    "events": events.measure,
    "steps": steps.measure,
    "admin": admin.measure,
}
SCALES = {"whole": WHOLE, "quick": QUICK, "smoke": SMOKE}
PREFIX = f"ojs_bench_{os.getpid()}_"

_PACKAGES = (
    "Django djangorestframework gunicorn psycopg pgqueuer procrastinate django-tasks-db django-ox "
    "django-q2 celery redis dbos absurd-sdk"
)


def run(
    scale: Scale, *, only: Sequence[str], peers: bool, path: Path | None, prefix: str = PREFIX
) -> tuple[str, bool]:
    """Measure, and return the table and whether every target was met."""
    server = Server()
    results = Results(path, {**_machine(), **server.facts(), **_versions()})
    field = Field(server, results, peers=peers, prefix=prefix)
    try:
        for name in only:
            MEASURES[name](field, scale)
    except BaseException:
        sys.stderr.write(field.log.read_text() if field.log.exists() else "")
        raise
    finally:
        field.close()
    results.note(results.weather())
    return render(results)


def _machine() -> dict[str, str | int]:
    return {"cores": os.cpu_count() or 0, "python": platform.python_version()}


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES.split():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks", description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="whole")
    parser.add_argument("--rows", type=int, help="finished jobs in the biggest table")
    parser.add_argument("--only", default=",".join(MEASURES), help="of: %(default)s")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--rounds", type=int, help="rounds of each measure")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-results.jsonl")
    arguments = parser.parse_args()
    scale = SCALES[arguments.scale]
    if arguments.rows:
        sizes = {*scale.finished, arguments.rows}
        scale = replace(scale, finished=tuple(sorted(size for size in sizes if size)))
    if arguments.rounds:
        scale = replace(
            scale,
            rounds=arguments.rounds,
            worker_rounds=arguments.rounds,
            table_rounds=arguments.rounds,
            http_rounds=arguments.rounds,
        )
    only = [name for name in arguments.only.split(",") if name]
    text, _ = run(scale, only=only, peers=not arguments.no_peers, path=arguments.out)
    print(text)


if __name__ == "__main__":
    main()
