"""Job identifiers: UUIDv7, lowercase, with hyphens (ojs-core §5.1 `id`).

Made as in RFC 9562 §5.7, by method 2 of §6.2.
"""

import os
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, SafeUUID

from django_ojs.spec.errors import InvalidRequest

_PATTERN: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

# The variable part of a UUIDv7 is one number of 122 bits: 48 of milliseconds, then 74 random ones.
# Ids have the order of these numbers; an overflow of the 74 bits carries into the milliseconds.
_RANDOM_BITS: Final = 74
_LOW: Final = (1 << 62) - 1
_FIXED: Final = (7 << 76) | (2 << 62)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_lock = threading.Lock()
_last = 0


# The constructor takes twice as long, because it checks what needs no check here.
_new: Final = UUID.__new__
_set: Final = object.__setattr__
_UNKNOWN: Final = SafeUUID.unknown


def _uuid(number: int) -> UUID:
    """Return the UUIDv7 whose variable part is this number."""
    made = _new(UUID)
    value = (number >> 74) << 80 | ((number >> 62) & 0xFFF) << 64 | _FIXED | (number & _LOW)
    _set(made, "int", value)
    _set(made, "is_safe", _UNKNOWN)
    return made


def uuid7() -> UUID:
    """Return a new UUIDv7, greater than all earlier ones of this process."""
    global _last
    fresh = _fresh()
    with _lock:
        if fresh <= _last:
            fresh = _last + 1 + int.from_bytes(os.urandom(4), "big")
        _last = fresh
    return _uuid(fresh)


def many(count: int) -> list[UUID]:
    """Return `count` new UUIDv7 in ascending order."""
    global _last
    if count <= 0:
        return []
    steps = memoryview(os.urandom(4 * count)).cast("I")
    fresh = _fresh()
    made = []
    with _lock:
        # Each id is a random step above the one before, so that none can be guessed from its
        # neighbour.
        number = max(fresh, _last + 1)
        for step in steps:
            number += 1 + step
            made.append(_uuid(number))
        _last = number
    return made


def parse_id(value: object, field: str = "id") -> UUID:
    """Return the UUID of a lowercase UUIDv7 string (or of a version 7 UUID).

    Raises InvalidRequest.
    """
    if isinstance(value, UUID):
        if is_uuid7(value):
            return value
    elif isinstance(value, str) and _PATTERN.fullmatch(value):
        return UUID(value)
    raise InvalidRequest.of(
        field,
        "must be a UUIDv7 in lowercase with hyphens",
        hint=(
            (
                "An enqueue returns the id of its job. For an id of your own, use ojs.new_id(), "
                "not uuid.uuid4()."
            )
            if isinstance(value, UUID)
            else None
        ),
    )


def is_uuid7(value: UUID) -> bool:
    """Return whether the id has the version and the variant of a UUIDv7."""
    return (value.int >> 76) & 0xF == 7 and (value.int >> 62) & 3 == 2


def time_of(value: UUID) -> datetime:
    """Return when a UUIDv7 was made, by its milliseconds."""
    return _EPOCH + timedelta(milliseconds=value.int >> 80)


def first_of(moment: datetime) -> UUID:
    """Return the lower bound of the UUIDv7 made at a moment or later: it is no UUIDv7 itself."""
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(max(0, milliseconds), 2**48 - 1) << 80)


def _fresh() -> int:
    milliseconds = time.time_ns() // 1_000_000
    # 80 bits; only the upper 74 are used.
    return (milliseconds << _RANDOM_BITS) | (int.from_bytes(os.urandom(10), "big") >> 6)


def _after_fork() -> None:
    # The lock may have been held by a thread that does not exist in the child, and counting on
    # from the parent's number would leave only 32 random bits between their ids; a fresh start
    # leaves 74.
    global _lock, _last
    _lock = threading.Lock()
    _last = 0


os.register_at_fork(after_in_child=_after_fork)
