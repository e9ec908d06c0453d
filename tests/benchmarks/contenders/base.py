"""What a contender must be able to do: take jobs in, and have them run by its own worker.

A contender is made twice: by the harness, which needs only the worker's command and the questions
to the database; and by a producer process, which has the contender's library and settings.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

#: Says to the settings module and the producer whose process this is.
VARIABLE = "OJS_BENCH_CONTENDER"

#: Jobs in one call of the batch measure.
BATCH = 1000

#: Jobs of each chain, of the kind of work "chains".
IN_A_CHAIN = 5

#: Jobs with steps that run at a time.
AT = 8

Command = Sequence[str]


def steps_of(kind: str) -> int | None:
    """Return how many steps each run has of such a kind of work; 0 is one that waits for a signal.

    None: it has none.
    """
    name, _, number = kind.partition(" ")
    return int(number) if name == "steps" else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a worker is asked to do: which handler, how many processes, which settings."""

    kind: str = "noop"
    processes: int = 1
    #: Of the contender's own choosing, in words and in environment variables.
    setting: str = ""
    environment: Mapping[str, str] | None = None


class Contender(ABC):
    """One way to have jobs run. Numbers are jobs' numbers, which their handlers record."""

    name: ClassVar[str]
    #: Modules without which it is left out.
    needs: ClassVar[tuple[str, ...]] = ()
    needs_redis: ClassVar[bool] = False
    joins_transactions: ClassVar[bool] = True
    has_batches: ClassVar[bool] = True
    #: The kinds of work that have the steps of workflows: "group", "chains".
    workflows: ClassVar[frozenset[str]] = frozenset()
    #: About what one worker process does in three seconds.
    drain_jobs: ClassVar[int]
    #: The setting with which its worker is at its best, and with which it reacts at its best.
    drain_setting: ClassVar[str] = "defaults"
    pickup_setting: ClassVar[str] = "defaults"

    @classmethod
    def missing(cls) -> list[str]:
        """Return the modules that are not installed."""
        return [module for module in cls.needs if find_spec(module) is None]

    # What the harness asks.

    def environment(self, work: Work) -> dict[str, str]:
        """Return what a worker's environment must hold besides the common variables."""
        return dict(work.environment or {})

    @abstractmethod
    def commands(self, work: Work) -> list[Command]:
        """Return the arguments of `python` that start a worker of so many processes."""

    @abstractmethod
    def pending(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Return how many jobs have not ended. `run` runs SQL on the contender's database."""

    # What the producer's process does.

    def django_settings(self) -> dict[str, Any]:
        """Return settings to add; `INSTALLED_APPS` is appended to."""
        return {}

    def setup(self) -> None:
        """Make the tables."""
        from django.core.management import call_command

        call_command("migrate", verbosity=0)

    @abstractmethod
    def reset(self) -> None:
        """Remove all jobs."""

    @abstractmethod
    def enqueue(self, number: int) -> None:
        """Store one job, in the transaction that is open, else in its own."""

    def enqueue_batch(self, numbers: Sequence[int]) -> None:
        """Store many jobs by the contender's own call for that."""
        raise NotImplementedError

    def singles(self, numbers: Sequence[int]) -> float:
        """Store jobs one by one. Return the seconds it took."""
        began = time.perf_counter()
        for number in numbers:
            self.enqueue(number)
        return time.perf_counter() - began

    def batches(self, numbers: Sequence[int], size: int = BATCH) -> float:
        """Store jobs in batches. Return the seconds it took."""
        parts = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        began = time.perf_counter()
        for part in parts:
            self.enqueue_batch(part)
        return time.perf_counter() - began

    def fill(self, numbers: Sequence[int], work: Work) -> None:
        """Store jobs for a worker, the fast way."""
        if self.has_batches:
            self.batches(numbers)
        else:
            self.singles(numbers)

    def committed_at(self, number: int) -> float:
        """Store one job. Return when it was committed, in seconds since the epoch."""
        from django.db import transaction

        moments: list[float] = []
        with transaction.atomic():
            # Registered before anything the contender may do after the commit.
            transaction.on_commit(lambda: moments.append(time.time()))
            self.enqueue(number)
        return moments[0]


class Durable(Contender):
    """One that runs functions in durable steps, of kinds such as "steps 10"; `AT` at a time.

    A run notes its start; one that waits for a signal notes that the wait is over.
    """

    steps_setting: ClassVar[str]

    @abstractmethod
    def start_run(self, number: int) -> None:
        """Have a run of one step started, in a transaction of its own."""

    @abstractmethod
    def signal(self, number: int) -> None:
        """Send the signal for which a run waits. It is committed when this returns."""

    @abstractmethod
    def waiting(self, run: Callable[[str], list[tuple[Any, ...]]]) -> int:
        """Return how many runs wait for a signal."""


def truncate(*tables: str) -> None:
    """Empty tables on Django's connection."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY CASCADE")
