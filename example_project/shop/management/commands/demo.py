"""`manage.py demo`: place orders, work their jobs, kill a worker, check the ledger."""

from contextlib import ExitStack
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.demo import facts, ledger, node, rush, table, wipe
from example_project.demo.place import Placement, place
from example_project.demo.progress import Progress
from example_project.demo.watch import Run, job_states, watch
from example_project.demo.workers import Workers, stop_on_sigterm
from example_project.shop.catalogue import baskets


class Command(BaseCommand):
    """Show on a real database that no job is lost and no order is paid twice."""

    help = (
        "Place orders, work their jobs with real workers, kill one of them, and print the ledger."
    )

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
        run = self._work(workers)
        book = ledger.draw_up(facts.read(), placed, run)
        self.stdout.write("")
        for line in table.lines(book):
            self.stdout.write(line)
        if run.stalled:
            self.stdout.write(f"The workers stopped working; see {settings.VAR_DIR / 'logs'}.")
        if book.problems:
            raise CommandError("The ledger is wrong.\n" + "\n".join(book.problems))
        self.stdout.write(self.style.SUCCESS("The ledger is right."))
        self.stdout.write("")
        if problems := rush.show(self.stdout.write, logs=settings.VAR_DIR / "logs"):
            raise CommandError("A bounded queue broke its word.\n" + "\n".join(problems))

    def _prepare(self, *, yes: bool) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        foreign = wipe.foreign_orders()
        if foreign and not yes:
            raise CommandError(
                f"This database holds orders that were placed on the site ({foreign}). "
                "The demonstration would delete them; say --yes if it may."
            )
        wipe.wipe()

    def _place(self, count: int) -> Placement:
        book = baskets()[:count]
        progress = Progress(out=self.stdout, title="placing orders", total=len(book))
        placed = place(book, seen=progress.show)
        progress.close()
        self.stdout.write(
            f"{len(placed.committed):,} orders committed, {len(placed.rolled_back):,} rolled back "
            "after they had enqueued their jobs"
        )
        return placed

    def _work(self, count: int) -> Run:
        total = job_states().total()
        progress = Progress(out=self.stdout, title="working jobs  ", total=total)
        stop_on_sigterm()
        logs = settings.VAR_DIR / "logs"
        with ExitStack() as stack:
            if reason := node.lacking():
                self.stdout.write(f"{reason}: Python makes all the labels")
            else:
                url = stack.enter_context(node.node_worker(logs=logs))
                self.stdout.write(f"a worker in Node makes labels too, over {url}/ojs/v1")
            run = watch(stack.enter_context(Workers(count, logs=logs)), progress)
        progress.close()
        if run.killed is None:
            self.stdout.write("no worker was killed: none had a job in hand at the right moment")
        return run
