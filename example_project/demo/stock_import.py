"""The import of the deliveries: its worker is killed half-way, and the next run continues."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from django.core.management.base import CommandError

from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.models import Job
from example_project.demo.kill import kill_one
from example_project.demo.workers import Workers
from example_project.shop import stock
from example_project.shop.jobs import IMPORTS, import_deliveries

_POLL_SECONDS = 0.05
#: Without progress for this long, the wait ends.
_STALLED_AFTER_SECONDS = 90.0
#: The worker is killed when this share of the deliveries is imported.
_KILL_AT = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The result. `killed_at`: the deliveries in the checkpoint when its worker was killed."""

    killed_at: int | None
    continued_after: int


class StockImport:
    """The import, by a worker of its own, from entry to exit."""

    def __init__(self, *, logs: Path, write: Callable[[str], object]) -> None:
        """Each event is written with `write`."""
        self._workers = Workers(1, logs=logs, queues=[IMPORTS], name="import")
        self._logs = logs
        self._write = write
        self._killed_at: int | None = None

    def __enter__(self) -> Self:
        """Enqueue the job and start the worker."""
        self._job = import_deliveries.enqueue().id
        self._workers.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the worker."""
        self._workers.__exit__(None, None, None)

    def kill_when_due(self) -> None:
        """Kill the worker, once, when enough is imported."""
        if self._killed_at is not None or self._imported < _KILL_AT * len(stock.deliveries()):
            return
        if killed := kill_one(self._workers.sessions):
            self._killed_at = self._imported
            self._write(
                f"killed worker pid {killed.pid}, which had imported {self._killed_at:,} of "
                f"{len(stock.deliveries()):,} deliveries"
            )

    def wait(self) -> Imported:
        """Return when the import has ended. Raises CommandError if it fails or does not go on."""
        changed, before = time.monotonic(), self._imported
        while not (job := Job.objects.get(pk=self._job)).finished_at:
            self.kill_when_due()
            if self._imported != before:
                changed, before = time.monotonic(), self._imported
            if not self._workers.running or time.monotonic() - changed > _STALLED_AFTER_SECONDS:
                break
            time.sleep(_POLL_SECONDS)
        if job.state != "completed":
            raise CommandError(f"The import is {job.state}; see {self._logs}: {job.error}")
        assert isinstance(job.result, dict)
        return Imported(killed_at=self._killed_at, continued_after=job.result["continued_after"])

    @property
    def _imported(self) -> int:
        found = Checkpoint.of([self._job]).get(self._job)
        return int(found.state) if found else 0  # type: ignore[arg-type]  # the handler saves numbers
