"""The rows of the outbox, and the order in which they are sent.

First in, first out: a job whose transaction began after another one's commit is sent after it, and
the jobs of one transaction in the order of their enqueues. The order is that of positions (see
`positions`).
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.functions import Length, Now

from django_ojs.models import OutboxEntry
from django_ojs.models.outbox import Delivery
from django_ojs.spec.failure import clean
from django_ojs.storage import commit_order, database, raw_queries

#: Rows that get their positions in one transaction.
ASSIGNED_AT_ONCE = 1000
#: No relay postpones a job for longer.
LONGEST_WAIT = timedelta(hours=1)
#: Characters of envelopes.
LOADED_AT_ONCE = 16 * 1024 * 1024


def entries(using: str) -> QuerySet[OutboxEntry]:
    """All rows of the outbox of an alias."""
    return OutboxEntry.objects.using(using)


def add(new: Sequence[OutboxEntry], using: str, *, generated_ids: bool) -> UUID | None:
    """Store rows in the caller's transaction. Return the first id that is taken: then none is.

    The transaction stays usable either way. `generated_ids`: they are ours and cannot be taken.
    """
    if generated_ids:
        database.retried(lambda: entries(using).bulk_create(new), using)
        return None
    keys = [entry.job_id for entry in new]
    taken = _taken(keys, using)
    if taken is None:
        try:
            database.retried(lambda: _add_atomically(new, using), using)
        except IntegrityError:
            # Somebody else's, committed since. Under an old snapshot it is not even seen.
            taken = _taken(keys, using) or keys[0]
    return taken


def _add_atomically(new: Sequence[OutboxEntry], using: str) -> None:
    with transaction.atomic(using=using):
        entries(using).bulk_create(new)


def assign_positions(using: str, limit: int = ASSIGNED_AT_ONCE) -> int:
    """Give committed rows without a position theirs. Return how many."""
    return commit_order.assign(OutboxEntry, using, limit)


def next_of(
    destination: str, using: str, limit: int, queue: str | None = None
) -> list[OutboxEntry]:
    """Return what is to be sent now, in order; nothing while the first of them has to wait.

    It stops before more than `LOADED_AT_ONCE` characters would be in memory, after one at least.
    """
    waiting = _waiting(destination, using)
    if queue is not None:
        waiting = waiting.filter(queue=queue)
    # Only the first is asked whether it is due: nothing may overtake it. One that is further away
    # than any is put off was postponed before the clock was set back.
    due = ExpressionWrapper(
        Q(next_try_at=None)
        | Q(next_try_at__lte=Now())
        | Q(next_try_at__gt=Now() + LONGEST_WAIT + timedelta(minutes=1)),
        output_field=BooleanField(),
    )
    looked_at = waiting.annotate(due=due, size=Length("envelope")).order_by("position")
    keys: list[int] = []
    total = 0
    for key, is_due, size in looked_at.values_list("pk", "due", "size")[:limit]:
        total += size
        if keys and total > LOADED_AT_ONCE:
            break
        if not keys and not is_due:
            return []
        keys.append(key)
    return list(entries(using).filter(pk__in=keys).order_by("position"))


def has_any(destination: str, using: str) -> bool:
    """Say whether anything waits for a destination, with a position or without one yet."""
    where = "state = %s AND destination = %s"
    return raw_queries.exists(
        OutboxEntry, where, [Delivery.PENDING.value, destination], using=using
    )


def queues_of(destination: str, using: str) -> list[str]:
    """Return the queues that have something to send, by as many looks at an index."""
    found: list[str] = []
    ordered = (
        _waiting(destination, using).order_by("queue", "position").values_list("queue", flat=True)
    )
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
    """Note that these have arrived. Return how many were not known to."""
    return _mark(
        keys, using, state=Delivery.SENT, sent_at=Now(), attempts=F("attempts") + 1,
        next_try_at=None, error_code="", error_message="",
    )  # fmt: skip


def refused(key: int, using: str, *, code: str, message: str) -> int:
    """Note that one will never be taken, and why."""
    return _mark(
        [key], using, state=Delivery.REFUSED, attempts=F("attempts") + 1, next_try_at=None,
        error_code=clean(code, 64), error_message=clean(message, 1000),
    )  # fmt: skip


def postponed(
    keys: Collection[int], using: str, *, code: str, message: str, wait: timedelta
) -> int:
    """Note that an attempt failed, and when the next one is due."""
    return _mark(
        keys, using, attempts=F("attempts") + 1, next_try_at=Now() + wait,
        error_code=clean(code, 64), error_message=clean(message, 1000),
    )  # fmt: skip


def _mark(keys: Collection[int], using: str, **values: object) -> int:
    rows = entries(using).filter(pk__in=list(keys), state=Delivery.PENDING)
    return database.retried(lambda: rows.update(**values), using)


def requeue(keys: Collection[int], using: str) -> int:
    """Put refused ones at the end of the line. Return how many there were."""
    rows = entries(using).filter(pk__in=list(keys), state=Delivery.REFUSED)
    return database.retried(
        lambda: rows.update(state=Delivery.PENDING, position=None, next_try_at=None), using
    )


def unsent(job_ids: Collection[UUID], using: str) -> set[UUID]:
    """Return which of these jobs are there and have not arrived."""
    rows = entries(using).filter(job_id__in=job_ids).exclude(state=Delivery.SENT)
    return set(rows.values_list("job_id", flat=True))


def prune(using: str, *, keep_sent: timedelta, keep_refused: timedelta, limit: int) -> int:
    """Delete rows that are done with, oldest first. Return how many."""
    count = 0
    for old, order in (
        (Q(state=Delivery.SENT, sent_at__lt=Now() - keep_sent), "sent_at"),
        (Q(state=Delivery.REFUSED, created_at__lt=Now() - keep_refused), "created_at"),
    ):
        keys = list(entries(using).filter(old).order_by(order).values_list("pk", flat=True)[:limit])
        if keys:
            # Again with the condition: one of them may have been put back meanwhile.
            gone = entries(using).filter(old, pk__in=keys)
            count += database.retried(lambda gone=gone: gone.delete()[0], using)  # type: ignore[misc]  # its default binds the loop's variable
    return count


def _taken(keys: Sequence[UUID], using: str) -> UUID | None:
    rows = entries(using).filter(job_id__in=keys).values_list("job_id", flat=True)
    seen = set(rows)
    for key in keys:
        if key in seen:
            return key
        seen.add(key)  # The same id twice in one call: the second is the duplicate.
    return None
