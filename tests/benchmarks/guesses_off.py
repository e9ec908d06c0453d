"""A worker without one of its guesses: see `tests.benchmarks.guesses`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

#: The guess that the workers of a run do without.
VARIABLE = "OJS_BENCH_WITHOUT"


def _replace(owner: Any, name: str, value: Any) -> None:
    if not hasattr(owner, name):
        raise AttributeError(f"{owner!r} has no {name}: the guess has moved.")
    setattr(owner, name, value)


def _claim_sizer() -> None:
    """Claim jobs for free slots only."""
    from django_ojs.worker.claim_sizer import ClaimSizer

    _replace(ClaimSizer, "target", property(lambda self: self.slots))


def _thread_limit() -> None:
    """Let all threads run jobs, however short these are."""
    from django_ojs.worker.thread_limit import ThreadLimit

    _replace(ThreadLimit, "submitted", lambda self, waiting: None)


def _group_window() -> None:
    """Store what has ended at once, and not what ends within three milliseconds."""
    from django_ojs.worker import completer

    _replace(completer, "BATCH_WINDOW", 0.0)


def _group_size() -> None:
    """Try whole groups again at once after the server stopped one."""
    from django_ojs.worker.outcome_group_size import GroupSize

    _replace(GroupSize, "reduce", lambda self, size, seconds: None)


def _claim_floors() -> None:
    """Start each claim from the beginning of the index."""
    from django_ojs.storage.claim_floors import Floors

    _replace(Floors, "_start", lambda self, queue, jobs, seconds: None)


def _kept_plans() -> None:
    """Have the server plan each claim and each completion."""
    from django_ojs.storage.dialects import kept_plans

    _replace(kept_plans, "rows", lambda *args, **kwargs: None)


def _asking_first() -> None:
    """Claim in each poll, without asking first whether there is a job."""
    from django_ojs.worker.claimer import Claimer

    _replace(Claimer, "_may_find", lambda self, queues: True)


def _kept_conditions() -> None:
    """Build the conditions of the maintenance again in each pass."""
    from django_ojs.worker import maintenance

    _replace(maintenance, "KEPT", 0.0)


def _one_question() -> None:
    """Run each step of the maintenance, without one statement that asks which have work."""
    from django_ojs.worker.maintenance import MaintenanceThread

    _replace(MaintenanceThread, "_without_work", lambda self, steps: set())


def _helping_steps() -> None:
    """Leave all maintenance to the holder of the lease."""
    from django_ojs.worker import maintenance

    _replace(maintenance, "_helping_steps", lambda: ())


def _poll_after_notification() -> None:
    """Poll at the usual interval right after a notification too."""
    from django_ojs.worker.claimer import Claimer

    original = Claimer.longest_wait

    def longest_wait(self: Claimer) -> float:
        notified_at, self._notified_at = self._notified_at, float("-inf")
        try:
            return original(self)
        finally:
            self._notified_at = notified_at

    _replace(Claimer, "longest_wait", longest_wait)


WITHOUT: dict[str, Callable[[], None]] = {
    "claim sizer": _claim_sizer,
    "thread limit": _thread_limit,
    "group window": _group_window,
    "group size": _group_size,
    "claim floors": _claim_floors,
    "kept plans": _kept_plans,
    "asking first": _asking_first,
    "kept conditions": _kept_conditions,
    "one question": _one_question,
    "helping steps": _helping_steps,
    "poll after notification": _poll_after_notification,
}


def switch_off() -> None:
    """Switch off what the environment names."""
    if name := os.environ.get(VARIABLE):
        WITHOUT[name]()
