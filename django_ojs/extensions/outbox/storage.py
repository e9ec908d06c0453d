"""The rows of the outbox, and the order in which they are sent.

First in, first out: a job whose transaction began after the commit of another job is sent after it.
The jobs of one transaction are sent in the order of their enqueues. Positions give this order (see
`events.commit_order`).
"""

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, OperationalError, ProgrammingError, transaction
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.functions import Length, Now

from django_ojs.extensions.outbox.models import Delivery, HoldsBack, OutboxEntry
from django_ojs.spec.errors import WrongDatabase
from django_ojs.spec.failure import clean
from django_ojs.spec.full_policy import LOCAL
from django_ojs.storage import database, raw_queries

#: The longest time by which a relay postpones a job.
LONGEST_WAIT = timedelta(hours=1)
#: The most characters of several envelopes that one call of `next_of` returns.
LOADED_AT_ONCE = 16 * 1024 * 1024
#: The condition on rows that wait for a destination.
_WAITS: Final = f"state = '{Delivery.PENDING.value}' AND destination = %s"


def entries(using: str) -> QuerySet[OutboxEntry]:
    """All rows of the outbox of an alias."""
    return OutboxEntry.objects.using(using)


def add(new: Sequence[OutboxEntry], using: str, *, generated_ids: bool) -> UUID | None:
    """Store rows in the caller's transaction, unless an id exists already. Return this id, or None.

    If an id exists, no row is stored. The transaction stays usable either way. `generated_ids` says
    that this process generated the ids, so that none exists already.
    """
    try:
        return _add(new, using, generated_ids=generated_ids)
    except (OperationalError, ProgrammingError) as error:
        if not _NO_TABLE.search(str(error)):
            raise
        raise WrongDatabase(
            f"The database {using!r} has no outbox for the job: run `manage.py migrate django_ojs "
            f"--database {using}`, and let the database router allow it."
        ) from error


_NO_TABLE: Final = re.compile(
    r"""relation "ojs_outbox" does not exist|no such table: ojs_outbox|"""
    r"""Table '[^']*\.ojs_outbox' doesn't exist"""
)


def _add(new: Sequence[OutboxEntry], using: str, *, generated_ids: bool) -> UUID | None:
    if generated_ids:
        database.retried(lambda: entries(using).bulk_create(new), using)
        return None
    keys = [entry.job_id for entry in new]
    taken = _taken(keys, using)
    if taken is None:
        try:
            database.retried(lambda: _add_atomically(new, using), using)
        except IntegrityError:
            # Another transaction has committed this id since; an old snapshot does not show it.
            taken = _taken(keys, using) or keys[0]
    return taken


def _add_atomically(new: Sequence[OutboxEntry], using: str) -> None:
    with transaction.atomic(using=using):
        entries(using).bulk_create(new)


def next_of(
    destination: str, using: str, limit: int, queue: str | None = None
) -> list[OutboxEntry]:
    """Return the rows to send now, in order; none while the first of them is postponed.

    Rows of a queue or a tenant that a postponed row holds back are left out. Several rows have at
    most `LOADED_AT_ONCE` characters together; a single row may have more.
    """
    # Only the first row must be due, because no other may overtake it. A row that is due later than
    # the longest postponement allows was postponed before the clock was set back.
    due = ExpressionWrapper(
        Q(next_try_at=None)
        | Q(next_try_at__lte=Now())
        | Q(next_try_at__gt=Now() + LONGEST_WAIT + timedelta(minutes=1)),
        output_field=BooleanField(),
    )
    waiting = _waiting(destination, using).annotate(due=due)
    if queue is not None:
        waiting = waiting.filter(queue=queue)
    holding = waiting.exclude(holds_back=HoldsBack.DESTINATION).filter(due=False)
    held = set(holding.values_list("holds_back", "queue", "tenant_id"))
    found: list[tuple[Any, ...]] = []
    for part in _not_held(waiting, held, queue) if held else [waiting]:
        rows = part.annotate(size=Length("envelope")).order_by("position")
        found += rows.values_list("position", "pk", "due", "size")[:limit]
    keys: list[int] = []
    total = 0
    for _position, key, is_due, size in sorted(found)[:limit]:
        total += size
        if keys and total > LOADED_AT_ONCE:
            break
        if not keys and not is_due:
            return []
        keys.append(key)
    return list(entries(using).filter(pk__in=keys).order_by("position"))


def _not_held(
    waiting: QuerySet[OutboxEntry], held: Collection[tuple[str, str, str]], queue: str | None
) -> Iterator[QuerySet[OutboxEntry]]:
    """Return the rows of each queue that is not held back, without those of held tenants.

    They are selected by queue, so that no query reads the rows of a queue that is held back. There
    may be millions.
    """
    whole = {name for kind, name, _ in held if kind == HoldsBack.QUEUE}
    for each in _queues_of(waiting) if queue is None else [queue]:
        if each not in whole:
            tenants = [tenant for _, name, tenant in held if name == each]
            yield waiting.filter(queue=each).exclude(tenant_id__in=tenants)


def has_any(destination: str, using: str) -> bool:
    """Whether rows wait for a destination, with or without a position."""
    return raw_queries.exists(OutboxEntry, _WAITS, [destination], using=using)


