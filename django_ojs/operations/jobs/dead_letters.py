"""Dead letters (ojs-dead-letter §6, §9): list, retry and delete them.

They have an index of their own, by when they ended, and a count of their own.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.operations.access import operator
from django_ojs.operations.dead_letter_queue import put_back
from django_ojs.operations.delete import erase
from django_ojs.operations.enqueue import admission
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.listing import LAST_ENDED_FIRST
from django_ojs.operations.keyset import Page, PageRequest
from django_ojs.operations.retry import revive
from django_ojs.spec import retry_policy as retries
from django_ojs.spec import unique_policy
from django_ojs.spec.envelope import Envelope, validate, with_stored
from django_ojs.spec.errors import InvalidRequest, JobNotFound, NotFound
from django_ojs.storage import database, queue_configs, transitions
from django_ojs.storage.dialects import job_row
from django_ojs.storage.figures.known_queues import OTHERS

#: The most names in the figures. Producers choose names freely, so the remaining ones are counted
#: together.
MAX_NAMES: Final = 1_000

#: What a retry may change (ojs-dead-letter §6.3).
OVERRIDES: Final = ("args", "meta", "priority", "queue", "retry")


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The number of dead letters, and how many of the newest have each queue or type of error."""

    total: int
    by_queue: dict[str, int]
    by_error_type: dict[str, int]
    oldest_at: datetime | None
    newest_at: datetime | None


def page(which: JobFilter, wanted: PageRequest) -> Page[Job]:
    """Return a page of the dead letters among these jobs, newest first.

    It ends early where the sizes of its jobs add up to MAX_FETCH_BYTES; it has at least one.
    """
    dead = replace(which, dead_letter=True)
    found = dead.jobs()
    columns = ("pk", "size_bytes", "finished_at")
    rest = keyset.rest_of(found, LAST_ENDED_FIRST, wanted).values_list(*columns, named=True)
    rows = list(rest[wanted.offset : wanted.offset + wanted.limit + 1])
    fitting = replace(wanted, limit=min(wanted.limit, _fitting([row.size_bytes for row in rows])))
    sizes = keyset.page_from(
        rows,
        LAST_ENDED_FIRST,
        fitting,
        count=lambda: (dead.number(), False) if dead.counted else keyset.count_up_to(found),
    )
    read = Job.primary.in_bulk([row.pk for row in sizes.rows])
    # A job that was retried or deleted in the meantime may be missing.
    return sizes.showing([read[row.pk] for row in sizes.rows if row.pk in read])


def _fitting(sizes: Sequence[int | None]) -> int:
    """Return how many of the first jobs fit into a response."""
    left = settings().max_fetch_bytes
    for index, size in enumerate(sizes):
        left -= size or 0
        if left < 0 and index:
            return index
    return len(sizes)


def get(job_id: UUID) -> Job:
    """Return a dead letter. Raises NotFound, also for a job that is not a dead letter."""
    return _read(job_id, transitions.get)


def figures(within: frozenset[str] | None = None) -> Figures:
    """Return the figures of the dead letters in these queues or in all.

    The newest 10,000 are counted by queue and by type of error.
    """
    which = JobFilter(dead_letter=True, within=within)
    found = which.jobs()
    newest = found.order_by(*LAST_ENDED_FIRST)
    rows = list(newest.values_list("queue", "error__type", "finished_at")[: keyset.COUNT_LIMIT + 1])
    counted = rows[: keyset.COUNT_LIMIT]
    oldest = found.order_by("finished_at", "pk").values_list("finished_at", flat=True).first()
    return Figures(
        total=which.number() if len(rows) > len(counted) else len(counted),
        by_queue=_largest(Counter(queue for queue, _, _ in counted)),
        by_error_type=_largest(Counter(type or "Unknown" for _, type, _ in counted)),
        oldest_at=oldest,
        newest_at=counted[0][2] if counted else None,
    )


