"""Tenants of one queue: which one a job belongs to, and their part of a queue's configuration.

See ojs-multi-tenancy §5 and §8, ojs-backpressure §9.2 and ojs-fair-scheduling §9.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

#: The number of the extension, and its bit in `Job.marks`, which the jobs of queues with settings
#: for tenants have.
NUMBER: Final = 10
MARK: Final = 1 << NUMBER

#: The tenant of jobs without one (multi-tenancy §15.3). No job can name it.
DEFAULT_TENANT: Final = "_default"
MAX_LENGTH: Final = 255
#: The most jobs of a tenant in one turn, for which the other tenants wait.
MAX_WEIGHT: Final = 1000

STRATEGIES: Final = ("fair-share",)
_PREFIX: Final = "tenant:"

_TENANT_ID: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:-]*").fullmatch


def is_tenant_id(value: object) -> bool:
    """Whether this is a tenant's id (multi-tenancy §5.2)."""
    return isinstance(value, str) and len(value) <= MAX_LENGTH and _TENANT_ID(value) is not None


def tenant_of(meta: Mapping[str, Any]) -> str:
    """Return the tenant of a job with this metadata."""
    found = meta.get("tenant_id")
    return found if isinstance(found, str) and is_tenant_id(found) else DEFAULT_TENANT


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantLimits:
    """The bounds of tenants on their waiting jobs in a queue; None means no bound."""

    max_queue_depth: int | None = None
    #: The bounds of single tenants, which take precedence.
    own: Mapping[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> Self | None:
        """Return the value of a stored configuration, or None if no tenant has a bound."""
        if not values:
            return None
        depths = {
            tenant: limits.get("max_queue_depth") or None
            for tenant, limits in (values.get("tenants") or {}).items()
            if limits and limits.get("max_queue_depth") is not None
        }
        depth = values.get("max_queue_depth") or None
        if depth is None and not any(depths.values()):
            return None
        return cls(max_queue_depth=depth, own=depths)

    def depth_of(self, tenant: str) -> int | None:
        """Return the bound of a tenant."""
        return self.own.get(tenant, self.max_queue_depth)


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantFairness:
    """The shares of tenants in the claims of a queue, as jobs in a turn."""

    weights: Mapping[str, int] = field(default_factory=dict)
    default_weight: int = 1

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> Self | None:
        """Return the value of a stored configuration, or None if it is not enabled."""
        if not values or not values.get("enabled"):
            return None
        given = {name: weight for name, weight in (values.get("weights") or {}).items() if weight}
        # The specification writes tenant:NAME; the name itself takes precedence.
        weights = {name.removeprefix(_PREFIX): weight for name, weight in given.items()} | given
        return cls(weights=weights, default_weight=values.get("default_weight") or 1)

    def weight_of(self, tenant: str) -> int:
        """Return how many jobs a tenant gets in a turn."""
        return self.weights.get(tenant, self.default_weight)
