"""Where each value of a queue's configuration comes from."""

from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext as _

from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.operations.access.operator import flattened
from django_ojs.operations.queue_rows import is_deleted
from django_ojs.operations.queues.status import stored_default
from django_ojs.spec.queue_config import DEFAULT_POLICY, WARNING_THRESHOLD

#: The values of the members that the pages always show, if no other layer has a value.
_BUILT_IN: Final[dict[str, Any]] = {
    "backpressure.max_depth": 0,
    "backpressure.max_size_bytes": 0,
    "backpressure.strategy": "reject",
    "backpressure.warning_threshold": WARNING_THRESHOLD,
    "max_envelope_bytes": 0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueInForce:
    """A member of the configuration, its value in force, and the layer that has it.

    `hidden` are the values of lower layers, each with its layer; they apply if this one is removed.
    `is_own` is True if the value is stored for this queue.
    """

    name: str
    value: Any
    source: str
    is_own: bool
    hidden: tuple[tuple[str, Any], ...] = ()


def values_in_force(queue: Queue) -> list[ValueInForce]:
    """Return the members of a queue's configuration, by name."""
    in_code = settings().queues
    own, built_in = _("stored for this queue"), _("built in")
    layers = {
        own: {} if is_deleted(queue) else queue.config,
        _settings(queue.name): in_code.get(queue.name, {}),
        _("stored default policy"): stored_default(),
        _settings(DEFAULT_POLICY): in_code.get(DEFAULT_POLICY, {}),
        built_in: _BUILT_IN,
    }
    found: dict[str, list[tuple[str, Any]]] = {}
    for source, config in layers.items():
        nested = config if source == built_in else flattened(config)
        for name, value in nested.items():
            found.setdefault(name, []).append((source, value))
    return [
        ValueInForce(
            name=name, value=value, source=source, is_own=source == own, hidden=tuple(others)
        )
        for name, [(source, value), *others] in sorted(found.items())
    ]


def _settings(name: str) -> str:
    return _("settings, %(setting)s") % {"setting": f'OJS["QUEUES"]["{name}"]'}