def _largest(numbers: Counter[str]) -> dict[str, int]:
    found = dict(numbers.most_common(MAX_NAMES))
    if len(numbers) > len(found):
        found[OTHERS] = numbers.total() - sum(found.values())
    return found


@database.write_transaction
def retry(job_id: UUID, *, override: Mapping[str, Any] | None = None) -> Job:
    """Make a dead letter available again, with all its attempts, and return it.

    `override` may replace its args, queue, priority and (by field) retry policy, and add to its
    meta. Raises NotFound for a job that is not a dead letter, InvalidRequest or a subclass.
    """
    job = _read(job_id, transitions.lock)
    before = _shown(job)
    if override:
        change(job, override)
    with hooks.telling_rejected([job]):
        revive([job])
    retried = transitions.get(job_id)
    replaced = sorted({"args", "meta"} & (override or {}).keys())
    operator.acted(
        "job.retried",
        job_id,
        changes=operator.changed(before, _shown(retried)),
        replaced=replaced,
    )
    return retried


@database.write_transaction
def delete(job_id: UUID) -> None:
    """Delete a dead letter and the history of its errors. Raises NotFound."""
    job = _read(job_id, transitions.lock)
    erase([job_id])
    operator.acted("job.deleted", job_id, type=job.type, queue=job.queue, state=job.state)


def _shown(job: Job) -> dict[str, Any]:
    """Return what the audit trail shows of a retry's changes: neither arguments nor metadata."""
    return {
        "state": job.state,
        "queue": job.queue,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
    }


def _read(job_id: UUID, read: Callable[[UUID], Job]) -> Job:
    with suppress(JobNotFound):
        job = read(job_id)
        if job.dead_letter:
            return job
    raise NotFound(
        "There is no dead letter with this id.",
        details={"resource_type": "dead_letter_job", "resource_id": str(job_id)},
    )


def change(job: Job, override: Mapping[str, Any]) -> None:
    """Apply the `override` of `retry` to a dead letter that the caller has locked.

    Raises InvalidRequest or a subclass.
    """
    given = {name: value for name, value in override.items() if value is not None}
    if not given.keys() <= set(OVERRIDES):
        raise InvalidRequest(
            f"override takes {', '.join(OVERRIDES)} only",
            details={"field": "override"},
        )
    put_back([job])
    policy = retries.parse(given.get("retry"), default=job.retry_policy)
    meta = given.get("meta", {})
    changed = Envelope(
        id=job.pk,
        type=job.type,
        args=given.get("args", job.args),
        queue=given.get("queue", job.queue),
        meta={**job.meta, **meta} if isinstance(meta, dict) else meta,
        priority=given.get("priority", job.priority),
        retry=policy,
    )
    limits = settings().limits
    validate(changed, limits)
    configs = queue_configs.current()
    if configs is not None and not given.keys().isdisjoint(("args", "meta", "queue")):
        admission.check_queue_size(changed, limits, configs)
    job.args, job.queue, job.meta = changed.args, changed.queue, changed.meta
    job.priority = changed.priority
    if "retry" in given:
        job.max_attempts = policy.max_attempts
        job.options = {**job.options, "retry": policy.render()}
    if job.unique_key is not None:
        same = unique_policy.parse(job.options["unique"])
        # The key is changed only if it depends on a change, because a middleware may have changed
        # the arguments after it was computed.
        if not given.keys().isdisjoint(same.keys):
            job.unique_key = same.key(type=job.type, queue=job.queue, args=job.args, meta=job.meta)
    job.options = with_stored(job.options, job.queue)
    # `revive` checks the bound in bytes, which counts this size.
    sized = {name: getattr(job, name) for name in ("type", "queue", "args", "meta", "options")}
    job.size_bytes = job_row.size_of(sized)
    fields = [
        "args",
        "queue",
        "original_queue",
        "meta",
        "priority",
        "max_attempts",
        "options",
        "unique_key",
    ]
    job.save(using=database.alias(), update_fields=[*fields, "size_bytes"])
