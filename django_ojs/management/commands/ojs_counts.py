"""manage.py ojs_counts: show, check and repair the job counts by queue and state."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_ojs.spec.states import State
from django_ojs.storage.figures import counts


class Command(BaseCommand):
    help = (
        "Show how many jobs each queue has in each state. The numbers are stored counts. --check "
        "compares them with the jobs, which reads the whole table, and fails when they differ. "
        "--repair corrects them; workers and producers can go on meanwhile."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--check", action="store_true", help="compare the counts with the jobs")
        what.add_argument("--repair", action="store_true", help="correct the counts")

    def handle(self, *, check: bool, repair: bool, **options: Any) -> None:
        if not check and not repair:
            self._show()
            return
        wrong = counts.repair() if repair else counts.differences()
        for queue, state, counted, actual, counted_bytes, size in wrong:
            difference = f"{queue} {state}: counted {counted}, there are {actual}"
            if counted_bytes != size:
                difference += f"; counted {counted_bytes} bytes, there are {size}"
            self.stdout.write(difference)
        if not wrong:
            self.stdout.write("The counts are correct.")
        elif repair:
            self.stdout.write(f"{len(wrong)} counts were corrected.")
        else:
            raise CommandError(
                f"{len(wrong)} counts are wrong. `manage.py ojs_counts --repair` corrects them."
            )

    def _show(self) -> None:
        queues = counts.by_queue()
        if not queues:
            self.stdout.write("No queue has had a job yet.")
            return
        width = max(len(name) for name in [*queues, "queue"])
        self.stdout.write("  ".join([f"{'queue':<{width}}", *(f"{state:>10}" for state in State)]))
        for name, of_queue in queues.items():
            numbers = (f"{of_queue.get(state, 0):>10,}" for state in State)
            self.stdout.write("  ".join([f"{name:<{width}}", *numbers]))
