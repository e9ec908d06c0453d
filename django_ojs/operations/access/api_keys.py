"""Create, find, revoke and replace API keys (ojs-security §6, §12.3).

A key is `ojs_<prefix>_<secret>`. The prefix finds the row and names the key; of the secret, only a
hash is stored. The hash is SHA-256 and not a slow one: 256 random bits cannot be guessed at any
speed, and a slow hash on every request would make denial of service easy.
"""

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce, Least, Now

from django_ojs.conf import settings
from django_ojs.models import ApiKey
from django_ojs.operations.access import operator
from django_ojs.spec import times
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    TokenExpired,
    Unauthenticated,
)
from django_ojs.spec.scopes import Scope
from django_ojs.spec.times import elapsed
from django_ojs.storage import api_keys as stored
from django_ojs.storage import database

#: The prefix of every key, by which a scanner for leaked secrets recognizes it.
MARK = "ojs_"
#: How long a replaced key remains valid (§12.5).
GRACE = timedelta(hours=24)

_SCOPES: Final = {scope.value: scope for scope in Scope}

#: The status of a valid key.
ACTIVE = "active"

PREFIX_LENGTH = 10
# 43 of 62 characters are 256 bits (§6.1).
SECRET_LENGTH = 43
_PREFIX = string.ascii_lowercase + string.digits
_SECRET = string.ascii_letters + string.digits
_FORMAT = re.compile(f"{MARK}([a-z0-9]{{{PREFIX_LENGTH}}})_([A-Za-z0-9]{{{SECRET_LENGTH}}})")

_NAME_LENGTH = 100
_NOTED_EVERY = timedelta(minutes=1)
# The hash to compare with when the prefix is unknown: no secret has it.
_NO_DIGEST = "0" * 64


def keys() -> QuerySet[ApiKey]:
    """Return all keys, with the database's time as `now`."""
    return ApiKey.primary.annotate(now=Now())


def create(
    *,
    name: str,
    scopes: Iterable[str],
    queues: Iterable[str] = (),
    expires: datetime | timedelta | None = None,
) -> tuple[ApiKey, str]:
    """Store a key. Return it with its text, which cannot be read again.

    An empty `queues` means all queues. `expires` is a time or a duration. Raises InvalidRequest,
    which names the field.
    """
    if not name.strip() or len(name) > _NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(
            f"name: must be 1 to {_NAME_LENGTH} printable characters.",
            details={"field": "name"},
        )
    with database.atomic():
        key, text = _create(
            name=name, scopes=scopes, queues=queues, expires=expires, principal=None
        )
        values = {"name": key.name, "scopes": key.scopes, "queues": key.queues, **_shown(key)}
        changes = operator.changed({}, values)
        operator.acted("api_key.created", key.pk, changes=changes, key_prefix=key.prefix)
    return key, text


def _create(
    *,
    name: str,
    scopes: Iterable[str],
    queues: Iterable[str],
    expires: datetime | timedelta | None,
    principal: str | None,
) -> tuple[ApiKey, str]:
    prefix = _random(_PREFIX, PREFIX_LENGTH)
    secret = _random(_SECRET, SECRET_LENGTH)
    keys().create(
        name=name.strip(),
        prefix=prefix,
        principal=principal or prefix,
        digest=_digest(secret),
        scopes=_checked_scopes(scopes),
        queues=checked_queues(queues),
        expires_at=Now() + expires if isinstance(expires, timedelta) else expires,
    )
    # The row is read again, because the database computed its times.
    return _get(prefix), f"{MARK}{prefix}_{secret}"


def find(presented: str) -> stored.StoredKey:
    """Return the key that a client presented, and record its use.

    Raises TokenExpired for an expired or revoked key. For a malformed, unknown or wrong key it
    raises the same Unauthenticated after the same work.
    """
    match = _FORMAT.fullmatch(presented)
    prefix, secret = match.groups() if match else ("", "")
    key = stored.find(prefix)
    same = hmac.compare_digest(_digest(secret), key.digest if key else _NO_DIGEST)
    if key is None or not same:
        raise Unauthenticated("The API key is not valid.")
    # This comes after the comparison, so that a client without the secret learns nothing about the
    # key.
    if (what := status(key)) != ACTIVE:
        _note(key, "rejected_at")
        raise TokenExpired(f"The API key is {what}.")
    _note(key, "last_used_at")
    return key


def status(key: Any) -> str:
    """Return whether a key, with the time as `now`, is active, expired or revoked."""
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= key.now:
        return "expired"
    return ACTIVE


def prefix_of(presented: str) -> str | None:
    """Return the part of a well-formed key that is not secret, or None."""
    match = _FORMAT.fullmatch(presented)
    return match[1] if match else None


