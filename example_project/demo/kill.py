"""Kill a worker the hard way, in the middle of its work."""

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from django_ojs.models import Job, Worker
from django_ojs.spec.states import State


@dataclass(frozen=True, kw_only=True, slots=True)
class Killed:
    """A worker that is no more, and the jobs it had claimed."""

    pid: int
    jobs: frozenset[UUID]


def kill_one(sessions: Collection[int]) -> Killed | None:
    """SIGKILL the busiest worker of these sessions; None when no worker has a job in hand."""
    ours = [worker for worker in Worker.objects.all() if _session(worker.pid) in sessions]
    worker = max(ours, key=lambda worker: len(_in_hand(worker)), default=None)
    if worker is None or worker.pid is None or not _in_hand(worker):
        return None
    with suppress(ProcessLookupError):
        # Frozen first, so that what it holds can be read before anybody rescues it.
        os.kill(worker.pid, signal.SIGSTOP)
        jobs = _in_hand(worker)
        os.kill(worker.pid, signal.SIGKILL)
        return Killed(pid=worker.pid, jobs=jobs)
    return None


def _in_hand(worker: Worker) -> frozenset[UUID]:
    held = Job.objects.filter(state=State.ACTIVE, worker_id=worker.pk)
    return frozenset(held.values_list("pk", flat=True))


def _session(pid: int | None) -> int | None:
    try:
        return None if pid is None else os.getsid(pid)
    except ProcessLookupError:
        return None