def any_condition() -> str:
    """Return the SQL condition that rows wait to be stored here, in the jobs' own database."""
    return raw_queries.condition(OutboxEntry, _WAITS % f"'{LOCAL}'")


def queues_of(destination: str, using: str) -> list[str]:
    """Return the queues with rows to send, by one index query for each."""
    return _queues_of(_waiting(destination, using))


def _queues_of(waiting: QuerySet[OutboxEntry]) -> list[str]:
    found: list[str] = []
    ordered = waiting.order_by("queue", "position").values_list("queue", flat=True)
    queue = ordered.first()
    while queue is not None:
        found.append(queue)
        queue = ordered.filter(queue__gt=queue).first()
    return found


def _waiting(destination: str, using: str) -> QuerySet[OutboxEntry]:
    return entries(using).filter(
        destination=destination, state=Delivery.PENDING, position__isnull=False
    )


def sent(keys: Collection[int], using: str) -> int:
    """Mark rows as delivered. Return how many were pending."""
    return _mark(
        keys, using, state=Delivery.SENT, sent_at=Now(), attempts=F("attempts") + 1,
        next_try_at=None, error_code="", error_message="",
    )  # fmt: skip


def lock(keys: Collection[int], using: str) -> bool:
    """Lock rows until the transaction ends. Return False unless all are free and pending."""
    rows = entries(using).filter(pk__in=list(keys), state=Delivery.PENDING)
    return len(database.lock_free(rows)) == len(keys)


def rejected(key: int, using: str, *, code: str, message: str) -> int:
    """Mark a row as rejected for good, with the reason."""
    return _mark(
        [key], using, state=Delivery.REJECTED, attempts=F("attempts") + 1, next_try_at=None,
        sent_at=Now(),
        error_code=clean(code, 64), error_message=clean(message, 1000),
    )  # fmt: skip


def postponed(
    keys: Collection[int],
    using: str,
    *,
    code: str,
    message: str,
    wait: timedelta,
    holds_back: HoldsBack = HoldsBack.DESTINATION,
) -> int:
    """Record a failed attempt, when the next one is made, and which rows wait until then."""
    return _mark(
        keys, using, attempts=F("attempts") + 1, next_try_at=Now() + wait, holds_back=holds_back,
        error_code=clean(code, 64), error_message=clean(message, 1000),
    )  # fmt: skip


def _mark(keys: Collection[int], using: str, **values: object) -> int:
    rows = entries(using).filter(pk__in=list(keys), state=Delivery.PENDING)
    return database.retried(lambda: rows.update(**values), using)


def requeue(keys: Collection[int], using: str) -> int:
    """Make rejected rows pending, after all others. Return how many."""
    rows = entries(using).filter(pk__in=list(keys), state=Delivery.REJECTED)
    return database.retried(
        lambda: rows.update(
            state=Delivery.PENDING, position=None, next_try_at=None, sent_at=None, holds_back=""
        ),
        using,
    )


def unsent(job_ids: Collection[UUID], using: str) -> dict[UUID, bool]:
    """Return which jobs are in the outbox undelivered: True if pending, False if rejected."""
    rows = entries(using).filter(job_id__in=job_ids).exclude(state=Delivery.SENT)
    found = rows.values_list("job_id", "state")
    return {job_id: state == Delivery.PENDING for job_id, state in found}


def old_condition(*, keep_sent: timedelta, keep_rejected: timedelta) -> str:
    """Return the SQL condition that `prune` may find any rows in the jobs' own database."""
    sent = f"state = '{Delivery.SENT.value}'"
    rejected = f"state = '{Delivery.REJECTED.value}'"
    sent = raw_queries.is_older(OutboxEntry, "sent_at", sent, keep_sent)
    # `created_at` has an index; `sent_at`, the time of the rejection, decides.
    times = ("created_at", "coalesce(sent_at, created_at)")
    both = [raw_queries.is_older(OutboxEntry, time, rejected, keep_rejected) for time in times]
    return f"({sent} OR ({' AND '.join(both)}))"


def prune(using: str, *, keep_sent: timedelta, keep_rejected: timedelta, limit: int) -> int:
    """Delete sent and rejected rows after their retention times, oldest first. Return how many."""
    count = 0
    # A job may have waited for long before its rejection, so `sent_at` decides. `created_at` is
    # compared because it has an index.
    since = Now() - keep_rejected
    was_sent = Q(sent_at__isnull=True) | Q(sent_at__lt=since)
    for old, order in (
        (Q(state=Delivery.SENT, sent_at__lt=Now() - keep_sent), "sent_at"),
        (Q(was_sent, state=Delivery.REJECTED, created_at__lt=since), "created_at"),
    ):
        count += database.delete_free(entries(using).filter(old).order_by(order), limit)
    return count


def _taken(keys: Sequence[UUID], using: str) -> UUID | None:
    rows = entries(using).filter(job_id__in=keys).values_list("job_id", flat=True)
    seen = set(rows)
    for key in keys:
        if key in seen:
            return key
        seen.add(key)  # The id occurs twice in one call, and the second row is the duplicate.
    return None
