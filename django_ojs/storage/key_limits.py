"""Limits by key on running and on starting jobs (ojs-rate-limiting §5 to §8).

A job with a rate limit policy has a key. It starts only under the lock of its key, in a transaction
that has counted the active jobs of the key in their rows and read when jobs of it started. Claims
try the lock and never wait for it.

A claim that finds a key at its limit marks the job as held (`Job.limit_hold`): claims do not read
it again, however many jobs wait for their keys. It stays available. Each job of the key that ends,
or is no longer active, leaves a row in a journal, in its own transaction (`LimitCheck`); a rate
leaves one for the time at which it has room. A claim, or the maintenance, takes such rows under the
lock of the key, and opens as many of the best held jobs as may start. So a job that was held while
another one ended is found: its row of the journal is committed after the job was held, or the claim
has counted the other one no more.

That a job is open permits nothing: the claim checks its limits. The statement for jobs without a
limit by key takes none of the others.

A job whose policy says so is not held, but rescheduled or dropped (§6.2 `on_limit`), by the claim
that finds its key at the limit. A rescheduled one gets the next time at which its rates are
expected to have room, after those of the other rescheduled jobs of its key: so jobs of a key come
back one after the other, and not all at once to be rescheduled again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, Q
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import Job, LimitCheck, LimitKey, Queue
from django_ojs.spec import json
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.isolation import Isolation
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.rate_limit import Hold, OnLimit, RateLimit, Starts
from django_ojs.spec.rate_limit_policy import LIMITS
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, notify, queue_configs, transitions
from django_ojs.storage.claims import Claimed
from django_ojs.storage.dialects.base import ALL_QUEUES, Candidate
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.queue_limits import RETRY_AFTER, Use, next_starts

#: Returns up to so many available jobs in order, locked, and locks their keys; those of these keys,
#: which other transactions have locked, are left out.
Find = Callable[[int, Collection[str]], list[Candidate]]

#: Keys whose journal one transaction takes, and held jobs of each key and queue that it opens.
KEYS_AT_ONCE: Final = 100
OPENED_AT_ONCE: Final = 10

#: Jobs of a key may have different policies. Where the best held jobs may not start, so many of the
#: best are searched for one with another policy, and policies of up to so many are refused.
BEHIND: Final = 1000
POLICIES: Final = 10

#: When a key is checked again whose held jobs another transaction has locked: it may move them, or
#: be rolled back.
LOCKED_AFTER: Final = timedelta(seconds=1)

#: What may hold the jobs of a key.
STRATEGIES: Final = ("concurrency", "rate", "throttle", "pause")

#: After so many milliseconds without a held job, a key has left its limit.
_EPISODE_ENDS_AFTER_MS: Final = 60_000

#: For how long starts are kept that no rate needs.
_MARGIN: Final = timedelta(minutes=1)

_MILLISECOND: Final = timedelta(milliseconds=1)

#: The latest time that is stored, in seconds since 1970: the year 9000.
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()

#: Jobs at a limit that a claim holds, reschedules or drops in one round, and its rounds.
HELD_AT_ONCE: Final = 200
ROUNDS: Final = 5

#: When a rescheduled job is due at the latest, after its key has room: what is expected may not
#: come true, because other jobs of the key are cancelled, or its limits changed.
RESCHEDULED_WITHIN: Final = timedelta(hours=1)

#: A limit on running jobs does not say when it has room: rescheduled jobs are due after so long,
#: one after the other, for each that may run.
RESCHEDULED_AFTER: Final = timedelta(seconds=1)

#: Dropped jobs are counted together while less time is between two of them.
DROPPED_WITHIN: Final = timedelta(hours=1)

#: Why a job is discarded that its limit let not start.
DROPPED: Final = "rate_limited"
_DROPPED_ERROR: Final = {
    "type": DROPPED,
    "message": "Its rate limit let it not start, and on_limit of the limit is drop.",
    "retryable": False,
}


def mark(queues: Iterable[str]) -> None:
    """Let the claims of these queues check limits by key, from the end of this transaction on."""
    wanted = set(queues)
    marked = Queue.primary.filter(pk__in=wanted, has_limit_keys=True).values_list("pk", flat=True)
    for name in sorted(wanted - set(marked)):
        Queue.primary.bulk_create([Queue(name=name)], ignore_conflicts=True)
        Queue.primary.filter(pk=name).update(has_limit_keys=True)
        queue_configs.changed()


def mark_queues_of(envelopes: Sequence[Envelope]) -> None:
    """Mark the queues of new jobs that have a limit by key."""
    if queues := {each.queue for each in envelopes if each.limit_key is not None}:
        mark(queues)


def is_still_full(queue: str) -> bool:
    """Whether a queue of which all jobs were held still has no other: one query, without a lock."""
    if not next_starts.was_full(queue):
        return False
    connection = database.connection()
    if database.dialect_of(connection).limited_may_start(connection, queue):
        return False
    next_starts.note(queue, RETRY_AFTER)
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyUse(Use):
    """How much of its limits a key uses."""

    #: Limits in place of those of its jobs.
    override: Mapping[str, Any] = field(default_factory=dict)
    #: By which limit jobs of it are held; empty without an episode.
    limited_by: str = ""
    #: Since when none is held any more, in an episode.
    eased_at: int | None = None
    #: For when a job of it was rescheduled last.
    rescheduled_until: int | None = None
    #: How many of its jobs were dropped, and when the last one was.
    dropped: int = 0
    dropped_at: int | None = None

    def under(self, policy: Mapping[str, Any]) -> "KeyUse":
        """Return the use under the limits of a job that has a policy."""
        return replace(self, limit=RateLimit.of_job({**policy, **self.override}))

    def exceeded(self) -> tuple[str, int | None, int | None]:
        """Return the limit that lets no job start: its strategy, its number, and what is used."""
        limit = self.limit
        if self.is_paused:
            return "pause", None, None
        if limit.concurrency is not None and self.active >= limit.concurrency:
            return "concurrency", limit.concurrency, self.active
        for rate in limit.windows:
            if self.starts.in_window(rate, self.now) >= rate.limit:
                return "rate", rate.limit, self.starts.in_window(rate, self.now)
        return "throttle", min((rate.limit for rate in limit.throttles), default=None), None

    def rescheduled_at(self) -> int:
        """Return when a job that may not start is due, if it is rescheduled."""
        if self.seconds_to_rate > 0:
            first = self.next_at
        else:
            first = self.now + RESCHEDULED_AFTER // _MILLISECOND
        spacing = max(
            (rate.period_ms // rate.limit for rate in (*self.limit.windows, *self.limit.throttles)),
            default=0,
        )
        if self.limit.concurrency is not None:
            one_by_one = RESCHEDULED_AFTER // _MILLISECOND // max(1, self.limit.concurrency)
            spacing = max(spacing, one_by_one)
        if self.rescheduled_until is None:
            return first
        latest = first + RESCHEDULED_WITHIN // _MILLISECOND
        return min(max(first, self.rescheduled_until + spacing), latest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """A job that a claim discarded, because its key was at a limit."""

    id: UUID
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """A key reached a limit, or none of its jobs has been held for a minute."""

    key: str
    strategy: str
    is_over: bool = False
    limit: int | None = None
    current: int | None = None


@dataclass(slots=True)
class Effects:
    """What a claim did with keys, and with jobs that it did not return."""

    #: Keys that reached a limit, or left it.
    crossings: list[Crossing] = field(default_factory=list)
    rescheduled: list[UUID] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    """What a claim finds among the best jobs of a queue."""

    chosen: list[Candidate] = field(default_factory=list)
    #: Those that their key does not let start, by what becomes of them.
    held: list[UUID] = field(default_factory=list)
    rescheduled: dict[UUID, int] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    #: The sum of the sizes of the dropped jobs, those of the rounds before included.
    dropped_size: int = 0
    #: The next job is one that would be dropped, and is too large to be dropped with the others.
    is_cut: bool = False
    busy: set[str] = field(default_factory=set)
    #: The limit that the first refused job of each key met.
    exceeded: dict[str, tuple[str, int | None, int | None]] = field(default_factory=dict)
    #: Before the chosen jobs start.
    uses: dict[str, KeyUse] = field(default_factory=dict)
    #: When the rates of keys have room again, in milliseconds since 1970.
    room_at: dict[str, int] = field(default_factory=dict)
    #: For when jobs of keys were rescheduled last.
    rescheduled_until: dict[str, int] = field(default_factory=dict)

    @property
    def has_refused(self) -> bool:
        return bool(self.exceeded)

    def refuse(self, job: Candidate, policy: Mapping[str, Any], use: KeyUse) -> None:
        """Note what becomes of a job that its key does not let start."""
        assert job.key is not None
        self.exceeded.setdefault(job.key, use.exceeded())
        _note_room(self.room_at, job.key, use)
        match policy.get("on_limit"):
            case OnLimit.RESCHEDULE:
                until = self.rescheduled_until.get(job.key, use.rescheduled_until)
                at = replace(use, rescheduled_until=until).rescheduled_at()
                self.rescheduled[job.id] = self.rescheduled_until[job.key] = at
            case OnLimit.DROP:
                self.dropped.append(Dropped(id=job.id, key=job.key))
                self.dropped_size += job.size
            case _:
                self.held.append(job.id)


def claim(
    *,
    queue: str,
    limit: int,
    worker_id: str | None,
    lease_ms: int,
    own_lease: bool,
    isolation: Isolation,
    max_bytes: int,
    at_least_one: bool,
    find: Find | None = None,
) -> tuple[list[Claimed], Effects]:
    """Claim the best jobs of a queue, those with a limit by key within their limits.

    As `transitions.claim`, in a transaction in which each statement sees what was committed before.
    `find` finds the jobs in another order, in which they are claimed and returned. Return them, and
    what became of keys and of other jobs.
    """
    _, crossings = open_due()
    effects = Effects(crossings=crossings)
    connection = database.connection()
    dialect = database.dialect_of(connection)
    found, busy, limited, is_cut, dropped_size = _Round(), set[str](), limit, False, 0
    for _ in range(ROUNDS):
        if find is not None:
            candidates = find(limited, busy)
        else:
            candidates = dialect.limited_candidates(
                connection,
                queue=queue,
                limit=limit,
                limited=limited,
                busy=busy,
                isolation=isolation,
            )
        found = _choose(
            candidates, limit, max_bytes, at_least_one=at_least_one, dropped_size=dropped_size
        )
        dropped_size = found.dropped_size
        busy |= found.busy
        _set_aside(found, effects)
        if len(found.chosen) >= limit or not (found.has_refused or found.busy):
            break
        if found.is_cut or len(effects.dropped) + len(effects.rescheduled) >= HELD_AT_ONCE:
            is_cut = True
            break  # Each is stored with its events, which takes longer than to hold it.
        limited = max(limit, HELD_AT_ONCE)
    else:
        is_cut = True
    jobs: list[Claimed] = []
    if found.chosen:
        rows = dialect.claim_chosen(
            connection,
            [each.id for each in found.chosen],
            worker_id=worker_id,
            lease_ms=lease_ms,
            own_lease=own_lease,
        )
        jobs = [Claimed(dialect, row) for row in rows]
        order = {each.id: n for n, each in enumerate(found.chosen)}
        jobs.sort(key=lambda job: order[job.id])
        if jobs and (started_at := jobs[0].started_at):
            _add_starts(found, started_at)
    if is_cut and not jobs:
        next_starts.unread.add(queue)
    if len(jobs) < limit and _has_waiting(queue):
        next_starts.note(queue, RETRY_AFTER)
    else:
        next_starts.forget(queue)
    return jobs, effects


def _choose(
    candidates: Sequence[Candidate],
    limit: int,
    max_bytes: int,
    *,
    at_least_one: bool,
    dropped_size: int,
) -> _Round:
    keys = {each.key for each in candidates if each.key and each.is_locked}
    found = _Round(uses=_uses(keys), dropped_size=dropped_size)
    # The receivers of the signal get the jobs that are dropped, which are in memory for them.
    most_dropped = settings().max_fetch_bytes
    uses = dict(found.uses)
    size = 0
    for job in candidates:
        if len(found.chosen) >= limit:
            break
        if job.key is None:
            use = None
        elif not job.is_locked:
            found.busy.add(job.key)
            continue
        else:
            policy = _parsed(job.policy)
            use = uses[job.key].under(policy)
            if not use.room:
                if policy.get("on_limit") == OnLimit.DROP and found.dropped_size:
                    found.is_cut = found.dropped_size + job.size > most_dropped
                    if found.is_cut:
                        break
                found.refuse(job, policy, use)
                continue
        size += job.size
        if size > max_bytes and not (at_least_one and not found.chosen):
            break
        found.chosen.append(job)
        if job.key is not None and use is not None:
            uses[job.key] = _after_start(use)
    return found


def _parsed(stored: str | None) -> dict[str, Any]:
    parsed = {} if stored is None else json.loads_stored(stored)
    assert isinstance(parsed, dict)
    return parsed


def _after_start(use: KeyUse) -> KeyUse:
    starts = use.starts.after_one_of_key(use.limit, use.now)
    return replace(use, active=use.active + 1, starts=starts)


def _uses(keys: Collection[str]) -> dict[str, KeyUse]:
    """Return how much of their limits keys use, under their locks."""
    if not keys:
        return {}
    connection = database.connection()
    found = {}
    rows = database.dialect_of(connection).limit_keys_use(connection, keys)
    for row in rows:
        # Starts that are later than now were stored before the clock was set back.
        until_now = Starts.parse(_parsed(row.starts)).until(row.now)
        found[row.key] = KeyUse(
            override=_parsed(row.override),
            limit=RateLimit(),
            active=row.active,
            starts=until_now,
            now=row.now,
            is_exact=True,
            paused_until=row.paused_until or 0,
            limited_by=row.limited_by or "",
            eased_at=row.eased_at,
            rescheduled_until=row.rescheduled_until,
            dropped=row.dropped or 0,
            dropped_at=row.dropped_at,
        )
    return found


def use_of(job: Job) -> KeyUse:
    """Return how much of its limits the key of a job uses now."""
    assert job.limit_key is not None
    return _uses([job.limit_key])[job.limit_key].under(job.options.get("rate_limit") or {})


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyStatus:
    """A key, for people and for the HTTP API."""

    key: str
    #: The limits of one of its jobs, with its override.
    policy: Mapping[str, Any]
    use: KeyUse
    #: Up to a number.
    waiting: int
    #: None where nothing is kept of the key.
    row: LimitKey | None


def status_of(keys: Collection[str], *, most: int) -> list[KeyStatus]:
    """Return keys in this order; of each, up to `most` waiting jobs are counted."""
    connection = database.connection()
    uses = _uses(keys)
    rows = (
        database.dialect_of(connection).limit_keys_waiting(connection, keys, most) if keys else []
    )
    waiting = {key: (number, _parsed(policy)) for key, number, policy in rows}
    kept = LimitKey.primary.in_bulk(keys)
    found = []
    for key in keys:
        number, policy = waiting[key]
        use = uses[key].under(policy)
        shown = {name: policy[name] for name in LIMITS if policy.get(name) is not None}
        found.append(
            KeyStatus(
                key=key,
                policy={**shown, **use.override},
                use=use,
                waiting=number,
                row=kept.get(key),
            )
        )
    return found


def override(key: str, limits: Mapping[str, Any], until: datetime | None) -> None:
    """Put limits in place of those of the jobs of a key; none of them ends an override."""
    known = LimitKey.primary.filter(pk=key).values_list("override_until", "paused_until").first()
    if known is not None and known[0] not in (None, known[1]):
        # The check at the end of an override that ends before.
        LimitCheck.primary.filter(limit_key=key, due_at=known[0]).delete()
    LimitKey.primary.bulk_create(
        [LimitKey(key=key, expires_at=Now(), override=limits, override_until=until)],
        update_conflicts=True,
        unique_fields=["key"],
        update_fields=["override", "override_until"],
    )
    # They may start now, and when the override ends.
    checks = [LimitCheck(limit_key=key, due_at=Now())]
    if until is not None:
        checks.append(LimitCheck(limit_key=key, due_at=until))
    LimitCheck.primary.bulk_create(checks)


def _set_aside(found: _Round, effects: Effects) -> None:
    """Hold, reschedule or drop the jobs that were refused, and add that to the effects."""
    if not found.has_refused:
        return
    if found.held:
        Job.primary.filter(OneOf("pk", found.held)).update(limit_hold=Hold.HELD)
    transitions.reschedule({key: _moment(at) for key, at in found.rescheduled.items()})
    if found.dropped:
        transitions.apply(
            Trigger.DROP,
            State.DISCARDED,
            Job.primary.filter(OneOf("pk", [each.id for each in found.dropped])),
            finished_at=Now(),
            discard_reason=DROPPED,
            error=_DROPPED_ERROR,
        )
    _store_in_keys(found)
    effects.rescheduled += found.rescheduled
    effects.dropped += found.dropped
    effects.crossings += _begin_episodes(found)


def _store_in_keys(found: _Round) -> None:
    """Store of the keys for when jobs were rescheduled, and how many were dropped."""
    numbers = Counter(each.key for each in found.dropped)
    rows = []
    for key in {**found.rescheduled_until, **numbers}:
        use = found.uses[key]
        until = found.rescheduled_until.get(key, use.rescheduled_until)
        before = 0 if use.dropped_at is None else use.dropped
        if use.now - (use.dropped_at or 0) > DROPPED_WITHIN // _MILLISECOND:
            before = 0
        dropped_at = use.now if key in numbers else use.dropped_at
        rows.append(
            LimitKey(
                key=key,
                expires_at=Now(),
                rescheduled_until=None if until is None else _moment(until),
                dropped=before + numbers[key],
                dropped_at=None if dropped_at is None else _moment(dropped_at),
            )
        )
    if rows:
        LimitKey.primary.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["rescheduled_until", "dropped", "dropped_at"],
        )


def _begin_episodes(found: _Round) -> list[Crossing]:
    """Note the keys that are at a limit. Return those that have reached it now."""
    _check_at(found.room_at)
    if lasting := [key for key in found.exceeded if found.uses[key].eased_at is not None]:
        LimitKey.primary.filter(pk__in=lasting).update(eased_at=None)
    begun = [
        Crossing(key=key, strategy=strategy, limit=limit, current=current)
        for key, (strategy, limit, current) in found.exceeded.items()
        if not found.uses[key].limited_by
    ]
    if begun:
        LimitKey.primary.bulk_create(
            [
                LimitKey(
                    key=each.key,
                    expires_at=Now(),
                    limited_since=Now(),
                    limited_by=each.strategy,
                )
                for each in begun
            ],
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["limited_since", "limited_by", "eased_at"],
        )
    return begun


def _ease(keys: Iterable[str], uses: Mapping[str, KeyUse]) -> list[Crossing]:
    """Note that no job of these keys is held. Return those of which none has been for a minute.

    The jobs of a key that is nearly at its limit are held and opened many times a minute.
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
        # A second later than needed: `eased_at` is set by the next statement.
        ends_at[key] = since + _EPISODE_ENDS_AFTER_MS + 1_000
    if eased:
        LimitKey.primary.filter(pk__in=eased).update(eased_at=Now())
    _check_at(ends_at)
    if over:
        LimitKey.primary.filter(pk__in=over).update(
            limited_since=None, limited_by="", eased_at=None
        )
    return [Crossing(key=key, strategy=uses[key].limited_by, is_over=True) for key in over]


