"""Send SIGKILL to a worker that runs jobs."""

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
    """A killed worker, and the jobs that it had claimed."""

    pid: int
    jobs: frozenset[UUID]


def kill_one(sessions: Collection[int]) -> Killed | None:
    """SIGKILL the busiest worker of these sessions; None when no worker has a job in flight."""
    candidates = [worker for worker in Worker.objects.all() if _session(worker.pid) in sessions]
    worker = max(candidates, key=lambda worker: len(_in_flight(worker)), default=None)
    if worker is None or worker.pid is None or not _in_flight(worker):
        return None
    with suppress(ProcessLookupError):
        # Stopped first: its jobs are read before another worker can recover them.
        os.kill(worker.pid, signal.SIGSTOP)
        jobs = _in_flight(worker)
        os.kill(worker.pid, signal.SIGKILL)
        return Killed(pid=worker.pid, jobs=jobs)
    return None


def _in_flight(worker: Worker) -> frozenset[UUID]:
    active = Job.objects.filter(state=State.ACTIVE, worker_id=worker.pk)
    return frozenset(active.values_list("pk", flat=True))


def _session(pid: int | None) -> int | None:
    try:
        return None if pid is None else os.getsid(pid)
    except ProcessLookupError:
        return None
