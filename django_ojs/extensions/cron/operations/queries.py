"""Read cron jobs and their runs."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Now

from django_ojs.extensions.cron.models import CronJob, CronRun, CronRunPhase
from django_ojs.hooks import kept
from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.operations.keyset import FIRST_PAGE, Page, PageRequest
from django_ojs.spec.errors import NotFound
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage.dialects.expressions import OneOf, Texts


def page(
    wanted: PageRequest = FIRST_PAGE,
    *,
    enabled: bool | None = None,
    text: str = "",
    within: Collection[str] | None = None,
) -> Page[CronJob]:
    """Return a page of the cron jobs, by name.

    `text` is a part of the name. `within` are the queues that the caller may use.
    """
    found = CronJob.primary.all()
    if text:
        found = found.filter(name__contains=text)
    if enabled is not None:
        found = found.filter(enabled=enabled)
    if within is not None:
        found = found.filter(queue__in=sorted(within))
    return keyset.page(found, {"name": str}, wanted)


def get(name: str) -> CronJob:
    """Return a cron job. Raises NotFound."""
    # PostgreSQL cannot store a text with a NUL.
    found = None if "\0" in name else CronJob.primary.filter(pk=name).first()
    if found is None:
        raise not_found(name)
    return found


def lock(name: str) -> tuple[CronJob, datetime]:
    """Return a cron job, locked until the transaction ends, and the time. Raises NotFound."""
    found = CronJob.primary.select_for_update().annotate(now=Now()).filter(pk=name).first()
    if found is None:
        raise not_found(name)
    return found, found.now


def not_found(name: str) -> NotFound:
    """Return the error for an unknown cron job."""
    details = {"resource_type": "cron_job"}
    if name.isprintable():
        details["resource_id"] = name
    return NotFound("There is no cron job with this name.", details=details)


def runs(name: str) -> QuerySet[CronRun]:
    """Return the stored runs of a cron job, even of a removed one, the latest first."""
    return CronRun.primary.filter(name=name).order_by("-id")


def last_jobs(names: Collection[str]) -> dict[str, Job]:
    """Return the job of the last run of each cron job, if it is still stored, by name."""
    last = CronRun.primary.filter(name=OuterRef("pk")).order_by("-id").values("job_id")[:1]
    found = CronJob.primary.filter(pk__in=names).annotate(last=Subquery(last))
    keys = {name: key for name, key in found.values_list("pk", "last") if key is not None}
    jobs = Job.primary.in_bulk(keys.values())
    return {name: jobs[key] for name, key in keys.items() if key in jobs}


def split(names: Collection[str]) -> tuple[dict[str, list[CronRun]], list[CronRun]]:
    """Return the runs that have not ended, by name, the earliest first, and the ended ones.

    A run has ended when its job has: it was completed, cancelled or discarded, or is not stored any
    more.
    """
    runs = CronRun.primary.filter(OneOf("name", Texts(list(names)))).order_by("id")
    rows = list(runs.exclude(phase=CronRunPhase.ENDED))
    going_on = unended_jobs([run.job_id for run in rows])
    by_name: dict[str, list[CronRun]] = {}
    for run in rows:
        if run.job_id in going_on:
            by_name.setdefault(run.name, []).append(run)
    return by_name, [run for run in rows if run.job_id not in going_on]


def unended_jobs(keys: Collection[UUID]) -> set[UUID]:
    """Return which of these jobs have not ended; jobs in the outbox have not."""
    if not keys:
        return set()
    states = dict(Job.primary.filter(OneOf("pk", keys)).values_list("pk", "state"))
    gone = [key for key in keys if key not in states]
    going_on = {key for key, state in states.items() if State(state) not in TERMINAL}
    return going_on | {key for key, waits in kept(gone).items() if waits}
