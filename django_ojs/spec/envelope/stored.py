"""The `options` column of a job: the attributes that have no column of their own."""

from collections.abc import Mapping
from itertools import compress
from operator import attrgetter, ne
from typing import Any, Final

from django_ojs.spec import retry_policy
from django_ojs.spec.envelope.fields import FIELDS, INTERNAL
from django_ojs.spec.envelope.model import Envelope
from django_ojs.spec.retry_policy import RetryPolicy

_STORED: Final = tuple(field for field in (*FIELDS, *INTERNAL) if field.stored is not None)
_RENDERERS: Final = tuple((field.name, field.render) for field in _STORED)
_DEFAULTS: Final = tuple(field.default for field in _STORED)
_values: Final = attrgetter(*(field.stored for field in _STORED if field.stored is not None))


def options_of(envelope: Envelope) -> dict[str, Any]:
    """Return the JSON object to store; empty for a job with the defaults."""
    values = _values(envelope)
    if values == _DEFAULTS:
        return {}
    options: dict[str, Any] = {}
    present = map(ne, values, _DEFAULTS)
    for (name, render), value in compress(zip(_RENDERERS, values, strict=True), present):
        if (rendered := render(value)) is not None:
            options[name] = rendered
    return options


def retry_of(options: Mapping[str, Any] | None) -> RetryPolicy:
    """Return the retry policy of a stored job."""
    return retry_policy.parse((options or {}).get("retry"), default=retry_policy.DEFAULT)
