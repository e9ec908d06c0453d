"""What workers run now, and what a worker ran last, from bounded ranges of existing indexes."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Count, Min

from django_ojs.models import Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.jobs import listing
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.keyset import PageRequest
from django_ojs.reports import ended_workers
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed

#: How many of the jobs that completed last are read to find those of one worker.
MOST_COMPLETED: Final = 10_000
_NO_FAILURE: Final = frozenset(
    {AttemptOutcome.RETURNED, AttemptOutcome.SHUTDOWN, AttemptOutcome.CANCELLED}
)
#: The most running jobs of a queue that are read.
MOST_RUNNING: Final = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRun:
    """A run that ended. `outcome` is None if the job completed."""

    job: UUID
    type: str
    queue: str
    outcome: AttemptOutcome | None
    started_at: datetime | None
    finished_at: datetime

    @property
    def failed(self) -> bool:
        """Whether the run failed: it was not completed, cancelled, returned or stopped."""
        return self.outcome is not None and self.outcome not in _NO_FAILURE

    @property
    def lasted(self) -> timedelta | None:
        """The duration of the run, if its start is known."""
        return None if self.started_at is None else elapsed(self.started_at, self.finished_at)


def of(worker_id: str, *, limit: int = 20) -> list[EndedRun]:
    """Return the last runs of a worker, the latest first.

    They are found among the 10,000 jobs that completed last and the latest unsuccessful runs, of
    all workers: an index by worker would cost every claim and every completion.
    """
    completed = listing.list_jobs(
        JobFilter(worker_id=worker_id, states=(State.COMPLETED,)),
        PageRequest(limit=limit),
        scan_limit=MOST_COMPLETED,
    )
    found = [
        EndedRun(
            job=job.pk,
            type=job.type,
            queue=job.queue,
            outcome=None,
            started_at=job.started_at,
            finished_at=job.finished_at,
        )
        for job in completed.rows
        if job.finished_at is not None
    ]
    columns = ("job_id", "job__type", "job__queue", "outcome", "started_at", "finished_at")
    failed = ended_workers.latest_runs().filter(worker_id=worker_id).order_by("-pk")
    found += [
        EndedRun(
            job=job,
            type=type,
            queue=queue,
            outcome=AttemptOutcome(outcome),
            started_at=started_at,
            finished_at=finished_at,
        )
        for job, type, queue, outcome, started_at, finished_at in failed.values_list(*columns)[
            :limit
        ]
    ]
    return sorted(found, key=lambda run: run.finished_at, reverse=True)[:limit]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotHolder:
    """The type that holds the most slots of a queue, how many it holds, and since when."""

    type: str
    slots: int
    since: datetime


def holders(queues: Collection[str]) -> dict[str, SlotHolder]:
    """Return for each queue the type that holds the most of its slots now."""
    active = Job.primary.filter(state=State.ACTIVE, queue__in=queues)
    counted = active.values_list("queue", "type").annotate(
        number=Count("pk"), first=Min("started_at")
    )
    found: dict[str, SlotHolder] = {}
    for queue, type, number, first in counted.order_by("-number", "type"):
        if first is not None:
            found.setdefault(queue, SlotHolder(type=type, slots=number, since=first))
    return found


def running(queue: str, worker_ids: Collection[str]) -> dict[str, list[Job]]:
    """Return the running jobs of a queue by worker, longest running first."""
    held = Job.primary.filter(state=State.ACTIVE, queue=queue, worker_id__in=worker_ids)
    found: dict[str, list[Job]] = defaultdict(list)
    for job in held.order_by("started_at", "pk").only(*listing.LISTED_FIELDS)[:MOST_RUNNING]:
        found[job.worker_id or ""].append(job)
    return dict(found)
