"""Turns between the tenants of one queue (ojs-fair-scheduling §9).

Within a priority, a claim takes jobs of the tenants that have available jobs by turns: from each as
many as its weight, then from the next one, by name and round again (weighted round-robin). A higher
priority goes first, for jobs of any tenant (§9.3).

Nothing is stored and nothing is counted: each process remembers, of each queue and priority, whose
turn it is, and begins at a random tenant. So there is nothing that could be wrong after a crash,
and claims of different processes do not wait for each other; each is fair, and so all are.

A claim reads the tenants that it takes jobs of, and the next ones: it steps through an index from
one tenant to the next, however many jobs each has (`tenants_in_turn.sql`).

Limits by key hold as elsewhere: they choose among the jobs in the order of the turns. A job that
its limit does not let start does not count in the turn of its tenant.
"""

import random
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from django_ojs.claim_rules import Condition, RuledClaim
from django_ojs.extensions.tenants.spec import TenantFairness
from django_ojs.extensions.tenants.tenant_statements import Turn, TurnJob, statements
from django_ojs.spec.isolation import Isolation
from django_ojs.storage import in_memory_state, queue_configs
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.rows import Candidate, ClaimRequest

#: Tenants that a claim reads beyond the number that it needs: the jobs of some may be locked by
#: other claims.
_SPARE: Final = 20
#: At least this many tenants are read by the first claim of a process, to begin at a random one.
_FIRST: Final = 100
#: The most queries for the jobs of one claim: after each, at least one tenant has no more jobs. A
#: claim that needs more returns fewer jobs than it could.
_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True)
class TurnPosition:
    """Whose turn it is among the tenants of a priority."""

    #: The tenant after which the turns continue.
    after: str = ""
    #: The tenant whose turn has begun, and the jobs that it has had in this turn.
    tenant: str | None = None
    taken: int = 0

    def served(self, tenant: str, weight: int) -> "TurnPosition":
        """Return the position after a job of a tenant was claimed."""
        turn = self
        if tenant != self.tenant:
            after = self.after if self.tenant is None else self.tenant
            turn = TurnPosition(after=after, tenant=tenant)
        if turn.taken + 1 >= weight:
            return TurnPosition(after=tenant)
        return replace(turn, taken=turn.taken + 1)


class Positions:
    """The positions of this process, by queue and priority."""

    def __init__(self) -> None:
        self._by_priority: dict[str, dict[int, TurnPosition]] = {}

    def of(self, queue: str) -> dict[int, TurnPosition]:
        """Return the positions of a queue, by priority."""
        return self._by_priority.setdefault(queue, {})

    def reset(self) -> None:
        """Begin at random tenants."""
        self._by_priority.clear()


positions: Final = in_memory_state.register(Positions())


def begin(request: ClaimRequest) -> RuledClaim:
    """Begin a claim in the order of the turns, unless they are off.

    Jobs that must run alone are few, and are claimed in the order of a queue without turns.
    """
    fairness = queue_configs.of(request.queue).part(TenantFairness)
    if fairness is None or request.isolation is Isolation.ALONE:
        return RuledClaim()
    return _Claim(fairness, request)


#: A priority and a tenant.
_Share = tuple[int, str]


