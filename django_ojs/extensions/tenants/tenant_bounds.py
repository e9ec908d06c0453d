"""Bounds of the tenants of a queue (ojs-backpressure §9.2): checked before the bound of the queue.

So a tenant at its bound takes no room from the others, and waits for no lock of theirs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from django.db import OperationalError
from django.db.models import Q

from django_ojs.extension import LeftOut, Readmission
from django_ojs.extensions.tenants import storage as tenants
from django_ojs.extensions.tenants.spec import DEFAULT_TENANT, TenantLimits, tenant_of
from django_ojs.extensions.tenants.tenant_statements import statements
from django_ojs.models import Job
from django_ojs.spec.envelope import Envelope, distinct
from django_ojs.spec.errors import QueueFull
from django_ojs.storage import database, queue_configs

#: Jobs by queue and tenant.
Added = Mapping[tuple[str, str], int]


def added_by(envelopes: Sequence[Envelope]) -> Added:
    """Return how many jobs are added to tenants that have a bound."""
    configs = queue_configs.current()
    if configs is None or all(
        configs.of(each.queue).part(TenantLimits) is None for each in distinct(envelopes)
    ):
        return {}
    return _bounded((each.queue, each) for each in envelopes if not each.pending)


def added_again(readmission: Readmission) -> Added:
    """Do as `added_by`, for stored jobs that are to wait again."""
    return _bounded((readmission.queue or job.queue, job) for job in readmission.waiting())


def _bounded(jobs: Iterable[tuple[str, Envelope | Job]]) -> Added:
    added: Counter[tuple[str, str]] = Counter()
    configs = queue_configs.current()
    if configs is not None:
        for queue, job in jobs:
            limits = configs.of(queue).part(TenantLimits)
            if limits is None:
                continue  # The metadata are read only if needed: they may cost a query.
            if limits.depth_of(tenant := tenant_of(job.meta)) is not None:
                added[queue, tenant] += 1
    return added


def admit(added: Added, *, is_tried_again: bool = False) -> None:
    """Admit jobs of tenants to their queues; inside a write transaction, which then adds them.

    With `is_tried_again`, hardly wait for the lock of a tenant. Raises QueueFull, before anything
    is stored.
    """
    # Tenants are locked in this order, so that two transactions that lock several do not deadlock.
    for (queue, tenant), jobs in sorted(added.items()):
        limits = queue_configs.of(queue).part(TenantLimits)
        bound = None if limits is None else limits.depth_of(tenant)
        if bound is not None and not statements().admit(queue, tenant, jobs=jobs, bound=bound):
            _admit_locked(queue, tenant, bound, jobs, is_tried_again)


def admit_again(readmission: Readmission) -> None:
    """Admit stored jobs as `admit` does. If the caller allows it, leave out some."""
    rejections = readmission.rejections
    for left_out in (rejections or {}).values():
        if left_out.full.part is not None:
            _, tenant = left_out.full.part
            readmission.left_out.update(_of_tenant(readmission, tenant))
    while True:
        try:
            with database.atomic():
                admit(added_again(readmission), is_tried_again=readmission.is_tried_again)
            return
        except QueueFull as full:
            if rejections is None or full.part is None:
                raise
            _, tenant = full.part
            rejections[" ".join(full.part)] = LeftOut(full=full, others=_of_others(tenant))
            # The first jobs take the last room.
            room = max(0, full.bound - full.depth)
            readmission.left_out.update(_of_tenant(readmission, tenant)[room:])


def _of_tenant(readmission: Readmission, tenant: str) -> list[UUID]:
    return [job.pk for job in readmission.waiting() if tenant_of(job.meta) == tenant]


def _of_others(tenant: str) -> Q:
    # This may also find a job whose `tenant_id` is not a valid id.
    named, has_none = ~Q(meta__tenant_id=tenant), Q(meta__tenant_id__isnull=True)
    return named & ~has_none if tenant == DEFAULT_TENANT else named | has_none


def _admit_locked(queue: str, tenant: str, bound: int, jobs: int, is_tried_again: bool) -> None:
    try:
        is_locked = tenants.lock(queue, tenant, is_tried_again=is_tried_again)
    except OperationalError as error:
        if not database.dialect().leaves_transaction(error):
            raise
        raise _full(queue, tenant, None, bound, jobs) from None
    if not is_locked:
        raise _full(queue, tenant, None, bound, jobs)
    # The bound may have changed while this transaction waited for the lock.
    now = _bound_now(queue, tenant)
    if now is not None and (depth := statements().depth(queue, tenant)) + jobs > now:
        raise _full(queue, tenant, depth, now, jobs)


def _bound_now(queue: str, tenant: str) -> int | None:
    limits = queue_configs.config_of(queue).part(TenantLimits)
    return None if limits is None else limits.depth_of(tenant)


def _full(queue: str, tenant: str, depth: int | None, bound: int, jobs: int) -> QueueFull:
    waits = queue_configs.of(queue).backpressure.strategy == "block"
    error = QueueFull.at(
        queue,
        depth=bound if depth is None else depth,
        bound=bound,
        # Jobs of a tenant are never dropped for its newer ones; only the bound of the queue drops
        # jobs.
        strategy="block" if waits else "reject",
        busy=depth is None,
        part=("tenant", tenant),
    )
    # The name of the limit in multi-tenancy §8.1.
    error.details["limit"] = "max_queue_depth"
    if jobs > bound:
        error.can_never_fit, error.retryable = True, False
        error.message = (
            f"{jobs} jobs at once never fit for tenant {tenant} in queue {queue}: the bound is "
            f"{bound}"
        )
        error.hint = "Waiting does not help: send fewer jobs at a time."
    error.needs = jobs, 0
    error.has_room = _has_room_again
    return error


def _has_room_again(full: QueueFull) -> bool:
    """Whether a tenant that was at its bound has room for the rejected jobs now."""
    assert full.part is not None
    _, tenant = full.part
    bound = _bound_now(full.queue, tenant)
    jobs, _ = full.needs
    return bound is None or statements().depth(full.queue, tenant) + jobs <= bound
