"""django-q2 with the ORM as its broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import Command, Contender, Work, truncate


class DjangoQ2(Contender):
    """Two workers that take ten tasks at a time and store no successes: its best setting here."""

    name: ClassVar[str] = "django-q2"
    needs: ClassVar[tuple[str, ...]] = ("django_q",)
    has_batches: ClassVar[bool] = False
    drain_jobs: ClassVar[int] = 2_500
    drain_setting: ClassVar[str] = "2 workers, bulk 10, successes not kept"
    pickup_setting: ClassVar[str] = "2 workers, polls each 200 ms"

    def django_settings(self) -> dict[str, Any]:
        """Set its cluster up."""
        return {
            "INSTALLED_APPS": ["django_q"],
            "Q_CLUSTER": {
                "name": "bench",
                "orm": "default",
                "workers": 2,
                "bulk": 10,
                "queue_limit": 50,
                "poll": 0.2,
                "timeout": 60,
                "retry": 120,
                "recycle": 1_000_000,
                "save_limit": -1,
                "log_level": "WARNING",
            },
        }

    def commands(self, work: Work) -> list[Command]:
        """Return a cluster for each process."""
        return [["-m", "django", "qcluster"] for _ in range(work.processes)]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what has not ended."""
        return int(run("SELECT count(*) FROM django_q_ormq")[0][0])

    def reset(self) -> None:
        """Empty its tables."""
        truncate("django_q_ormq", "django_q_task")

    def enqueue(self, number: int) -> None:
        """Store a task."""
        from django_q.tasks import async_task

        async_task("tests.benchmarks.starts.record_start", number)
