"""Limit keys: their state, and overrides of their limits (ojs-rate-limiting §10)."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Count, Q
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.extensions.limits import claims_by_key, limit_journal, limit_key_use
from django_ojs.extensions.limits.limit_key_use import STRATEGIES, KeyStatus
from django_ojs.extensions.limits.limit_statements import statements
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.extensions.limits.rate_limit_policy import LIMITS, check_key, parse_override
from django_ojs.operations import keyset
from django_ojs.operations.access import operator
from django_ojs.operations.keyset import Order, Page, PageRequest
from django_ojs.spec import times
from django_ojs.spec.errors import InvalidRequest, NotFound
from django_ojs.storage import database

#: The waiting jobs of a key are counted up to this number.
MOST_WAITING: Final = 10_000
#: The duration of an operator's pause if none is given, and the longest one.
DEFAULT_PAUSE: Final = timedelta(hours=1)
LONGEST_PAUSE: Final = timedelta(days=31)

_BY_KEY: Final[Order] = {"pk": str}


def get(key: str) -> KeyStatus:
    """Return the state of a key.

    Raises InvalidRequest, and NotFound if it has neither jobs nor a stored row.
    """
    check_key(key, "key")
    (found,) = limit_key_use.status_of([key], most=MOST_WAITING + 1)
    if not (found.waiting or found.use.active or found.row):
        raise NotFound(
            "No job with this limit key waits or runs.",
            details={"resource_type": "rate_limit", "resource_id": key},
            hint="GET /ojs/v1/rate-limits lists the keys. PUT sets limits before the first job.",
        )
    return found


def known(keys: Collection[str]) -> dict[str, LimitKey]:
    """Return which of these keys have jobs or a stored row."""
    possible = [key for key in keys if _is_key(key)]
    found = limit_key_use.status_of(possible, most=1)
    return {
        status.key: status.row or LimitKey(pk=status.key)
        for status in found
        if status.waiting or status.use.active or status.row
    }


def _is_key(text: str) -> bool:
    try:
        check_key(text, "key")
    except InvalidRequest:
        return False
    return True


def listing(wanted: PageRequest) -> Page[KeyStatus]:
    """Return a page of the keys of jobs and of stored rows, in order."""
    keys = statements().keys(keyset.COUNT_LIMIT + 1)
    counted = keys[: keyset.COUNT_LIMIT]
    return _with_status(
        replace(
            # The database may sort texts in another order than Python.
            keyset.page_of_all(sorted(counted), _BY_KEY, wanted),
            count=lambda: (len(counted), len(keys) > len(counted)),
        )
    )


def restricted(wanted: PageRequest) -> Page[KeyStatus]:
    """Return a page of the keys at their limit, paused, overridden or with jobs dropped lately."""
    found = LimitKey.primary.filter(is_restricted()).values_list("pk", flat=True)
    return _with_status(keyset.page(found, _BY_KEY, wanted))


def _with_status(page: Page[str]) -> Page[KeyStatus]:
    return page.showing(limit_key_use.status_of(page.rows, most=MOST_WAITING + 1))


def is_restricted() -> Q:
    """Return the condition for keys at their limit, paused, overridden or with jobs dropped."""
    now = timezone.now()
    is_overridden = ~Q(override={}) & (Q(override_until=None) | Q(override_until__gt=now))
    has_dropped = Q(dropped_at__gt=now - claims_by_key.DROPPED_WITHIN)
    return Q(limited_since__isnull=False) | Q(paused_until__gt=now) | is_overridden | has_dropped


def override(key: str, limits: Mapping[str, Any], *, until: datetime | None = None) -> None:
    """Replace the given limits of the jobs of a key; their other limits still apply.

    The override applies until a time, or until it is removed. The key may have no jobs yet. Without
    a limit, the override is removed. Raises InvalidRequest.
    """
    _override(key, check_override(key, limits, until=until), until)


def check_override(
    key: str, limits: Mapping[str, Any], *, until: datetime | None
) -> dict[str, Any]:
    """Return the limits of an override without those that are None. Raises InvalidRequest."""
    check_key(key, "key")
    found = parse_override(limits)
    if until is not None and not found:
        rule = f"needs a limit that holds until then: one of {', '.join(LIMITS)}"
        raise InvalidRequest.of("expires_at", rule)
    if until is not None:
        times.parse_when(until, "expires_at")
    if until is not None and until <= timezone.now():
        raise InvalidRequest.of("expires_at", "must be in the future")
    return found


@database.write_transaction
def _override(key: str, limits: dict[str, Any], until: datetime | None) -> None:
    old = LimitKey.primary.filter(pk=key).values_list("override", flat=True).first() or {}
    limit_journal.override(key, limits, until)
    if not (limits or old):
        return  # There was no override to end.
    operator.acted(
        "limit_key.overridden" if limits else "limit_key.override_removed",
        key,
        changes=operator.changed(old, limits),
        until=str(until or ""),
    )


@database.write_transaction
def remove_override(key: str) -> bool:
    """End the override of the limits of a key. Return whether there was one."""
    in_force = (
        LimitKey.primary.filter(pk=key).exclude(override={}).exclude(override_until__lte=Now())
    )
    if not in_force.exists():
        return False
    _override(key, {}, None)
    return True


def pause(keys: Collection[str], duration: timedelta) -> None:
    """Pause these keys for a duration. A pause that lasts longer stays as it is.

    Raises InvalidRequest.
    """
    check_pause(duration)
    for key in keys:
        check_key(key, "key")
        _pause(key, duration)


def check_pause(duration: timedelta) -> None:
    """Raise InvalidRequest if no pause may have this duration."""
    if not timedelta(0) < duration <= LONGEST_PAUSE:
        rule = f"must be more than 0 and at most {LONGEST_PAUSE.days} days"
        raise InvalidRequest.of("duration", rule)


@database.write_transaction
def _pause(key: str, duration: timedelta) -> None:
    paused = LimitKey.primary.filter(pk=key, paused_until__gt=Now())
    before = paused.values_list("paused_until", flat=True).first()
    limit_journal.pause(key, duration)
    after = LimitKey.primary.values_list("paused_until", flat=True).get(pk=key)
    if after != before:
        moments = [
            None if each is None else times.format_timestamp(each) for each in (before, after)
        ]
        changes = {"paused_until": (moments[0], moments[1])}
        operator.acted("limit_key.paused", key, changes=changes)


@database.write_transaction
def open_now(keys: Collection[str]) -> int:
    """End the pauses of these keys. Return how many were paused."""
    opened = limit_journal.end_pauses(keys)
    for key, until in opened.items():
        changes = {"paused_until": (times.format_timestamp(until), None)}
        operator.acted("limit_key.opened", key, changes=changes)
    return len(opened)


def at_limit() -> dict[str, int]:
    """Return the number of keys whose jobs are held, by the limit that holds them."""
    held = LimitKey.primary.exclude(limited_by="").order_by()
    counts = dict(held.values_list("limited_by").annotate(number=Count("pk")))
    return {strategy: counts.get(strategy, 0) for strategy in STRATEGIES}