def _note_room(room_at: dict[str, int], key: str, use: KeyUse) -> None:
    """Note when the rates of a job have room, unless a time before it is noted for its key."""
    if use.seconds_to_rate > 0:
        room_at[key] = min(use.next_at, room_at.get(key, use.next_at))


def _check_at(times: Mapping[str, int]) -> None:
    """Let keys be checked when their rates have room, unless they are before."""
    if not times:
        return
    due = {key: _moment(ms) for key, ms in times.items()}
    known = LimitCheck.primary.filter(limit_key__in=due).values_list("limit_key", "due_at")
    checked = {key for key, at in known if at <= due[key]}
    LimitCheck.primary.bulk_create(
        [LimitCheck(limit_key=key, due_at=at) for key, at in due.items() if key not in checked]
    )


def pause(key: str, duration: timedelta) -> bool:
    """Let no job of a key start for so long. A pause that lasts longer stays as it is.

    Return whether the key was not paused before.
    """
    # Two jobs may pause it at the same time: each has to see what the other one stored.
    database.dialect().lock_subject(database.connection(), f"pause of {key}")
    until = Now() + duration
    is_new = not LimitKey.primary.filter(pk=key, paused_until__gt=Now()).exists()
    if is_new or not LimitKey.primary.filter(pk=key, paused_until__gte=until).exists():
        LimitKey.primary.bulk_create(
            [LimitKey(key=key, expires_at=Now(), paused_until=until)],
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["paused_until"],
        )
        LimitCheck.primary.bulk_create([LimitCheck(limit_key=key, due_at=until)])
    return is_new