@database.write_transaction
def revoke(prefix: str) -> ApiKey:
    """Revoke a key from its next request on, and return it.

    Revoking it again keeps the first time. Raises NotFound.
    """
    before = keys().filter(prefix=prefix, revoked_at=None).select_for_update().first()
    if before is None:
        return _get(prefix)
    keys().filter(pk=before.pk).update(revoked_at=Now())
    revoked = _get(prefix)
    changes = operator.changed(_shown(before), _shown(revoked))
    operator.acted("api_key.revoked", before.pk, changes=changes, key_prefix=prefix)
    return revoked


@database.write_transaction
def replace(
    prefix: str,
    *,
    grace: timedelta = GRACE,
    expires: datetime | timedelta | None = None,
    latest_known: str | None = None,
) -> tuple[ApiKey, str]:
    """Replace a key by a new one with the same rights; the old key expires after `grace`.

    Return what `create` returns. During `grace` both are valid (ojs-security §6.4), and they are
    the same principal. Without `expires`, the new key has the lifetime of the latest key of this
    principal. Raises NotFound, and InvalidRequest for an invalid key.

    `latest_known` is the prefix of the latest key of this principal that the caller knows. If there
    is a later one, Conflict is raised, so that two simultaneous requests create only one key.
    """
    # All keys of a principal share this lock, so that requests for any of them run one after the
    # other.
    subject = f"keys of {_get(prefix).principal}"
    database.dialect().lock_subject(database.connection(), subject)
    old = keys().filter(prefix=prefix).select_for_update().first() or _get(prefix)
    if status(old) != ACTIVE:
        raise InvalidRequest(
            "prefix: the key has expired or was revoked.", details={"field": "prefix"}
        )
    # If the old key was replaced before, its `expires_at` is the end of its grace period and not of
    # its lifetime.
    latest = latest_of(old)
    if latest_known is not None and latest_known != latest.prefix:
        raise Conflict(
            f"The key was replaced by {latest.prefix} meanwhile.",
            details={"resource_type": "api_key"},
        )
    if expires is None and latest.expires_at is not None:
        expires = elapsed(latest.created_at, latest.expires_at)
    new = _create(
        name=old.name,
        scopes=old.scopes,
        queues=old.queues,
        expires=expires,
        principal=old.principal,
    )
    ends = Now() + grace
    keys().filter(pk=old.pk).update(expires_at=Least(Coalesce("expires_at", ends), ends))
    changes = operator.changed(_shown(old), _shown(_get(prefix)))
    operator.acted(
        "api_key.replaced",
        old.pk,
        changes=changes,
        key_prefix=old.prefix,
        replaced_by=new[0].prefix,
    )
    return new


def latest_of(key: ApiKey) -> ApiKey:
    """Return the latest key of the same principal: this key, or the last that replaced it."""
    return keys().filter(principal=key.principal).latest("pk")


def _shown(key: ApiKey) -> dict[str, Any]:
    """Return the times of a key for the audit trail."""
    times_of = {"expires_at": key.expires_at, "revoked_at": key.revoked_at}
    return {name: each and times.format_timestamp(each) for name, each in times_of.items()}


def scopes_of(key: ApiKey | stored.StoredKey) -> frozenset[Scope]:
    """Return a key's scopes, without those that this version does not know."""
    return known_scopes(key.scopes)


def known_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes with these names, without those that this version does not know."""
    return frozenset([_SCOPES[name] for name in names if name in _SCOPES])


def checked_queues(names: Iterable[str]) -> list[str]:
    """Return the names of queues, each once. Raises InvalidRequest for an invalid name."""
    limits = settings().limits
    found = sorted(set(names))
    for name in found:
        check_queue(name, limits)
    return found


def _checked_scopes(scopes: Iterable[str]) -> list[str]:
    given = set(scopes)
    if not given or not given <= set(Scope):
        raise InvalidRequest(
            f"scopes: must be at least one of {', '.join(Scope)}.",
            details={"field": "scopes"},
        )
    return [scope.value for scope in Scope if scope in given]


def _get(prefix: str) -> ApiKey:
    key = keys().filter(prefix=prefix).first()
    if key is None:
        raise NotFound("There is no API key with this prefix.")
    return key


def _note(key: Any, column: str) -> None:
    before = getattr(key, column)
    if before is not None and elapsed(before, key.now) < _NOTED_EVERY:
        return

    # The use is noted after the request's transaction, if it runs in one. Requests with the same
    # key must not wait for each other's commit, nor for an operator who is changing the key; if the
    # row is locked, a later request notes the use.
    @database.write_transaction
    def note() -> None:
        long_ago = Q((column, None)) | Q((f"{column}__lt", Now() - _NOTED_EVERY))
        free = keys().filter(long_ago, pk=key.pk).select_for_update(skip_locked=True)
        if free:
            keys().filter(pk=key.pk).update(**{column: Now()})

    database.after_commit(note)


def _random(alphabet: str, length: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(length))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
