"""`manage.py ojs_loadjobs`: add any number of made-up jobs, to see the admin with a large table."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from example_project.load import rows
from example_project.load.store import atomic, settle, store

#: Jobs of one transaction: some seconds.
CHUNK = 100_000


class Command(BaseCommand):
    """Add made-up jobs."""

    help = (
        "Add made-up jobs: a week of finished ones (97 % completed), up to 200,000 that are live, "
        "dead letters with their failed runs, and the figures of the last day. Existing jobs stay; "
        "no worker is needed, and one that runs will work the live ones."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the number, the share of dead letters, and the range."""
        parser.add_argument("number", type=int, help="jobs to add, such as 10000000")
        parser.add_argument(
            "--dead", type=float, default=0.02, help="share of dead letters (default: %(default)s)"
        )
        parser.add_argument("--seed", type=int, default=1, help="other numbers, other jobs")
        parser.add_argument(
            "--from", type=int, default=0, dest="first", help="go on after so many of them"
        )
        parser.add_argument("--to", type=int, dest="last", help="stop after so many of them")

    def handle(
        self,
        *,
        number: int,
        dead: float,
        seed: int,
        first: int,
        last: int | None,
        **options: Any,
    ) -> None:
        """Add the jobs."""
        if number < 1 or not 0 <= dead <= 0.9 or not 0 <= first <= number:
            raise CommandError("number must be at least 1, and --dead from 0 to 0.9.")
        now, began = timezone.now(), time.monotonic()
        end = number if last is None else min(last, number)
        for start in range(first, end, CHUNK):
            until = min(end, start + CHUNK)
            made = list(rows.jobs(start, until, number, now=now, dead=dead, seed=seed))
            with atomic():
                store("ojs_job", rows.JOB_COLUMNS, [job for job, _ in made])
                store(
                    "ojs_attempt", rows.ATTEMPT_COLUMNS, [run for _, runs in made for run in runs]
                )
            rate = (until - first) / (time.monotonic() - began)
            self.stdout.write(f"\r{until:,} of {number:,} jobs, {rate:,.0f}/s", ending="")
            self.stdout.flush()
        if end == number:
            figures = rows.rollups(now, jobs_a_day=max(1, number // 7), seed=seed)
            with atomic():
                store("ojs_rollup", rows.ROLLUP_COLUMNS, list(figures))
        self.stdout.write("\nVacuuming, as autovacuum does later.")
        settle()
        self.stdout.write(self.style.SUCCESS("Done."))