def end_pauses(keys: Collection[str]) -> dict[str, datetime]:
    """End the pauses of these keys. Return until when each would have been paused."""
    paused = LimitKey.primary.filter(pk__in=keys, paused_until__gt=Now())
    locked = paused.select_for_update().values_list("pk", "paused_until")
    found = {key: until for key, until in locked if until is not None}
    LimitKey.primary.filter(pk__in=found).update(paused_until=None)
    LimitCheck.primary.bulk_create([LimitCheck(limit_key=key, due_at=Now()) for key in found])
    return found


def _add_starts(found: _Round, started_at: datetime) -> None:
    """Store the starts of the chosen jobs, for the rates of their keys."""
    uses: dict[str, KeyUse] = {}
    for job in found.chosen:
        if job.key is not None:
            use = uses.get(job.key) or found.uses[job.key].claimed_at(started_at)
            uses[job.key] = _after_start(use.under(_parsed(job.policy)))
    rows = [
        LimitKey(key=key, starts=use.starts.render(), expires_at=_moment(use.starts.expires_at))
        for key, use in uses.items()
        if use.starts.windows or use.starts.throttles
    ]
    if rows:
        LimitKey.primary.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["starts", "expires_at"],
        )


def prune() -> int:
    """Delete what is known of keys that nothing needs any more. Return how many."""
    # A row that a claim changes meanwhile has another time then, and stays.
    before = Now() - _MARGIN
    is_over = Q(paused_until=None) | Q(paused_until__lt=before)
    has_none = Q(override={}) | Q(override_until__lt=before)
    is_free = Q(rescheduled_until=None) | Q(rescheduled_until__lt=before)
    is_forgotten = Q(dropped_at=None) | Q(dropped_at__lt=Now() - DROPPED_WITHIN)
    unused = LimitKey.primary.filter(is_over, has_none, is_free, is_forgotten, limited_since=None)
    deleted, _ = unused.filter(expires_at__lt=before).delete()
    return deleted


