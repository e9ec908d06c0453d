"""procrastinate, through its Django app: jobs join Django's transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import Command, Contender, Work, truncate


class Procrastinate(Contender):
    """Two jobs at a time is the fastest setting of its worker for plain functions."""

    name: ClassVar[str] = "procrastinate"
    needs: ClassVar[tuple[str, ...]] = ("procrastinate",)
    drain_jobs: ClassVar[int] = 1_600
    drain_setting: ClassVar[str] = "threads, 2 at a time"
    pickup_setting: ClassVar[str] = "threads, 2 at a time"

    def django_settings(self) -> dict[str, Any]:
        """Install its app, and say where the task is."""
        return {
            "INSTALLED_APPS": ["procrastinate.contrib.django"],
            "PROCRASTINATE_IMPORT_PATHS": ["tests.benchmarks.contenders.peers.tasks_procrastinate"],
        }

    def commands(self, work: Work) -> list[Command]:
        """Return a worker for each process."""
        worker = ["-m", "django", "procrastinate", "worker", "--concurrency", "2"]
        return [worker for _ in range(work.processes)]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what has not ended."""
        where = "status IN ('todo', 'doing')"
        return int(run(f"SELECT count(*) FROM procrastinate_jobs WHERE {where}")[0][0])

    def reset(self) -> None:
        """Empty its tables."""
        truncate("procrastinate_jobs", "procrastinate_events", "procrastinate_workers")

    def enqueue(self, number: int) -> None:
        """Defer one."""
        from tests.benchmarks.contenders.peers.tasks_procrastinate import noop

        noop.defer(number=number)

    def enqueue_batch(self, numbers: Sequence[int]) -> None:
        """Defer many by one call."""
        from tests.benchmarks.contenders.peers.tasks_procrastinate import noop

        noop.batch_defer(*[{"number": number} for number in numbers])
