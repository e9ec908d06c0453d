"""API keys that need an operator: in use and about to expire, or used after their end."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now

from django_ojs.models import ApiKey
from django_ojs.operations.access import api_keys
from django_ojs.spec.times import elapsed

#: A key is about to expire in its last week, and in the last quarter of a shorter lifetime.
SOON: Final = timedelta(days=7)
#: A key is in use if it was used within this time. The second value is for keys that were replaced
#: or are rejected, because their programs may have a new key.
USED_WITHIN: Final = timedelta(days=7)
OLD_USED_WITHIN: Final = timedelta(hours=1)
MOST: Final = 20
#: How many keys are read to find these; most keys that expire soon need no operator yet.
_MOST_READ: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyProblem:
    """A key in use that expires, or one that has ended and is rejected (`rejected_at`).

    `replaced_by` is the prefix of the key that replaces it.
    """

    id: int
    name: str
    prefix: str
    status: str
    expires_at: datetime | None
    used_at: datetime | None
    rejected_at: datetime | None
    replaced_by: str | None


def with_replacement(keys: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
    """Add to each key the prefix of the latest key that replaced it, as `replaced_by`."""
    newer = ApiKey.primary.filter(principal=OuterRef("principal"), pk__gt=OuterRef("pk"))
    latest = newer.filter(revoked_at=None).order_by("-pk")
    return keys.annotate(
        replaced_by=Subquery(latest.values("prefix")[:1]),
        replaced_at=Subquery(latest.values("created_at")[:1]),
    )


def status_text(key: Any) -> str:
    """Return the status of a key of `with_replacement` in words: "active, replaced by 4f0z…"."""
    status = api_keys.status(key)
    if not key.replaced_by:
        return status
    return f"{status}, replaced by {key.replaced_by}"


def problems() -> list[KeyProblem]:
    """Return the keys that need an operator, those that are rejected first."""
    keys = with_replacement(api_keys.keys())
    soon = Q(revoked_at=None, expires_at__gt=Now(), expires_at__lte=Now() + SOON)
    in_use = Q(last_used_at__gt=Now() - USED_WITHIN)
    rejected = Q(rejected_at__gt=Now() - OLD_USED_WITHIN)
    found = keys.filter((soon & in_use) | rejected).order_by(
        F("rejected_at").desc(nulls_last=True), "expires_at", "pk"
    )
    needing = (_problem(key) for key in found[:_MOST_READ] if _needs_operator(key))
    return list(islice(needing, MOST))


def _needs_operator(key: Any) -> bool:
    if api_keys.status(key) != api_keys.ACTIVE:
        return True
    if key.expires_at is None or key.last_used_at is None:
        return False  # The key was rejected once, and has become valid again.
    if key.replaced_by is not None:
        used_since: bool = key.last_used_at > key.replaced_at
        return used_since and elapsed(key.last_used_at, key.now) < OLD_USED_WITHIN
    left = elapsed(key.now, key.expires_at)
    is_last_quarter: bool = left <= elapsed(key.created_at, key.expires_at) / 4
    return left <= SOON and is_last_quarter


def _problem(key: Any) -> KeyProblem:
    status = api_keys.status(key)
    return KeyProblem(
        id=key.pk,
        name=str(key),
        prefix=key.prefix,
        status=status,
        expires_at=key.expires_at,
        used_at=key.last_used_at,
        rejected_at=None if status == api_keys.ACTIVE else key.rejected_at,
        replaced_by=key.replaced_by,
    )


def sentence(problem: KeyProblem) -> str:
    """Return why a key needs an operator, without times."""
    if problem.rejected_at is not None:
        return _rejected(problem)
    if problem.replaced_by:
        return f"It was replaced by {problem.replaced_by}, and a program still uses it."
    return "It is in use, and nothing has replaced it."


def _rejected(problem: KeyProblem) -> str:
    what = "It was revoked" if problem.status == "revoked" else "It has expired"
    text = f"{what}, and a program still sends it"
    if not problem.replaced_by:
        return f"{text}."
    return f"{text}; its programs need the key {problem.replaced_by}."
