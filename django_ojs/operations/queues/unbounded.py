"""Queues without a configured bound, for a warning to the operator (ojs-backpressure §6.3)."""

from collections.abc import Iterable, Sequence
from typing import Final

from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.storage.figures import counts
from django_ojs.storage.queue_configs import DEFAULT_POLICY, DELETED

#: The id of the system check; silencing it also silences the warning of the worker.
CHECK_ID: Final = "django_ojs.W003"
BOUND_HINT: Final = (
    "Set backpressure.max_depth in OJS['QUEUES'] or over HTTP, for a queue or as the default; 0 "
    "means that a queue has no bound on purpose."
)
_SHOWN: Final = 5


def message(names: Sequence[str]) -> str:
    """Return the warning for these queues."""
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"No bound is set for {shown}{more}: producers that outrun the workers fill the disk."


def unbounded(also: Iterable[str] = ()) -> list[str]:
    """Return the known queues, and those of `also`, for which no bound is configured.

    A queue whose `max_depth` is 0 is unbounded on purpose, and is left out. With a bound in the
    default policy the result is empty.
    """
    configs = dict(Queue.primary.values_list("name", "config"))
    if _configures_bound(configs.pop(DEFAULT_POLICY, {})):
        return []
    names = {*configs, *counts.by_queue(), *also}
    return sorted(
        name
        for name in names
        if not name.startswith("_")
        and DELETED not in (config := configs.get(name, {}))
        and not _configures_bound(config)
        and not _configures_bound(settings().queues.get(name, {}))
    )


def _configures_bound(config: dict[str, object]) -> bool:
    bounds = config.get("backpressure")
    return isinstance(bounds, dict) and not {"max_depth", "max_size_bytes"}.isdisjoint(bounds)
