"""Which job enqueued which (ojs-execution-history §5): the parent and the root of new jobs."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django_ojs.models import Job
from django_ojs.spec.envelope import Envelope, distinct
from django_ojs.spec.ids import parse_id
from django_ojs.storage.claimed_job import Claimed, running


def fill_in(envelopes: Sequence[Envelope], job: Claimed) -> None:
    """Make the job that enqueues these envelopes the parent of each that names none."""
    for envelope in distinct(envelopes):
        if envelope.parent_id is None:
            envelope.parent_id, envelope.root_id = job.id, root_of(job)


def of_running_job() -> Mapping[str, str]:
    """Return the lineage of jobs that the running job enqueues later; empty without one."""
    job = running.get()
    return {} if job is None else {"parent_id": str(job.id), "root_id": str(root_of(job))}


def root_of(job: Claimed | Job) -> UUID:
    """Return the first ancestor of a job: itself, if it has no parent."""
    known: Any = job.options.get("root_id") or job.options.get("parent_id")
    return job.id if known is None else parse_id(known)


def find_roots(envelopes: Sequence[Envelope], queues: Collection[str] | None) -> None:
    """Set the root of jobs whose client named only the parent, in one query if there are any.

    `queues` are the ones that the caller may use; it must learn nothing about jobs of other queues.
    None means all queues.
    """
    first = distinct(envelopes)
    wanted = {e.parent_id for e in first if e.root_id is None and e.parent_id is not None}
    if not wanted:
        return
    parents = Job.primary.filter(pk__in=wanted).only("options")
    if queues is not None:
        parents = parents.filter(Job.in_queues(queues))
    roots = {parent.pk: root_of(parent) for parent in parents}
    for envelope in first:
        if envelope.root_id is None and envelope.parent_id is not None:
            envelope.root_id = roots.get(envelope.parent_id)
