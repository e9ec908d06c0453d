"""The journal of the limits by key: which keys to check, and which held jobs to open then.

See `claims_by_key` for the whole method.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models.functions import Now

from django_ojs.extensions.limits.limit_key_events import of_limit_key
from django_ojs.extensions.limits.limit_key_use import KeyOfJob, KeyUse, parsed, uses_of
from django_ojs.extensions.limits.limit_statements import statements
from django_ojs.extensions.limits.models import BY_KEY, HELD, OPEN, LimitCheck, LimitKey
from django_ojs.hooks import publish_all
from django_ojs.models import Job
from django_ojs.spec.published import EventType
from django_ojs.spec.states import State
from django_ojs.storage import database, holds, raw_queries

#: The bit of this rule in `Queue.rules`, set for queues that have had a job with a key.
RULE: Final = 1 << BY_KEY

#: How many keys one transaction takes from the journal, and how many held jobs of each key and
#: queue it opens.
KEYS_AT_ONCE: Final = 100
OPENED_AT_ONCE: Final = 10

#: Jobs of a key may have different policies. If the best held jobs may not start, the best BEHIND
#: jobs are searched for other policies, until POLICIES of them were rejected.
BEHIND: Final = 1000
POLICIES: Final = 10

#: If another transaction has locked the held jobs of a key, the key is checked again after this
#: time, because that transaction may move them or be rolled back.
LOCKED_AFTER: Final = timedelta(seconds=1)

#: A key has left its limit after this many milliseconds without a held job.
_EPISODE_ENDS_AFTER_MS: Final = 60_000

#: The latest time that is stored, in seconds since 1970: the year 9000.
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


def due_condition() -> str:
    """Return the SQL condition that keys may have room again."""
    return raw_queries.condition(LimitCheck, f"due_at <= {database.dialect().now}")


def open_due() -> int:
    """Open held jobs of keys that have room. Return how many keys were checked."""
    # Usually no key is due, and this query takes no lock.
    return _open_due() if raw_queries.holds(due_condition()) else 0


@database.write_transaction
def _open_due() -> int:
    """Take keys from the journal, and open their best held jobs that may start."""
    # Each statement has to see what was committed before.
    database.dialect().read_committed(database.connection())
    ours = statements()
    keys = [key for key, is_locked in ours.due_keys(KEYS_AT_ONCE) if is_locked]
    if not keys:
        return 0
    # A job whose end added a row that is deleted here no longer counts in the next statement.
    LimitCheck.primary.filter(limit_key__in=keys, due_at__lte=Now()).delete()
    uses = uses_of(keys)
    opened: dict[UUID, str] = {}
    room_at: dict[str, int] = {}
    again: list[str] = []
    # Keys without a rejected job. If jobs of these stay held, another transaction has locked them.
    unsettled = set(keys)
    held: dict[tuple[str, str], list[tuple[UUID, str | None]]] = {}
    for key, queue, job_id, policy in ours.held_jobs(keys, OPENED_AT_ONCE, RULE):
        held.setdefault((key, queue), []).append((job_id, policy))
    for (key, queue), jobs in held.items():
        may_start, rejected = _split(key, jobs, uses[key], room_at)
        page = jobs
        while not may_start and len(page) == OPENED_AT_ONCE and len(rejected) < POLICIES:
            page = ours.held_behind(
                key=key,
                queue=queue,
                policies=rejected,
                behind=BEHIND,
                limit=OPENED_AT_ONCE,
            )
            may_start, others = _split(key, page, uses[key], room_at)
            rejected |= others
        opened |= dict.fromkeys(may_start, queue)
        if len(may_start) == OPENED_AT_ONCE:
            again.append(key)
        if rejected or len(may_start) == OPENED_AT_ONCE:
            unsettled.discard(key)
    if opened:
        holds.release(BY_KEY, opened, to=OPEN)
    check_at(room_at)
    checks = [LimitCheck(limit_key=key, due_at=Now()) for key in again]
    if unsettled:
        at = Now() + LOCKED_AFTER
        locked = _with_held(unsettled)
        checks += [LimitCheck(limit_key=key, due_at=at) for key in locked]
        _ease(unsettled - locked, uses)
    LimitCheck.primary.bulk_create(checks)
    return len(keys)


def _with_held(keys: Collection[str]) -> set[str]:
    held = Job.primary.annotate(key=KeyOfJob()).filter(
        key__in=keys, state=State.AVAILABLE, hold=HELD
    )
    return set(held.order_by().values_list("key", flat=True).distinct())


def _split(
    key: str, jobs: Iterable[tuple[UUID, str | None]], use: KeyUse, room_at: dict[str, int]
) -> tuple[list[UUID], set[str]]:
    """Return the held jobs that may start together, and the policies of the others."""
    may_start: list[UUID] = []
    rejected: set[str] = set()
    for job_id, policy in jobs:
        use = use.under(parsed(policy))
        if use.room:
            may_start.append(job_id)
            use = use.after_start()
        else:
            rejected.add(policy or "")
            note_room(room_at, key, use)
    return may_start, rejected


def _ease(keys: Iterable[str], uses: Mapping[str, KeyUse]) -> None:
    """Note that no job of these keys is held, and report those without a held job for a minute.

    Without the minute there would be too many events: near the limit of a key, its jobs are held
    and opened many times a minute.
    """
    eased, over = [], []
    ends_at: dict[str, int] = {}
    for key in keys:
        use = uses[key]
        if not use.limited_by:
            continue
        since = use.eased_at
        if since is not None and use.now - since >= _EPISODE_ENDS_AFTER_MS:
            over.append(key)
            continue
        if since is None:
            eased.append(key)
            since = use.now
        # The check is a second later than needed, because the next statement sets `eased_at`.
        ends_at[key] = since + _EPISODE_ENDS_AFTER_MS + 1_000
    if eased:
        LimitKey.primary.filter(pk__in=eased).update(eased_at=Now())
    check_at(ends_at)
    if over:
        LimitKey.primary.filter(pk__in=over).update(
            limited_since=None, limited_by="", eased_at=None
        )
    publish_all(
        of_limit_key(EventType.RATE_LIMIT_RELEASED, key, strategy=uses[key].limited_by)
        for key in over
    )


def note_room(room_at: dict[str, int], key: str, use: KeyUse) -> None:
    """Note when the rates of a job have room, unless an earlier time is noted for its key."""
    if use.seconds_to_rate > 0:
        room_at[key] = min(use.next_at, room_at.get(key, use.next_at))


def check_at(times: Mapping[str, int]) -> None:
    """Append a check of each key for when its rates have room, unless an earlier check exists."""
    if not times:
        return
    due = {key: moment(ms) for key, ms in times.items()}
    known = LimitCheck.primary.filter(limit_key__in=due).values_list("limit_key", "due_at")
    checked = {key for key, at in known if at <= due[key]}
    LimitCheck.primary.bulk_create(
        [LimitCheck(limit_key=key, due_at=at) for key, at in due.items() if key not in checked]
    )


def moment(milliseconds: int) -> datetime:
    # The starts of jobs with other limits can move the time of a slow throttle arbitrarily far.
    return datetime.fromtimestamp(min(milliseconds / 1000, _LATEST), UTC)


def override(key: str, limits: Mapping[str, Any], until: datetime | None) -> None:
    """Replace the limits of the jobs of a key; without limits, end the override."""
    known = LimitKey.primary.filter(pk=key).values_list("override_until", "paused_until").first()
    if known is not None and known[0] not in (None, known[1]):
        # This is the check at the end of the override that is replaced.
        LimitCheck.primary.filter(limit_key=key, due_at=known[0]).delete()
    LimitKey.primary.bulk_create(
        [LimitKey(key=key, expires_at=Now(), override=limits, override_until=until)],
        update_conflicts=True,
        unique_fields=["key"],
        update_fields=["override", "override_until"],
    )
    # Jobs may start now, and again when the override ends.
    checks = [LimitCheck(limit_key=key, due_at=Now())]
    if until is not None:
        checks.append(LimitCheck(limit_key=key, due_at=until))
    LimitCheck.primary.bulk_create(checks)


def pause(key: str, duration: timedelta) -> bool:
    """Pause a key for a duration. A pause that lasts longer stays as it is.

    Return whether the key was not paused before.
    """
    # Two jobs may pause the key at the same time, and each has to see what the other one stored.
    database.dialect().lock_subject(database.connection(), f"pause of {key}")
    until = Now() + duration
    is_new = not LimitKey.primary.filter(pk=key, paused_until__gt=Now()).exists()
    if is_new or not LimitKey.primary.filter(pk=key, paused_until__gte=until).exists():
        LimitKey.primary.bulk_create(
            [LimitKey(key=key, expires_at=Now(), paused_until=until, paused_at=Now())],
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["paused_until", *(["paused_at"] if is_new else ())],
        )
        LimitCheck.primary.bulk_create([LimitCheck(limit_key=key, due_at=until)])
    return is_new


def end_pauses(keys: Collection[str]) -> dict[str, datetime]:
    """End the pauses of these keys. Return when each of them would have ended."""
    paused = LimitKey.primary.filter(pk__in=keys, paused_until__gt=Now())
    locked = paused.select_for_update().values_list("pk", "paused_until")
    found = {key: until for key, until in locked if until is not None}
    LimitKey.primary.filter(pk__in=found).update(paused_until=None, paused_at=None)
    LimitCheck.primary.bulk_create([LimitCheck(limit_key=key, due_at=Now()) for key in found])
    return found