class _Claim(RuledClaim):
    """Finds the jobs of one claim."""

    def __init__(self, fairness: TenantFairness, request: ClaimRequest) -> None:
        self._weight_of, self._request = fairness.weight_of, request
        self._queue, self._isolation = request.queue, request.isolation
        self.candidates = self._find
        self._statements = statements()
        self._positions = positions.of(request.queue)
        #: The jobs that were found last.
        self._jobs: dict[UUID, TurnJob] = {}

    def _find(self, limit: int, condition: Condition) -> list[Candidate]:
        """Return up to `limit` available jobs in the order of their turns, locked.

        Jobs that have no mark yet are not found (see `storage`).
        """
        found = self._by_turns(limit, condition)
        self._jobs = {job.candidate.id: job for job in found}
        return [job.candidate for job in found]

    def started(self, jobs: Sequence[Claimed]) -> None:
        """Remember the positions after these jobs."""
        for each in jobs:
            if (job := self._jobs.get(each.id)) is not None:
                position = self._positions.get(job.priority, TurnPosition())
                weight = self._weight_of(job.tenant)
                self._positions[job.priority] = position.served(job.tenant, weight)

    def _by_turns(self, limit: int, condition: Condition) -> list[TurnJob]:
        found: dict[_Share, dict[UUID, TurnJob]] = {}
        exhausted: set[_Share] = set()
        listed = limit + _SPARE
        by_priority = self._tenants(listed)
        for _ in range(_ROUNDS):
            needed = limit - sum(map(len, found.values()))
            turns = self._turns(by_priority, found, exhausted, needed)
            if not turns:
                if needed == 0 or sum(map(len, by_priority.values())) < listed:
                    break
                # The jobs of all these tenants are locked, or may not start.
                listed *= 10
                by_priority = self._tenants(listed)
                continue
            jobs = self._statements.jobs(
                self._queue,
                turns,
                limit=needed,
                condition=condition,
                isolation=self._isolation,
            )
            by_turn: dict[_Share, dict[UUID, TurnJob]] = {}
            for job in jobs:
                by_turn.setdefault((job.priority, job.tenant), {})[job.candidate.id] = job
            had_fewer = _exhausted(turns, by_turn, needed)
            for priority, tenants in by_priority.items():
                # Only those of this priority are kept: jobs of lower priorities are found again.
                exhausted |= {share for share in had_fewer if share[0] == priority}
                for tenant in tenants:
                    share = priority, tenant
                    found.setdefault(share, {}).update(by_turn.get(share, {}))
                if not all((priority, tenant) in exhausted for tenant in tenants):
                    # Jobs of lower priorities wait until this one is known to have no more.
                    break
        return [
            job
            for priority, tenants in by_priority.items()
            for job in self._in_order(priority, {t: found.get((priority, t), {}) for t in tenants})
        ][:limit]

    def _tenants(self, limit: int) -> dict[int, list[str]]:
        """Return tenants by priority, in the order of their turns."""
        # This is a copy, because another thread may add a priority during the loop.
        positions = self._positions.copy()
        starts = {priority: position.after for priority, position in positions.items()}
        rows = self._statements.in_turn(self._queue, starts, max(limit, 0 if starts else _FIRST))
        found: dict[int, list[str]] = {}
        for priority, tenant in rows:
            found.setdefault(priority, []).append(tenant)
        for priority, tenants in found.items():
            if priority not in positions:
                first = random.randrange(len(tenants))
                found[priority] = tenants[first:] + tenants[:first]
        return found

    def _turns(
        self,
        by_priority: Mapping[int, Sequence[str]],
        found: Mapping[_Share, Collection[UUID]],
        exhausted: Collection[_Share],
        needed: int,
    ) -> list[Turn]:
        """Return turns in which the tenants of each priority have as many jobs as are needed."""
        turns: list[Turn] = []
        for priority, tenants in by_priority.items():
            numbers = {name: 0 for name in tenants if (priority, name) not in exhausted}
            left = needed if numbers else 0
            is_first = not any(found.get((priority, name)) for name in tenants)
            while left:
                for name in numbers:
                    number = min(left, self._weight(priority, name, is_first=is_first))
                    numbers[name] += number
                    left -= number
                is_first = False
            turns += [
                Turn(priority, name, len(found.get((priority, name), ())), number)
                for name, number in numbers.items()
                if number
            ]
        return turns

    def _weight(self, priority: int, tenant: str, *, is_first: bool) -> int:
        """Return how many jobs a tenant has in a turn; in the first one, how many are left."""
        weight = self._weight_of(tenant)
        position = self._positions.get(priority)
        if is_first and position is not None and position.tenant == tenant:
            return max(1, weight - position.taken)
        return weight

    def _in_order(
        self, priority: int, found: Mapping[str, Mapping[UUID, TurnJob]]
    ) -> Iterator[TurnJob]:
        """Yield the jobs of a priority by turns."""
        waiting = {
            tenant: deque(
                sorted(jobs.values(), key=lambda job: (job.enqueued_at, job.candidate.id))
            )
            for tenant, jobs in found.items()
        }
        is_first = True
        while any(waiting.values()):
            for tenant, jobs in waiting.items():
                for _ in range(min(len(jobs), self._weight(priority, tenant, is_first=is_first))):
                    yield jobs.popleft()
            is_first = False


def _exhausted(
    turns: Sequence[Turn], found: Mapping[_Share, Collection[UUID]], limit: int
) -> set[_Share]:
    """Return tenants that had fewer jobs than their turn asked for, before the limit."""
    exhausted, total = set(), 0
    for turn in turns:
        share = turn.priority, turn.tenant
        number = len(found.get(share, ()))
        total += number
        if total >= limit:
            break
        if number < turn.number:
            exhausted.add(share)
    return exhausted
