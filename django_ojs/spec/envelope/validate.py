"""Every constraint on the values of an envelope (ojs-core §5; payload-limits §3)."""

from itertools import compress
from operator import attrgetter, ne
from typing import Any, Final
from uuid import UUID

from django_ojs.spec.envelope.checks import (
    DEFAULT_LIMITS,
    check_bytes,
    check_queue,
    check_size,
    check_type,
    is_integer,
    measure_field,
)
from django_ojs.spec.envelope.fields import FIELDS, INTERNAL
from django_ojs.spec.envelope.model import (
    MAX_PRIORITY,
    MIN_PRIORITY,
    SPECVERSIONS,
    Envelope,
    Limits,
)
from django_ojs.spec.errors import (
    InvalidArgs,
    InvalidMetadata,
    InvalidRequest,
    MetadataTooLarge,
    UnsupportedFeature,
)
from django_ojs.spec.ids import is_uuid7

# The fields that most jobs leave out: read and compared all at once, because every enqueue comes
# through here.
_OPTIONAL: Final = tuple(field for field in (*FIELDS, *INTERNAL) if field.check is not None)
_CHECKS: Final = tuple((field.name, field.check) for field in _OPTIONAL if field.check is not None)
_DEFAULTS: Final = tuple(field.default for field in _OPTIONAL)
_values: Final = attrgetter(*(field.name for field in _OPTIONAL))


def validate(envelope: Envelope, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check that an envelope may be stored; each error names the field and the rule."""
    if not isinstance(envelope.id, UUID) or not is_uuid7(envelope.id):
        raise InvalidRequest.of("id", "must be a UUIDv7")
    if not isinstance(envelope.specversion, str):
        raise InvalidRequest.of("specversion", "must be a string")
    if envelope.specversion not in SPECVERSIONS:
        known = ", ".join(sorted(SPECVERSIONS))
        raise UnsupportedFeature.of("specversion", f"must be one of {known}")
    check_type(envelope.type, limits)
    check_queue(envelope.queue, limits)
    if type(envelope.priority) is not int and not is_integer(envelope.priority):
        raise InvalidRequest.of("priority", "must be an integer")
    if not MIN_PRIORITY <= envelope.priority <= MAX_PRIORITY:
        raise InvalidRequest.of("priority", f"must be between {MIN_PRIORITY} and {MAX_PRIORITY}")
    if not isinstance(envelope.args, list | tuple):
        raise InvalidArgs.of("args", "must be an array")
    # 512: an upper bound of the names and of the fields that are not measured.
    size = 512 + measure_field(envelope.args, "args", limits, InvalidArgs)
    if envelope.meta or not isinstance(envelope.meta, dict):
        size += _validate_meta(envelope.meta, limits)
    if type(envelope.pending) is not bool:
        raise InvalidRequest.of("pending", "must be a boolean")
    values = _values(envelope)
    if values != _DEFAULTS:
        present = map(ne, values, _DEFAULTS)
        for (name, check), value in compress(zip(_CHECKS, values, strict=True), present):
            size += check(value, name, limits)
    if size > limits.envelope_bytes:
        check_size(sized(envelope), limits)


def _validate_meta(meta: object, limits: Limits) -> int:
    if not isinstance(meta, dict):
        raise InvalidMetadata.of("meta", "must be an object")
    size = measure_field(meta, "meta", limits, InvalidMetadata)
    if size > limits.meta_bytes:
        check_bytes(meta, limits.meta_bytes, "meta", MetadataTooLarge)
    return size


def sized(envelope: Envelope) -> dict[str, Any]:
    """Return what counts as the envelope: the fields whose size the client chose."""
    # Never more than the client sent, so that an envelope that passed on arrival passes again
    # before it is stored.
    sized: dict[str, Any] = {"type": envelope.type, "args": envelope.args, **envelope.extra}
    if envelope.queue != "default":
        sized["queue"] = envelope.queue
    for name in ("meta", "tags", "rate_limit", "schema"):
        if getattr(envelope, name):
            sized[name] = getattr(envelope, name)
    if envelope.retry is not None and envelope.retry.extra:
        sized["retry"] = dict(envelope.retry.extra)
    if envelope.unique is not None:
        sized["unique"] = [envelope.unique.args_keys or (), envelope.unique.meta_keys or ()]
    return sized
