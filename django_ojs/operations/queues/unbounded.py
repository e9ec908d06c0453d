"""Queues without a configured bound, for a warning to the operator (ojs-backpressure §6.3)."""

from collections.abc import Iterable, Sequence
from typing import Final

from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.storage.figures import counts
from django_ojs.storage.queue_configs import DELETED

#: The id of the system check; silencing it also silences the warning of the worker.
CHECK_ID: Final = "django_ojs.W003"
BOUND_HINT: Final = (
    "Set how many jobs may wait, for all queues: OJS = {'QUEUES': {'_default': {'backpressure': "
    "{'max_depth': 100_000}}}}, or under the name of a queue; 0 means no limit. A full queue "
    "rejects new jobs. To keep queues without a limit and without this warning: "
    "SILENCED_SYSTEM_CHECKS = ['django_ojs.W003']."
)
SHOWN: Final = 5


def message(names: Sequence[str]) -> str:
    """Return the warning for these queues."""
    shown = ", ".join(names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    queues, have = ("queue", "has") if len(names) == 1 else ("queues", "have")
    return (
        f"The {queues} {shown}{more} {have} no limit: if jobs are enqueued faster than workers run "
        "them, they fill the disk of the database."
    )


def unbounded(also: Iterable[str] = ()) -> list[str]:
    """Return the queues without a bound, among the known ones and those in `also`.

    A queue whose `max_depth` is 0 is unbounded on purpose, and is left out. With a bound in the
    default policy the result is empty.
    """
    configs = dict(Queue.primary.values_list("name", "config"))
    in_code = settings().queues
    defaults = (configs.pop(DEFAULT_POLICY, {}), in_code.get(DEFAULT_POLICY, {}))
    if any(_configures_bound(default) for default in defaults):
        return []
    names = {*configs, *counts.by_queue(), *also}
    return sorted(
        name
        for name in names
        if not name.startswith("_")
        and DELETED not in (config := configs.get(name, {}))
        and not _configures_bound(config)
        and not _configures_bound(in_code.get(name, {}))
    )


def _configures_bound(config: dict[str, object]) -> bool:
    bounds = config.get("backpressure")
    return isinstance(bounds, dict) and not {"max_depth", "max_size_bytes"}.isdisjoint(bounds)
