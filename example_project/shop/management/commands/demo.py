"""`manage.py demo`: place orders, run their workflows, kill workers, check the ledger."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.demo import (
    cleanup,
    commission,
    full_queue,
    ledger,
    nightly,
    node,
    snapshot,
    stock_alerts,
    table,
)
from example_project.demo.monitor import Run, step_states, wait_for_workflows
from example_project.demo.placement import Placement, place_orders
from example_project.demo.progress import Progress, Reporter
from example_project.demo.stock_import import Imported, StockImport
from example_project.demo.workers import QUEUES, Workers, stop_on_sigterm
from example_project.shop.catalogue import baskets
from example_project.shop.jobs import COLLECTIONS


class Command(BaseCommand):
    """Show on a real database that no job is lost and no order is paid twice."""

    help = "Place orders, run their workflows with real workers, kill some, and print the ledger."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the size of the demonstration."""
        parser.add_argument("--orders", type=int, default=1000, help="how many orders to place")
        parser.add_argument("--workers", type=int, default=2, help="how many workers to run")
        parser.add_argument(
            "--yes", action="store_true", help="delete orders that came from the site as well"
        )

    def handle(self, *, orders: int, workers: int, yes: bool, **options: Any) -> None:
        """Run the demonstration. Raises CommandError when the ledger is not right."""
        if orders < 1 or workers < 1:
            raise CommandError("--orders and --workers: at least 1")
        stop_on_sigterm()
        self._out = Reporter(out=self.stdout)
        with self._out.ticking():
            self._out.wait_for("preparing the database")
            self._prepare(yes=yes)
            placed, imported = self._place_and_import(orders)
            run, commissioned = self._run_workflows(workers)
            self._out.wait_for("starting the site")
            problems = full_queue.show(self._out.write, logs=self._logs)
            self._out.wait_for("reading what the jobs have done")
            result = ledger.build_ledger(snapshot.read(), placed, run, imported)
            result = result.with_section(commission.section(commissioned))
        self.stdout.write("")
        for line in table.lines(result):
            self.stdout.write(line)
        if run.stalled:
            self.stdout.write(f"The workers stopped working; see {self._logs}.")
        if problems:
            problems.insert(0, "The bounded queue did not behave as documented.")
        if result.problems:
            problems += ["The ledger is wrong.", *result.problems]
        if problems:
            raise CommandError("\n".join(problems))
        self.stdout.write(self.style.SUCCESS("The ledger is right."))

    @property
    def _logs(self) -> Path:
        return Path(settings.VAR_DIR) / "logs"

    def _prepare(self, *, yes: bool) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        foreign = cleanup.foreign_orders()
        if foreign and not yes:
            raise CommandError(
                f"This database holds orders that were placed on the site ({foreign}). "
                "The demonstration would delete them; use --yes to allow it."
            )
        cleanup.delete_shop_data()

    def _place_and_import(self, count: int) -> tuple[Placement, Imported]:
        chosen = baskets()[:count]
        stock_alerts.ask()
        progress = Progress(out=self._out, title="placing orders   ", total=len(chosen))
        with StockImport(logs=self._logs, write=progress.write_line) as importing:

            def show(number: int) -> None:
                progress.show(number)
                importing.kill_when_due()

            placed = place_orders(chosen, on_progress=show)
            progress.close()
            self._out.write(
                f"{len(placed.committed):,} orders committed, {len(placed.rolled_back):,} rolled "
                "back after they had enqueued their workflow"
            )
            self._out.wait_for("importing the deliveries")
            imported = importing.wait()
        self._out.write(
            "all deliveries are imported; the run that ended the import continued after "
            f"{imported.continued_after:,} of them"
        )
        return placed, imported

    def _run_workflows(self, count: int) -> tuple[Run, commission.Commissioned]:
        total = step_states().total()
        progress = Progress(out=self._out, title="running workflows", total=total)
        self._out.wait_for("starting the workers")
        queues: tuple[str, ...] = QUEUES
        with ExitStack() as stack:
            if reason := node.unavailable_reason():
                self._out.write(f"{reason}: the workers in Python run all steps")
            else:
                queues = tuple(queue for queue in QUEUES if queue != COLLECTIONS)
                url = stack.enter_context(node.node_worker(logs=self._logs))
                self._out.write(
                    f"a worker in Node hands the parcels over to the carrier, over {url}/ojs/v1"
                )
            workers = stack.enter_context(Workers(count, logs=self._logs, queues=queues))
            order = stack.enter_context(
                commission.CommissionedOrder(logs=self._logs, write=progress.write_line)
            )
            run = wait_for_workflows(workers, progress, each_time=order.go_on)
            progress.close()
            self._out.wait_for("waiting for the order of many steps")
            commissioned = order.wait()
            self._out.wait_for("writing to the customers who wait for a product")
            stock_alerts.wait()
            self._out.wait_for("making the nightly report")
            if not run.stalled and (problems := nightly.show(self._out.write)):
                raise CommandError("\n".join(problems))
            self._out.wait_for("stopping the workers")
        if run.killed is None:
            self._out.write("no worker was killed: none had a job in flight at that moment")
        return run, commissioned
