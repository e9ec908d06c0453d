"""The tenants of queues (ojs-backpressure §9.2, fair-scheduling §9): their bounds and turns."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from django_ojs.claim_rules import ClaimRule, RuledClaim
from django_ojs.extension import (
    Batch,
    DueStep,
    Extension,
    Hooks,
    Readmission,
)
from django_ojs.extensions.backpressure.operations import bound_check
from django_ojs.extensions.tenants import storage as tenants
from django_ojs.extensions.tenants import tenant_bounds
from django_ojs.extensions.tenants.queue_fields import FIELDS, has_tenants
from django_ojs.extensions.tenants.spec import MARK, NUMBER
from django_ojs.storage import database, queue_configs
from django_ojs.storage.dialects.job_row import NewRow
from django_ojs.storage.dialects.rows import ClaimRequest

if TYPE_CHECKING:
    from django_ojs.finding import Finding

T = TypeVar("T")


class TenantsExtension(Extension):
    """Bounds the tenants of queues, and lets them take turns."""

    name = "tenants"
    #: It comes before the bounds of queues, so that a tenant at its bound takes no room from the
    #: others, and waits for no lock of theirs.
    number = NUMBER
    schema = Path(__file__).parent / "schema"
    queue_fields = FIELDS

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(
            around_insert=_insert,
            around_admit_again=_admit_again,
            bounded_part=_bounded_part,
            # This marks jobs that wait already. If there are very many, the maintenance marks the
            # rest.
            after_queue_configured=tenants.mark,
            claim_rule=TenantTurns(),
        )

    def due_steps(self) -> Sequence[DueStep]:
        """Mark the jobs that have no mark yet."""
        return (DueStep(run=tenants.marker.mark_all, interval=60.0, batch=sys.maxsize),)

    openapi = Path(__file__).parent / "openapi.yaml"

    def findings(self) -> Sequence["Finding"]:
        """Find queues whose tenants were at their bounds."""
        from django_ojs.extensions.tenants import findings

        return findings.found()

    def panels(self) -> Sequence[Any]:
        """Return the panel with the tenants of a queue."""
        from django_ojs.extensions.tenants.admin import QUEUE_TENANTS

        return (QUEUE_TENANTS,)


class TenantTurns(ClaimRule):
    """The rule of queues whose tenants take turns: the order in which jobs start."""

    fields = frozenset({"tenant_fairness"})

    def begin(self, request: ClaimRequest) -> RuledClaim:
        """Begin a claim in the order of turns, unless the turns are off."""
        # The module is imported by the first claim of a queue that has turns.
        from django_ojs.extensions.tenants import tenant_turns

        return tenant_turns.begin(request)


def _insert(batch: Batch, insert: Callable[[], Sequence[NewRow] | None]) -> Sequence[NewRow] | None:
    tenants.fill_in(batch.jobs)
    added = tenant_bounds.added_by(batch.jobs)
    if not added:
        return insert()

    def operation() -> Sequence[NewRow] | None:
        tenant_bounds.admit(added, is_tried_again=batch.options.is_tried_again)
        return insert()

    # This is not done in the transaction of the operation, which may hold the lock of a tenant.
    bound_check.apply_settings()
    return database.in_write_transaction(operation)


def _bounded_part(envelope: Any) -> str | None:
    return next((tenant for _, tenant in tenant_bounds.added_by([envelope])), None)


def _admit_again(readmission: Readmission, change: Callable[[], T]) -> T:
    configs = queue_configs.current()
    if configs is None:
        return change()
    queues = {readmission.queue or job.queue for job in readmission.jobs}
    if not any(has_tenants(configs.of(queue)) for queue in queues):
        return change()
    with database.atomic():
        tenant_bounds.admit_again(readmission)
        changed = change()
        tenants.mark_jobs([job.pk for job in readmission.jobs if _lacks_mark(job, readmission)])
    return changed


def _lacks_mark(job: Any, readmission: Readmission) -> bool:
    """Whether a job without the mark is to wait in a queue that has bounds or turns of tenants."""
    if job.marks & MARK or job.pk in readmission.left_out:
        return False
    return has_tenants(queue_configs.of(readmission.queue or job.queue))
