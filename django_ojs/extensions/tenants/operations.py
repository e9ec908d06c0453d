"""The tenants of a queue, as operators see them (ojs-multi-tenancy §8)."""

from dataclasses import dataclass

from django_ojs.extensions.tenants.queue_fields import has_tenants
from django_ojs.extensions.tenants.spec import TenantFairness, TenantLimits
from django_ojs.extensions.tenants.tenant_statements import statements
from django_ojs.operations.queues.status import QueueStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantStatus:
    """A tenant of a queue: its waiting jobs, its bound, and the jobs that it has in a turn.

    `bound` is None if the tenant has none, and `weight` if tenants take no turns.
    """

    tenant: str
    depth: int
    bound: int | None
    weight: int | None

    @property
    def is_full(self) -> bool:
        """Whether the next job of the tenant is rejected."""
        return self.bound is not None and self.depth >= self.bound


def busiest(status: QueueStatus, *, limit: int) -> list[TenantStatus]:
    """Return the tenants with the most waiting jobs, or none for a queue without tenants."""
    config = status.config
    if not has_tenants(config):
        return []
    limits, fairness = config.part(TenantLimits), config.part(TenantFairness)
    return [
        TenantStatus(
            tenant=tenant,
            depth=depth,
            bound=None if limits is None else limits.depth_of(tenant),
            weight=None if fairness is None else fairness.weight_of(tenant),
        )
        for tenant, depth in statements().busiest(status.name, limit)
    ]
