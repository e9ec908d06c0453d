"""Queues that nothing bounds, and about which nobody has said so (ojs-backpressure §6.3)."""

from collections.abc import Iterable, Sequence
from typing import Final

from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.storage.figures import counts
from django_ojs.storage.queue_configs import DEFAULT_POLICY, DELETED

#: Of the system check; who silences it silences the worker as well.
UNBOUNDED: Final = "django_ojs.W003"
BOUND_HINT: Final = (
    "Set backpressure.max_depth in OJS['QUEUES'] or over HTTP, for a queue or as the default; 0 "
    "says that a queue is meant to have no bound."
)
_SHOWN: Final = 5


def told(names: Sequence[str]) -> str:
    """Return a sentence about these queues."""
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"Nothing bounds {shown}{more}: what enqueues faster than workers work fills the disk."


def unbounded(also: Iterable[str] = ()) -> list[str]:
    """Return the known queues, and these, for which no bound is configured.

    One whose `max_depth` is 0 was meant to have none, and is left out. A default policy with a
    bound holds for all.
    """
    configs = dict(Queue.primary.values_list("name", "config"))
    if _says_something(configs.pop(DEFAULT_POLICY, {})):
        return []
    names = {*configs, *counts.by_queue(), *also}
    return sorted(
        name
        for name in names
        if not name.startswith("_")
        and DELETED not in (config := configs.get(name, {}))
        and not _says_something(config)
        and not _says_something(settings().queues.get(name, {}))
    )


def _says_something(config: dict[str, object]) -> bool:
    bounds = config.get("backpressure")
    return isinstance(bounds, dict) and not {"max_depth", "max_size_bytes"}.isdisjoint(bounds)
