"""The fields of a queue's configuration that are about its tenants."""

from collections.abc import Mapping
from typing import Any, Final

from django_ojs.extensions.tenants.spec import (
    DEFAULT_TENANT,
    MAX_LENGTH,
    MAX_WEIGHT,
    STRATEGIES,
    TenantFairness,
    TenantLimits,
    is_tenant_id,
)
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.field_checks import Check, Object, boolean, count
from django_ojs.spec.queue_config import QueueConfig, QueueFields
from django_ojs.spec.suggestions import one_of


def _weight(value: object, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_WEIGHT:
        raise InvalidRequest.of(path, f"must be an integer from 1 to {MAX_WEIGHT}")


def _strategy(value: object, path: str) -> None:
    if value not in STRATEGIES:
        raise InvalidRequest.of(path, f"must be {one_of(STRATEGIES)}")


class _ByTenant(Object):
    """The check of an object whose names are tenants."""

    def __init__(self, check_value: Check) -> None:
        super().__init__()
        self.check_value = check_value

    def members_of(self, value: Mapping[str, object]) -> Mapping[str, Check]:
        return dict.fromkeys(map(str, value), self.check_value)

    def __call__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise InvalidRequest.of(path, "must be an object with a member for each tenant")
        for tenant, inner in value.items():
            if tenant != DEFAULT_TENANT and not is_tenant_id(tenant):
                raise InvalidRequest.of(
                    path,
                    "must have the ids of tenants as names: letters, digits and . _ : -, "
                    f"beginning with a letter or a digit, or {DEFAULT_TENANT} for jobs "
                    "without a tenant",
                )
            if inner is not None:
                self.check_value(inner, f"{path}.{tenant}")


class _Fairness(Object):
    """The check of the turns of tenants, which weights alone do not switch on."""

    def __call__(self, value: object, path: str) -> None:
        super().__call__(value, path)
        assert isinstance(value, dict)
        for name in self.members:
            if value.get(name) is not None and value.get("enabled") is None:
                raise InvalidRequest.of(f"{path}.enabled", f"is required beside {name}")


def _check_job(envelope: Any) -> None:
    if "tenant_id" in envelope.meta and not is_tenant_id(envelope.meta["tenant_id"]):
        raise InvalidRequest.of(
            "meta.tenant_id",
            f"must be a string of 1 to {MAX_LENGTH} letters, digits and . _ : -, which begins "
            "with a letter or a digit: the queue has limits or turns by tenant",
        )


FIELDS: Final = QueueFields(
    checks={
        "tenant_limits": Object(
            max_queue_depth=count, tenants=_ByTenant(Object(max_queue_depth=count))
        ),
        "tenant_fairness": _Fairness(
            enabled=boolean,
            strategy=_strategy,
            weights=_ByTenant(_weight),
            default_weight=_weight,
        ),
    },
    check_job=_check_job,
    read={
        TenantLimits: lambda values: TenantLimits.of(values.get("tenant_limits")),
        TenantFairness: lambda values: TenantFairness.of(values.get("tenant_fairness")),
    },
)


def has_tenants(config: QueueConfig) -> bool:
    """Whether a queue's configuration has bounds or turns of tenants."""
    return config.part(TenantLimits) is not None or config.part(TenantFairness) is not None
