"""The backends of `django.tasks` that keep tasks in the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import Command, Contender, Work, truncate


class DjangoTasksDB(Contender):
    """django-tasks-db: a worker runs one task at a time, and asks once a second when idle."""

    name: ClassVar[str] = "django-tasks-db"
    needs: ClassVar[tuple[str, ...]] = ("django.tasks", "django_tasks_db")
    has_batches: ClassVar[bool] = False
    drain_jobs: ClassVar[int] = 1_000
    pickup_setting: ClassVar[str] = "defaults (polls each second)"
    table: ClassVar[str] = "django_tasks_database_dbtaskresult"

    def django_settings(self) -> dict[str, Any]:
        """Make it the backend of django.tasks."""
        return {
            "INSTALLED_APPS": ["django_tasks_db"],
            "TASKS": {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
        }

    def commands(self, work: Work) -> list[Command]:
        """Return a worker for each process."""
        return [
            ["-m", "django", "db_worker", "--no-startup-delay", "--worker-id", f"w{n}", "-v0"]
            for n in range(work.processes)
        ]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what has not ended."""
        where = "status IN ('READY', 'RUNNING')"
        return int(run(f"SELECT count(*) FROM {self.table} WHERE {where}")[0][0])

    def reset(self) -> None:
        """Empty its table."""
        truncate(self.table)

    def enqueue(self, number: int) -> None:
        """Enqueue a task."""
        from tests.benchmarks.contenders.peers.tasks_django import noop

        noop.enqueue(number)


class DjangoOx(DjangoTasksDB):
    """django-ox: ten threads are its worker's best setting; it polls too."""

    name: ClassVar[str] = "django-ox"
    needs: ClassVar[tuple[str, ...]] = ("django.tasks", "django_ox")
    has_batches: ClassVar[bool] = True
    drain_jobs: ClassVar[int] = 1_600
    drain_setting: ClassVar[str] = "10 threads"
    table: ClassVar[str] = "django_ox_oxtask"

    def django_settings(self) -> dict[str, Any]:
        """Make it the backend of django.tasks."""
        return {
            "INSTALLED_APPS": ["django_ox"],
            "TASKS": {"default": {"BACKEND": "django_ox.backend.OxBackend"}},
        }

    def commands(self, work: Work) -> list[Command]:
        """Return a worker for each process."""
        worker = ["-m", "django", "ox_worker", "--concurrency", "10", "-v0"]
        return [worker for _ in range(work.processes)]

    def enqueue_batch(self, numbers: Sequence[int]) -> None:
        """Enqueue many by its own call."""
        from django_ox.bulk import enqueue_many

        from tests.benchmarks.contenders.peers.tasks_django import noop

        enqueue_many(noop, [((number,), {}) for number in numbers])
