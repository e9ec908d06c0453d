"""Celery with Redis, in a Django project."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

from tests.benchmarks.contenders.base import IN_A_CHAIN, Command, Contender, Work
from tests.benchmarks.redis_server import SOCKET_VARIABLE


class Celery(Contender):
    """Prefork with two processes; acknowledged late, as who must not lose a job runs it."""

    name: ClassVar[str] = "Celery + Redis"
    needs: ClassVar[tuple[str, ...]] = ("celery", "redis")
    needs_redis: ClassVar[bool] = True
    joins_transactions: ClassVar[bool] = False
    drain_jobs: ClassVar[int] = 3_000
    workflows: ClassVar[frozenset[str]] = frozenset({"group", "chains"})
    drain_setting: ClassVar[str] = "prefork 2, acks late, results ignored"
    pickup_setting: ClassVar[str] = "prefork 2, acks late"

    def django_settings(self) -> dict[str, Any]:
        """Name the broker."""
        return {
            "CELERY_BROKER_URL": f"redis+socket://{os.environ.get(SOCKET_VARIABLE)}",
            "CELERY_RESULT_BACKEND": f"redis+socket://{os.environ.get(SOCKET_VARIABLE)}",
            "CELERY_TASK_IGNORE_RESULT": True,
            "CELERY_TASK_ACKS_LATE": True,
            "CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP": True,
        }

    def commands(self, work: Work) -> list[Command]:
        """Return a prefork worker for each process asked for; each has two below it."""
        app = "tests.benchmarks.contenders.peers.tasks_celery"
        return [
            ["-m", "celery", "-A", app, "worker", "-c", "2", "-l", "ERROR", "-n", f"w{n}@bench"]
            for n in range(work.processes)
        ]

    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Count what is queued or unacknowledged, in Redis."""
        return int(self._redis.llen("celery")) + int(self._redis.hlen("unacked"))

    def setup(self) -> None:
        """Need no tables."""

    def reset(self) -> None:
        """Empty the broker."""
        self._redis.flushall()

    def enqueue(self, number: int) -> None:
        """Send one message."""
        from tests.benchmarks.contenders.peers.tasks_celery import noop

        noop.delay(number)

    def enqueue_batch(self, numbers: Sequence[int]) -> None:
        """Send a group, the nearest there is to a batch."""
        from celery import group

        from tests.benchmarks.contenders.peers.tasks_celery import noop

        group(noop.s(number) for number in numbers).apply_async()

    def fill(self, numbers: Sequence[int], work: Work) -> None:
        """Send jobs of the wanted kind; a group has a callback, without which nothing waits."""
        from celery import chain, chord

        from tests.benchmarks.contenders.peers.tasks_celery import ended, member, noop

        if work.kind == "group":
            chord((member.s(number) for number in numbers), ended.si()).apply_async()
        elif work.kind == "chains":
            for start in range(0, len(numbers), IN_A_CHAIN):
                some = numbers[start : start + IN_A_CHAIN]
                chain(*(noop.si(number) for number in some)).apply_async()
        else:
            super().fill(numbers, work)

    def committed_at(self, number: int) -> float:
        """Send one message; it is there when the call returns."""
        import time

        self.enqueue(number)
        return time.time()

    @cached_property
    def _redis(self) -> Any:
        import redis

        return redis.Redis(unix_socket_path=os.environ[SOCKET_VARIABLE])
