"""What a queue of jobs is, in as few lines as possible: the judge of the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django_ojs.spec.isolation import ISOLATED_AFTER
from tests.spec.test_states import ROWS

HOUR = 3_600
KEEP, KEEP_DEAD = 5 * HOUR, 9 * HOUR
ENDED = ("completed", "cancelled", "discarded")


@dataclass
class Entry:
    key: UUID
    queue: str
    priority: int
    max_attempts: int
    state: str
    place: tuple[int, int]
    due: int
    expires: int
    attempt: int = 0
    run: int = 0
    returned: int = 0
    worker: str = ""
    lease: int = 0
    finished: int = 0
    dead: bool = False
    traces: int = 0
    #: The last of its traces is of a run that was postponed.
    is_postponed: bool = False
    #: The workers that died with it; how often beside other jobs.
    killed: set[str] = field(default_factory=set)
    lost_with_others: int = 0

    def note(self, *, is_postponed: bool = False) -> None:
        """A run leaves a trace."""
        self.traces += 1
        self.is_postponed = is_postponed


class Model:
    def __init__(self) -> None:
        self.jobs: dict[UUID, Entry] = {}
        self.paused: set[str] = set()
        self.now = 0

    def of(self, *states: str) -> list[Entry]:
        return [job for job in self.jobs.values() if job.state in states]

    def move(self, job: Entry, event: str, state: str, **values: Any) -> None:
        assert (job.state, event, state) in ROWS
        now = {"place": (self.now, 0)} if state == "available" else {"finished": self.now}
        for name, value in ({"state": state} | now | values).items():
            setattr(job, name, value)

    def promote(self) -> None:
        due = [job for job in self.of("scheduled", "retryable") if job.due <= self.now]
        for n, job in enumerate(sorted(due, key=lambda job: (job.due, job.key))):
            self.move(job, "timer", "available", place=(self.now, n))

    def expire(self) -> None:
        for job in self.of("scheduled", "available", "pending", "retryable"):
            if job.expires <= self.now:
                self.move(job, "expire", "discarded")

    def fetch(self, queues: Sequence[str], count: int, worker: str) -> list[UUID]:
        found = [
            job
            for job in self.of("available")
            if job.queue in queues and job.queue not in self.paused and job.expires > self.now
        ]
        found.sort(key=lambda job: (queues.index(job.queue), -job.priority, job.place, job.key))
        for job in found[:count]:
            values = {"run": job.run + 1, "worker": worker, "lease": self.now + HOUR}
            self.move(job, "fetch", "active", attempt=job.attempt + 1, **values)
        return [job.key for job in found[:count]]

    def lose(self, job: Entry, event: str, again: str) -> None:
        job.note()
        if job.attempt - job.returned < job.max_attempts:
            self.move(job, event, again, due=self.now + HOUR)
        else:
            self.move(job, event, "discarded", dead=True)

    def rescue(self, worker: str) -> int:
        """Of jobs that were lost together, the first losses spend no attempt."""
        orphans = [job for job in self.of("active") if job.worker == worker]
        is_alone = len(orphans) == 1
        for job in orphans:
            job.killed.add(worker)
            if is_alone or job.lost_with_others >= ISOLATED_AFTER:
                self.lose(job, "lapse", "available")
            else:
                job.note()
                job.lost_with_others += 1
                self.move(job, "lapse", "available", returned=job.returned + 1)
        if is_alone and (cause := orphans[0]).lost_with_others >= ISOLATED_AFTER:
            for job in self.of("available"):
                is_beside = job is not cause and job.killed & cause.killed
                if is_beside and job.lost_with_others >= ISOLATED_AFTER:
                    job.lost_with_others = ISOLATED_AFTER - 1
        return len(orphans)

    def prune(self) -> None:
        for job in self.of(*ENDED):
            if job.finished <= self.now - (KEEP_DEAD if job.dead else KEEP):
                del self.jobs[job.key]

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((job.queue, job.state) for job in self.jobs.values())
