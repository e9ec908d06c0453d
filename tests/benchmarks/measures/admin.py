"""How long the pages of the admin take, with the usual searches, on the largest table."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.benchmarks.admin import MEDIAN_MS, SLOWEST_MS
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field

PAGE, SLOWEST = "admin page", "slowest request of the admin"
#: A row of each.
OVERVIEW, ANY = "overview", "any page"
#: The most milliseconds of each.
LIMITS = {PAGE: MEDIAN_MS, SLOWEST: SLOWEST_MS}


def measure(field: Field, scale: Scale) -> None:
    """Fill a database of the example's site in a process of its own, and request each page."""
    rows = scale.finished[-1]
    database = field.server.create(field.database_name("admin"))
    command = [sys.executable, "-m", "tests.benchmarks.admin", "--json", "--database", database]
    command += ["--rows", str(rows), "--rounds", str(scale.table_rounds)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    finally:
        field.server.drop(database)
    for page, times in found.items():
        for round_, took in enumerate(times):
            field.results.add(PAGE, page, round_, took)
    page = max(found, key=lambda page: max(found[page]))
    field.results.add(SLOWEST, ANY, 0, max(found[page]), setting=page)
    field.results.note(f"The admin was measured with {rows:,} jobs.")
