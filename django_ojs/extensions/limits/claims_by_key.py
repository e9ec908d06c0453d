"""Limits by key on running and on starting jobs (ojs-rate-limiting §5 to §8).

A job with a rate limit policy has a key. It starts only under the lock of its key, in a transaction
that has counted the active jobs of the key in their rows and read when jobs of it started. Claims
try the lock and never wait for it.

A claim that finds a key at its limit marks the job as held (`Job.hold`): claims do not read
it again, however many jobs wait for their keys. It stays available. When a job of the key ends, or
is no longer active, a trigger adds a row to a journal (`LimitCheck`) in the same transaction; a
claim that a rate stopped adds a row that is due when the rate has room. A claim, or the
maintenance, takes the rows that are due under the lock of the key, and opens as many of the best
held jobs as may start. A job that is held while another one ends is not forgotten: either the row
in the journal is committed later, or the claim no longer counted the job that ended.

A claim checks the limits of an open job again before it starts. The statement that claims jobs
without a limit by key takes no job that has one.

A job whose policy says so is not held, but rescheduled or dropped (§6.2 `on_limit`), by the claim
that finds its key at the limit. A rescheduled job is due when its rates are expected to have room,
after the other rescheduled jobs of its key: so the jobs of a key come back one by one, and not all
at once to be rescheduled again.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, Q
from django.db.models.functions import Now

from django_ojs.claim_rules import Condition, MayStart, RuledClaim, SetAside
from django_ojs.conf import settings
from django_ojs.extension import Known
from django_ojs.extensions.limits.limit_journal import (
    RULE,
    check_at,
    moment,
    note_room,
    open_due,
)
from django_ojs.extensions.limits.limit_key_events import of_limit_key
from django_ojs.extensions.limits.limit_key_use import KeyOfJob, KeyUse, parsed, uses_of
from django_ojs.extensions.limits.limit_statements import KeyCandidate, statements
from django_ojs.extensions.limits.models import HELD, OPEN, LimitKey
from django_ojs.extensions.limits.rate_limit import OnLimit
from django_ojs.extensions.limits.rate_limit_policy import check, stored_with
from django_ojs.hooks import is_published, publish_all
from django_ojs.models import Job, Queue
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.hold import FREE
from django_ojs.spec.published import EventType
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.states import TERMINAL, State, Trigger
from django_ojs.storage import database, queue_configs, transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.dialects.rows import Candidate, ClaimRequest
from django_ojs.storage.next_starts import next_starts

#: How long the row of a key is kept after it is no longer needed.
_MARGIN: Final = timedelta(minutes=1)

#: How many jobs `catch_up` gives their keys at a time.
_AT_ONCE: Final = 1000

#: The drops of a key are counted together while less than this time is between two of them.
DROPPED_WITHIN: Final = timedelta(hours=1)

#: Why a job is discarded if its limit did not let it start.
DROPPED: Final = "rate_limited"
_DROPPED_ERROR: Final = {
    "type": DROPPED,
    "message": "Its rate limit did not let it start, and its on_limit is drop.",
    "retryable": False,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """A job that a claim discarded, because its key was at a limit."""

    id: UUID
    key: str


@dataclass(slots=True)
class _Round:
    """What a claim finds among the best jobs of a queue."""

    #: The jobs with a key that start.
    chosen: list[KeyCandidate] = field(default_factory=list)
    #: Jobs that their key does not let start, by what is done with them.
    held: list[UUID] = field(default_factory=list)
    rescheduled: dict[UUID, int] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    #: The sum of the sizes of the dropped jobs, including those of earlier rounds.
    dropped_size: int = 0
    #: The limit that the first rejected job of each key met.
    exceeded: dict[str, tuple[str, int | None, int | None]] = field(default_factory=dict)
    #: How much of its limits each key uses, before the chosen jobs start.
    uses: dict[str, KeyUse] = field(default_factory=dict)
    #: When the rates of keys have room again, in milliseconds since 1970.
    room_at: dict[str, int] = field(default_factory=dict)
    #: The latest times for which jobs of keys were rescheduled.
    rescheduled_until: dict[str, int] = field(default_factory=dict)

    @property
    def has_rejected(self) -> bool:
        return bool(self.exceeded)

    def reject(self, job: KeyCandidate, policy: Mapping[str, Any], use: KeyUse) -> None:
        """Note what is done with a job that its key does not let start."""
        self.exceeded.setdefault(job.key, use.exceeded())
        note_room(self.room_at, job.key, use)
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


def begin(request: ClaimRequest) -> RuledClaim:
    """Begin a claim by opening the held jobs of keys that have room again."""
    open_due()
    return _Claim(request)


def holds(keys: Collection[UUID]) -> dict[UUID, int]:
    """Return OPEN for each of these jobs that has a limit by key: claims decide about it."""
    limited = Job.primary.annotate(key=KeyOfJob()).filter(OneOf("pk", keys), key__isnull=False)
    return dict.fromkeys(limited.values_list("pk", flat=True), OPEN)


def catch_up() -> None:
    """Let only claims with this rule take the stored jobs that have a limit by key."""
    # A discarded job may be retried, and then has the limit, too.
    ended = TERMINAL - {State.DISCARDED}
    limited = Job.primary.exclude(state__in=ended).filter(options__has_key="rate_limit")
    # A process without this extension has stored them, without keys and without checks.
    keyless = limited.alias(key=KeyOfJob()).filter(key__isnull=True).only("pk", "queue", "options")
    some = list(keyless.order_by("pk")[:_AT_ONCE])
    while some:
        valid = [job for job in some if _is_valid(job.options["rate_limit"])]
        for job in valid:
            job.options |= stored_with(job.options["rate_limit"], job.queue)
        Job.primary.bulk_update(valid, ["options"])
        some = list(keyless.filter(pk__gt=some[-1].pk).order_by("pk")[:_AT_ONCE])
    free = Job.primary.alias(key=KeyOfJob()).filter(key__isnull=False, hold=FREE)
    free.exclude(state__in=TERMINAL).update(hold=OPEN)


def _is_valid(policy: Any) -> bool:
    try:
        check(policy, "rate_limit")
    except InvalidRequest:
        return False
    return bool(policy)


def full_among(queues: Collection[str]) -> Collection[str]:
    """Return in which of these queues all available jobs are still held."""
    full = statements().full_queues(queues)
    for queue in full:
        next_starts.note_soon(queue)
    return full


class _Claim(RuledClaim):
    decides = True

    def __init__(self, request: ClaimRequest) -> None:
        self._queue, self._wanted = request.queue, request.limit
        self.in_order = self._in_order
        self._found = _Round()
        #: The jobs with a key that were read last, and the keys that other claims have locked.
        self._jobs: dict[UUID, KeyCandidate] = {}
        self._busy: set[str] = set()
        #: How much of its limits each key uses, including the jobs that were taken.
        self._uses: dict[str, KeyUse] = {}
        #: The policy and the use of the job that was asked about last.
        self._policy: Mapping[str, Any] = {}
        self._use: KeyUse | None = None

    def _in_order(self, request: ClaimRequest, at_most: int) -> list[Candidate]:
        return statements().candidates(request, at_most, self._busy)

    def condition(self) -> Condition:
        return statements().not_busy(self._busy)

    def read(self, candidates: Sequence[Candidate]) -> None:
        found = [each for each in candidates if isinstance(each, KeyCandidate)]
        # If another rule orders the jobs, they come without their keys.
        others = [each for each in candidates if each.hold and not isinstance(each, KeyCandidate)]
        if others:
            found += statements().locked(others)
        self._jobs = {each.id: each for each in found}
        keys = {each.key for each in found if each.is_locked}
        self._found = _Round(uses=uses_of(keys), dropped_size=self._found.dropped_size)
        self._uses = dict(self._found.uses)

    def may_start(self, job: Candidate) -> MayStart:
        self._use = None
        keyed = self._jobs.get(job.id)
        if keyed is None:
            return MayStart.YES
        if not keyed.is_locked:
            self._busy.add(keyed.key)
            return MayStart.BUSY
        self._policy = parsed(keyed.policy)
        self._use = self._uses[keyed.key].under(self._policy)
        return MayStart.YES if self._use.room else MayStart.NO

    def take(self, job: Candidate) -> None:
        if self._use is not None:
            keyed = self._jobs[job.id]
            self._found.chosen.append(keyed)
            self._uses[keyed.key] = self._use.after_start()

    def reject(self, job: Candidate) -> SetAside:
        assert self._use is not None
        found = self._found
        # The receivers of the signal get all dropped jobs at once, so these must fit into memory.
        is_dropped = self._policy.get("on_limit") == OnLimit.DROP
        size = found.dropped_size + job.size
        if is_dropped and found.dropped_size and size > settings().max_fetch_bytes:
            return SetAside.NOT_NOW
        found.reject(self._jobs[job.id], self._policy, self._use)
        return SetAside.YES

    def set_aside(self) -> int:
        return _set_aside(self._found)

    def started(self, jobs: Sequence[Claimed]) -> None:
        if jobs and (started_at := jobs[0].started_at):
            uses = self._uses.items()
            rated = {key for key, use in uses if use.starts.windows or use.starts.throttles}
            _add_starts(self._found, rated, started_at)
        if len(jobs) < self._wanted and _has_waiting(self._queue):
            next_starts.note_soon(self._queue)
        else:
            next_starts.forget(self._queue)


def _set_aside(found: _Round) -> int:
    """Hold, reschedule or drop the jobs that were rejected. Return how many were not held."""
    if not found.has_rejected:
        return 0
    _store_in_keys(found)
    _begin_episodes(found)
    if found.held:
        # This claim found and locked them, so no other extension holds them.
        Job.primary.filter(OneOf("pk", found.held)).update(hold=HELD)
    transitions.reschedule({key: moment(at) for key, at in found.rescheduled.items()})
    if found.dropped:
        _drop(found.dropped)
    return len(found.rescheduled) + len(found.dropped)


def _drop(dropped: Collection[Dropped]) -> None:
    keys = [each.id for each in dropped]
    jobs = Job.primary.filter(OneOf("pk", keys)).only("id", "queue", "type").in_bulk()
    if is_published(EventType.RATE_LIMIT_DROPPED):
        publish_all(
            of_limit_key(
                EventType.RATE_LIMIT_DROPPED,
                each.key,
                job_id=str(each.id),
                job_type=jobs[each.id].type,
            )
            for each in dropped
        )
    transitions.apply(
        Trigger.DROP,
        State.DISCARDED,
        dict.fromkeys(keys, State.AVAILABLE),
        known=Known(jobs=jobs, reason=DROPPED),
        finished_at=Now(),
        discard_reason=DROPPED,
        error=_DROPPED_ERROR,
    )


def _store_in_keys(found: _Round) -> None:
    """Store until when jobs of the keys were rescheduled, and how many were dropped."""
    numbers = Counter(each.key for each in found.dropped)
    rows = []
    for key in {**found.rescheduled_until, **numbers}:
        use = found.uses[key]
        until = found.rescheduled_until.get(key, use.rescheduled_until)
        before = 0 if use.dropped_at is None else use.dropped
        if use.now - (use.dropped_at or 0) > DROPPED_WITHIN // timedelta(milliseconds=1):
            before = 0
        dropped_at = use.now if key in numbers else use.dropped_at
        rows.append(
            LimitKey(
                key=key,
                expires_at=Now(),
                rescheduled_until=None if until is None else moment(until),
                dropped=before + numbers[key],
                dropped_at=None if dropped_at is None else moment(dropped_at),
            )
        )
    if rows:
        LimitKey.primary.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["rescheduled_until", "dropped", "dropped_at"],
        )


def _begin_episodes(found: _Round) -> None:
    """Note the keys that are at a limit, and report those that have reached it now."""
    check_at(found.room_at)
    if lasting := [key for key in found.exceeded if found.uses[key].eased_at is not None]:
        LimitKey.primary.filter(pk__in=lasting).update(eased_at=None)
    begun = {key: at for key, at in found.exceeded.items() if not found.uses[key].limited_by}
    if begun:
        LimitKey.primary.bulk_create(
            [
                LimitKey(key=key, expires_at=Now(), limited_since=Now(), limited_by=strategy)
                for key, (strategy, _, _) in begun.items()
            ],
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["limited_since", "limited_by", "eased_at"],
        )
    publish_all(
        of_limit_key(
            EventType.RATE_LIMIT_EXCEEDED, key, strategy=strategy, limit=limit, current=current
        )
        for key, (strategy, limit, current) in begun.items()
    )


def _add_starts(found: _Round, rated: Collection[str], started_at: datetime) -> None:
    """Store the starts of the chosen jobs, for the rates of their keys."""
    uses: dict[str, KeyUse] = {}
    for job in found.chosen:
        if job.key in rated:
            use = uses.get(job.key) or found.uses[job.key].claimed_at(started_at)
            uses[job.key] = use.under(parsed(job.policy)).after_start()
    rows = [
        LimitKey(key=key, starts=use.starts.render(), expires_at=moment(use.starts.expires_at))
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
    """Delete a batch of rows of keys that are no longer needed. Return how many."""
    # A row that a claim changes in the meantime stays, because its times are new.
    before = Now() - _MARGIN
    is_over = Q(paused_until=None) | Q(paused_until__lt=before)
    has_none = Q(override={}) | Q(override_until__lt=before)
    is_free = Q(rescheduled_until=None) | Q(rescheduled_until__lt=before)
    is_forgotten = Q(dropped_at=None) | Q(dropped_at__lt=Now() - DROPPED_WITHIN)
    unused = LimitKey.primary.filter(is_over, has_none, is_free, is_forgotten, limited_since=None)
    return database.delete_free(unused.filter(expires_at__lt=before))


def _has_waiting(queue: str) -> bool:
    """Return whether jobs with a limit by key wait in a queue that is not paused."""
    # The jobs are held, or locked by another claim, which may not take all of them.
    names = (queue, ALL_QUEUES, DEFAULT_POLICY)
    paused = Queue.primary.filter(pk__in=names, paused_at__isnull=False)
    waiting = Job.primary.filter(
        ~Exists(paused), queue=queue, state=State.AVAILABLE, hold__in=[OPEN, HELD]
    )
    return waiting.order_by().exists()


@database.write_transaction
def recheck() -> int:
    """Repair what only a missing trigger or a manual change can break.

    It marks queues that have jobs with a limit by key but no mark, and appends to the journal the
    keys whose jobs are held without a reason. Return how many keys.
    """
    if not database.dialect().lock_subject(database.connection(), "limits by key", wait=False):
        return 0  # Another process does it.
    known = Queue.primary.exclude(rules=0).values_list("pk", "rules")
    marked = [name for name, rules in known if rules & RULE]
    waiting = Job.primary.alias(key=KeyOfJob()).filter(key__isnull=False, state=State.AVAILABLE)
    unmarked = waiting.exclude(queue__in=marked).order_by()
    queue_configs.add_rules(unmarked.values_list("queue", flat=True).distinct(), RULE)
    return statements().recheck()
