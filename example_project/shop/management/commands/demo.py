"""`manage.py demo`: place orders, run their jobs, kill a worker, check the ledger."""

from contextlib import ExitStack
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.demo import cleanup, full_queue, ledger, nightly, node, snapshot, table
from example_project.demo.monitor import Run, job_states, wait_for_jobs
from example_project.demo.placement import Placement, place_orders
from example_project.demo.progress import Progress
from example_project.demo.workers import Workers, stop_on_sigterm
from example_project.shop.catalogue import baskets


class Command(BaseCommand):
    """Show on a real database that no job is lost and no order is paid twice."""

    help = "Place orders, run their jobs with real workers, kill one of them, and print the ledger."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the size of the demonstration."""
        parser.add_argument("--orders", type=int, default=2500, help="how many orders to place")
        parser.add_argument("--workers", type=int, default=2, help="how many workers to run")
        parser.add_argument(
            "--yes", action="store_true", help="delete orders that came from the site as well"
        )

    def handle(self, *, orders: int, workers: int, yes: bool, **options: Any) -> None:
        """Run the demonstration. Raises CommandError when the ledger is not right."""
        if orders < 1 or workers < 1:
            raise CommandError("--orders and --workers: at least 1")
        self._prepare(yes=yes)
        placed = self._place(orders)
        run = self._run_jobs(workers)
        result = ledger.build_ledger(snapshot.read(), placed, run)
        self.stdout.write("")
        for line in table.lines(result):
            self.stdout.write(line)
        if run.stalled:
            self.stdout.write(f"The workers stopped working; see {settings.VAR_DIR / 'logs'}.")
        if result.problems:
            raise CommandError("The ledger is wrong.\n" + "\n".join(result.problems))
        self.stdout.write(self.style.SUCCESS("The ledger is right."))
        self.stdout.write("")
        if problems := full_queue.show(self.stdout.write, logs=settings.VAR_DIR / "logs"):
            raise CommandError(
                "The bounded queue did not behave as documented.\n" + "\n".join(problems)
            )

    def _prepare(self, *, yes: bool) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        foreign = cleanup.foreign_orders()
        if foreign and not yes:
            raise CommandError(
                f"This database holds orders that were placed on the site ({foreign}). "
                "The demonstration would delete them; use --yes to allow it."
            )
        cleanup.delete_shop_data()

    def _place(self, count: int) -> Placement:
        chosen = baskets()[:count]
        progress = Progress(out=self.stdout, title="placing orders", total=len(chosen))
        placed = place_orders(chosen, on_progress=progress.show)
        progress.close()
        self.stdout.write(
            f"{len(placed.committed):,} orders committed, {len(placed.rolled_back):,} rolled back "
            "after they had enqueued their jobs"
        )
        return placed

    def _run_jobs(self, count: int) -> Run:
        total = job_states().total()
        progress = Progress(out=self.stdout, title="running jobs  ", total=total)
        stop_on_sigterm()
        logs = settings.VAR_DIR / "logs"
        with ExitStack() as stack:
            if reason := node.unavailable_reason():
                self.stdout.write(f"{reason}: Python makes all the labels")
            else:
                url = stack.enter_context(node.node_worker(logs=logs))
                self.stdout.write(f"a worker in Node makes labels as well, over {url}/ojs/v1")
            run = wait_for_jobs(stack.enter_context(Workers(count, logs=logs)), progress)
            progress.close()
            if not run.stalled and (problems := nightly.show(self.stdout.write)):
                raise CommandError("\n".join(problems))
        if run.killed is None:
            self.stdout.write("no worker was killed: none had a job in flight at that moment")
        return run
