"""The descendants of a job (ojs-execution-history §7.2): the jobs it enqueued, and so on."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django.db.models import QuerySet

from django_ojs.models import Job

#: The most descendants that are shown, because a handler may enqueue a million jobs.
MAX_DESCENDANTS: Final = 1_000
#: The most generations that are shown. If each run enqueues the next job, there is a generation for
#: every run. Each takes a query, and JSON that is nested much deeper cannot be written or read.
MAX_GENERATIONS: Final = 100

_FIELDS: Final = ("id", "type", "queue", "original_queue", "state", "dead_letter", "parent_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class Descendant:
    """A job with the jobs that it enqueued."""

    job: Job
    children: list["Descendant"] = field(default_factory=list)


def children_of(parents: Collection[UUID], queues: Collection[str] | None = None) -> QuerySet[Job]:
    """Return the jobs that these jobs enqueued, oldest first; with `queues` only those in them."""
    found = Job.primary.filter(parent_id__in=parents).order_by("pk").only(*_FIELDS)
    return found if queues is None else found.filter(Job.in_queues(queues))


def descendants(
    job_id: UUID, *, queues: Collection[str] | None = None, limit: int = MAX_DESCENDANTS
) -> tuple[list[Descendant], bool]:
    """Return a job's descendants, `limit` jobs at most, and whether there are more.

    Each generation takes one query, up to `MAX_GENERATIONS`, and the oldest come first. With
    `queues`, a job of another queue is left out with its descendants.
    """
    root: list[Descendant] = []
    # Clients name the parents of their jobs, so two jobs may name each other.
    lists, seen = {job_id: root}, {job_id}
    left = limit
    generation = [job_id]
    depth = 0
    while True:
        found = [job for job in children_of(generation, queues)[: left + 1] if job.pk not in seen]
        if not found or depth == MAX_GENERATIONS:
            return root, bool(found)
        depth += 1
        generation = [job.pk for job in found[:left]]
        seen.update(generation)
        for job in found[:left]:
            assert job.parent_id is not None
            each = Descendant(job=job)
            lists[job.parent_id].append(each)
            lists[job.pk] = each.children
        if len(found) > left:
            return root, True
        left -= len(found)