def _moment(milliseconds: int) -> datetime:
    # The starts of jobs with other limits move the time of a slow throttle without a bound.
    return datetime.fromtimestamp(min(milliseconds / 1000, _LATEST), UTC)


def _has_waiting(queue: str) -> bool:
    """Whether jobs with a limit by key wait in a queue that is not paused."""
    # They are held, or locked by another claim, which may not take all of them.
    names = (queue, ALL_QUEUES, DEFAULT_POLICY)
    paused = Queue.primary.filter(pk__in=names, paused_at__isnull=False)
    waiting = Job.primary.filter(
        ~Exists(paused), queue=queue, state=State.AVAILABLE, limit_hold__in=[Hold.OPEN, Hold.HELD]
    )
    return waiting.order_by().exists()


def open_due() -> tuple[int, list[Crossing]]:
    """Take keys from the journal, and open their best held jobs that may start.

    In a transaction in which each statement sees what was committed before. Return how many keys,
    and those of which no job has been held for a minute.
    """
    connection = database.connection()
    dialect = database.dialect_of(connection)
    due = dialect.due_limit_keys(connection, KEYS_AT_ONCE)
    keys = [key for key, is_locked in due if is_locked]
    if not keys:
        return 0, []
    # What has ended by a row that is deleted here is counted by the next statement no more.
    LimitCheck.primary.filter(limit_key__in=keys, due_at__lte=Now()).delete()
    uses = _uses(keys)
    opened: list[UUID] = []
    queues: set[str] = set()
    room_at: dict[str, int] = {}
    again: list[str] = []
    # Keys of which no held job was refused. Another transaction has locked those that stay held.
    unsettled = set(keys)
    held: dict[tuple[str, str], list[tuple[UUID, str | None]]] = {}
    for key, queue, job_id, policy in dialect.held_jobs(connection, keys, OPENED_AT_ONCE):
        held.setdefault((key, queue), []).append((job_id, policy))
    for (key, queue), jobs in held.items():
        may_start, refused = _split(key, jobs, uses[key], room_at)
        page = jobs
        while not may_start and len(page) == OPENED_AT_ONCE and len(refused) < POLICIES:
            page = dialect.held_behind(
                connection,
                key=key,
                queue=queue,
                policies=refused,
                behind=BEHIND,
                limit=OPENED_AT_ONCE,
            )
            may_start, others = _split(key, page, uses[key], room_at)
            refused |= others
        if may_start:
            opened += may_start
            queues.add(queue)
        if len(may_start) == OPENED_AT_ONCE:
            again.append(key)
        if refused or len(may_start) == OPENED_AT_ONCE:
            unsettled.discard(key)
    if opened:
        Job.primary.filter(OneOf("pk", opened)).update(limit_hold=Hold.OPEN)
        notify.workers_of(queues)
    _check_at(room_at)
    checks = [LimitCheck(limit_key=key, due_at=Now()) for key in again]
    over: list[Crossing] = []
    if unsettled:
        at = Now() + LOCKED_AFTER
        locked = _with_held(unsettled)
        checks += [LimitCheck(limit_key=key, due_at=at) for key in locked]
        over = _ease(unsettled - locked, uses)
    LimitCheck.primary.bulk_create(checks)
    return len(keys), over


