"""Claims of queues that have rules: what extensions decide (see `claim_rules.RuledClaim`)."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from uuid import UUID

from django_ojs.claim_rules import ClaimRule, Condition, MayStart, RuledClaim, SetAside
from django_ojs.hooks import missing_rules, registry
from django_ojs.spec.hold import numbers_of
from django_ojs.storage import database, in_memory_state, queue_configs, transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.rows import Candidate, ClaimRequest
from django_ojs.storage.next_starts import next_starts

logger = logging.getLogger("django_ojs")

#: Claims jobs that were chosen.
_ClaimThese: TypeAlias = Callable[[Sequence[UUID], ClaimRequest], list[Claimed]]

#: The most jobs of a rule that a claim reads in one round.
CANDIDATES_AT_ONCE: Final = 200
#: The most rounds of a claim.
ROUNDS: Final = 5
#: A claim ends once it has changed the states of this many jobs: each is stored with its events,
#: which takes longer than holding a job.
CHANGED_AT_ONCE: Final = 200


def claim(
    request: ClaimRequest, rules: int, queues: Sequence[str], full: dict[int, set[str]]
) -> list[Claimed]:
    """Claim jobs of a queue that has these rules, given by their bits.

    `queues` are those of the FETCH. For all of them whose last claims found no job that may start,
    one query asks whether this is still so; `full` keeps the answers, by rule. Raises RulesUnknown
    if the queue has other rules too.
    """
    next_starts.unread.discard(request.queue)
    with transitions.keeping_plans(request):
        return _claim_of(request, rules, queues, full)


def _claim_of(
    request: ClaimRequest, rules: int, queues: Sequence[str], full: dict[int, set[str]]
) -> list[Claimed]:
    queue = request.queue
    if missing := missing_rules(rules):
        _log_missing(queue, missing)
        return []
    known = {bit: rule for bit, rule in registry.claim_rules.items() if bit & rules}
    if next_starts.was_full(queue):
        for bit, rule in known.items():
            if bit not in full:
                asked = [
                    each
                    for each in queues
                    if next_starts.was_full(each) and queue_configs.remembered_rules(each) & bit
                ]
                full[bit] = set(asked).intersection(rule.full_among(asked))
            if queue in full[bit]:
                return []
    request = replace(request, applied=rules)
    try:
        return _claim(request, list(known.values()), transitions.claim_chosen)
    except Exception as error:
        if not transitions.is_of_a_hook(error):
            raise
    # The error of the hook has undone the whole claim, which has no savepoint.
    return _claim(request, list(known.values()), transitions.claim_each)


class _Logged:
    """The queues for which this process has logged that it claims none of their jobs."""

    def __init__(self) -> None:
        self.queues: set[str] = set()

    def reset(self) -> None:
        """Let each queue be logged again."""
        self.queues.clear()


_logged: Final = in_memory_state.register(_Logged())


def _log_missing(queue: str, bits: int) -> None:
    if queue not in _logged.queues:
        _logged.queues.add(queue)
        logger.error(
            "No job of the queue %s is claimed: it has rules of extensions that are not installed "
            "here. Their numbers are %s.",
            queue,
            ", ".join(map(str, numbers_of(bits))),
        )


@database.write_transaction
def _claim(
    request: ClaimRequest, rules: Sequence[ClaimRule], claim_these: _ClaimThese
) -> list[Claimed]:
    # The database or the role may have another default level, which the connection does not know.
    database.dialect().read_committed(database.connection())
    parts: list[RuledClaim] = []
    for rule in rules:
        part = rule.begin(request)
        if part.room is not None:
            if part.room <= 0:
                return []
            request = replace(request, limit=min(request.limit, part.room))
        parts.append(part)
    if any(part.decides or part.candidates for part in parts):
        jobs = _Choice(request, parts).claim(claim_these)
    else:
        jobs = transitions.claim(request)
    for part in reversed(parts):
        part.started(jobs)
    return jobs


def _in_order(request: ClaimRequest, at_most: int) -> list[Candidate]:
    connection = database.connection()
    return database.dialect_of(connection).candidates(connection, request)


@dataclass(slots=True)
class _Round:
    """What one round finds among the candidates."""

    chosen: list[Candidate] = field(default_factory=list)
    #: Whether another claim has locked what a rule has to count.
    is_busy: bool = False
    #: Whether a rule has taken a job out of the way of others.
    has_set_aside: bool = False
    #: Whether a job that may not start stays in the way.
    has_left: bool = False
    #: Whether a job that is open to all claims may not start.
    rejects_plain: bool = False
    #: Whether a rule can set aside no more jobs now.
    is_cut: bool = False


class _Choice:
    """The choice among the best jobs of a queue, in one claim."""

    def __init__(self, request: ClaimRequest, parts: Sequence[RuledClaim]) -> None:
        #: What to claim, and what to find candidates for.
        self._request = self._wanted = request
        self._parts = parts
        self._deciding = [part for part in parts if part.decides]
        finders = [part.candidates for part in parts if part.candidates is not None]
        assert len(finders) < 2, "only one rule of a queue brings an order"
        self._finder = finders[0] if finders else None
        self._in_order = next((part.in_order for part in parts if part.in_order), _in_order)

    def _condition(self) -> Condition:
        texts, values = list[str](), dict[str, Any]()
        for text, own in (part.condition() for part in self._parts):
            if text:
                texts.append(text)
                values |= own
        return " AND ".join(texts), values

    def _find(self, at_most: int) -> list[Candidate]:
        if self._finder is None:
            return self._in_order(self._wanted, at_most)
        found = self._finder(at_most, self._condition())
        if len(found) < at_most:
            known = {job.id for job in found}
            others = self._in_order(replace(self._request, limit=at_most), at_most)
            found += [job for job in others if job.id not in known]
        return found

    def claim(self, claim_these: _ClaimThese) -> list[Claimed]:
        """Claim the jobs that may start, and set aside those that only one rule rejects."""
        request = self._request
        found, changed, at_most, is_cut = _Round(), 0, request.limit, False
        for _ in range(ROUNDS):
            found = self._choose(self._find(at_most))
            changed += sum([part.set_aside() for part in self._deciding])
            is_new = found.has_set_aside or found.is_busy
            is_new |= found.has_left and at_most < CANDIDATES_AT_ONCE
            if len(found.chosen) >= request.limit or not (is_new or found.is_cut):
                break
            if found.is_cut or changed >= CHANGED_AT_ONCE:
                is_cut = True
                break
            at_most = max(request.limit, CANDIDATES_AT_ONCE)
            if found.rejects_plain:
                self._wanted = replace(request, limit=at_most)
        else:
            is_cut = True
        jobs: list[Claimed] = []
        if found.chosen:
            jobs = claim_these([each.id for each in found.chosen], request)
            if any(job.queue != request.queue for job in jobs):
                raise ValueError("A rule has chosen a job of another queue.")
            if not jobs and claim_these is transitions.claim_chosen:
                # If the worker's row is gone instead, the next claim returns no job either.
                raise transitions.RulesUnknown
        if is_cut and not jobs:
            next_starts.unread.add(request.queue)
        return jobs

    def _choose(self, candidates: Sequence[Candidate]) -> _Round:
        found, size = _Round(), 0
        for part in self._deciding:
            part.read(candidates)
        for job in candidates:
            if len(found.chosen) >= self._request.limit:
                break
            if job.hold and not 1 << job.hold & self._request.applied:
                raise transitions.RulesUnknown
            if not self._agree(job, found):
                if found.is_cut:
                    break
                continue
            size += job.size
            if size > self._request.max_bytes and not (
                self._request.at_least_one and not found.chosen
            ):
                break
            found.chosen.append(job)
            for part in self._deciding:
                part.take(job)
        return found

    def _agree(self, job: Candidate, found: _Round) -> bool:
        """Return whether all rules let a job start.

        If only one does not, that rule may set the job aside.
        """
        against = [
            (part, answer)
            for part in self._deciding
            if (answer := part.may_start(job)) is not MayStart.YES
        ]
        if not against:
            return True
        found.rejects_plain |= not job.hold
        # An answer of another type, such as True, is an error.
        if any(MayStart(answer) is MayStart.BUSY for _, answer in against):
            found.has_left = found.is_busy = True
            return False
        match against[0][0].reject(job) if len(against) == 1 else SetAside.NO:
            case SetAside.YES:
                found.has_set_aside = True
            case SetAside.NOT_NOW:
                found.is_cut = True
            case _:
                found.has_left = True
        return False
