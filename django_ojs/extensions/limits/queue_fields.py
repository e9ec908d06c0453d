"""The fields of a queue's configuration that limit how many of its jobs run and start."""

from typing import Final

from django_ojs.extensions.limits.rate_limit import RateLimit, check_number, check_on_limit
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.field_checks import Check, Object, count, duration
from django_ojs.spec.queue_config import QueueFields


class _Rate(Object):
    """The check of an object that has a limit and a period, or neither."""

    def __call__(self, value: object, path: str) -> None:
        super().__call__(value, path)
        assert isinstance(value, dict)
        for name, other in (("limit", "period"), ("period", "limit")):
            if value.get(name) is not None and value.get(other) is None:
                raise InvalidRequest.of(f"{path}.{other}", f"is required beside {name}")


_RATE: Final[dict[str, Check]] = {
    "limit": check_number,
    "period": duration,
}

FIELDS: Final = QueueFields(
    checks={
        "concurrency": count,
        "rate_limit": _Rate(
            **_RATE,
            max_per_second=check_number,
            concurrency=count,
            rate=_Rate(**_RATE),
            throttle=_Rate(**_RATE),
            on_limit=check_on_limit,
        ),
    },
    read={RateLimit: RateLimit.of},
    # Only this value is supported, because the jobs of a queue always wait.
    supported={"rate_limit.on_limit": ("wait",)},
)