def _with_held(keys: Collection[str]) -> set[str]:
    held = Job.primary.filter(
        limit_key__in=keys, state=State.AVAILABLE, limit_hold=Hold.HELD
    ).order_by()
    return {key for key in held.values_list("limit_key", flat=True).distinct() if key is not None}


def _split(
    key: str, jobs: Iterable[tuple[UUID, str | None]], use: KeyUse, room_at: dict[str, int]
) -> tuple[list[UUID], set[str]]:
    """Return those of held jobs that may start together, and the policies of the others."""
    may_start: list[UUID] = []
    refused: set[str] = set()
    for job_id, policy in jobs:
        use = use.under(_parsed(policy))
        if use.room:
            may_start.append(job_id)
            use = _after_start(use)
        else:
            refused.add(policy or "")
            _note_room(room_at, key, use)
    return may_start, refused


def recheck() -> int:
    """Repair what only a trigger that is missing, or a change by hand, can break.

    Mark queues that have jobs with a limit by key and no mark, and append keys to the journal whose
    jobs are held without a reason. Return how many keys.
    """
    marked = Queue.primary.filter(has_limit_keys=True).values("pk")
    waiting = Job.primary.filter(limit_key__isnull=False, state=State.AVAILABLE)
    unmarked = waiting.exclude(queue__in=marked).order_by()
    mark(unmarked.values_list("queue", flat=True).distinct())
    connection = database.connection()
    return database.dialect_of(connection).recheck_limit_keys(connection)
