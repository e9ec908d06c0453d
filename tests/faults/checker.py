"""Jepsen's total-queue checker: what went in, what came out, and why anything came out twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A handler began a run of a job, in a process, at a time of the machine's monotonic clock."""

    job: str
    attempt: int
    run: int
    pid: int
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Something that may make a job run again. What is None is every process, job and run."""

    kind: str
    pid: int | None = None
    job: str | None = None
    run: int | None = None
    began: float = -inf
    ended: float = inf

    def explains(self, first: Start, second: Start) -> bool:
        """Whether it hit the first run, and not after the second had begun."""
        return (
            self.pid in (None, first.pid)
            and self.job in (None, first.job)
            and self.run in (None, first.run)
            and self.began <= second.at
            and self.ended >= first.at
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the checker found."""

    attempted: int
    acknowledged: int
    executed: int
    lost: frozenset[str]
    unexpected: frozenset[str]
    duplicated: int
    unexplained: tuple[tuple[Start, Start], ...] = field(default=())

    @property
    def line(self) -> str:
        """Say it in one line."""
        return (
            f"attempted {self.attempted} acknowledged {self.acknowledged} "
            f"executed {self.executed} lost {len(self.lost)} unexpected {len(self.unexpected)} "
            f"duplicated {self.duplicated} explained {self.duplicated - len(self.unexplained)}"
        )

    def good(self) -> None:
        """Fail unless nothing was lost or invented, and every duplicate has its reason."""
        assert not self.lost, f"{self.line}; lost: {sorted(self.lost)[:5]}"
        assert not self.unexpected, f"{self.line}; unexpected: {sorted(self.unexpected)[:5]}"
        assert not self.unexplained, f"{self.line}; unexplained: {self.unexplained[:3]}"


def check(
    *,
    attempted: Collection[str],
    acknowledged: Collection[str],
    rolled_back: Collection[str] = (),
    starts: Iterable[Start],
    done: Collection[str],
    faults: Collection[Fault] = (),
) -> Verdict:
    """Judge a history.

    `acknowledged`: the enqueue was committed, and the caller knows. `rolled_back`: the caller knows
    that it was not. What is in neither was cut off, and may be stored or not. `done`: jobs whose
    handler came to its end at least once.
    """
    runs: dict[str, list[Start]] = defaultdict(list)
    reasons: dict[str | None, list[Fault]] = defaultdict(list)
    for fault in faults:
        reasons[fault.job].append(fault)
    for start in starts:
        runs[start.job].append(start)
    executed = set(done)
    duplicated = 0
    unexplained = []
    for history in runs.values():
        history.sort(key=lambda start: (start.run, start.at))
        for first, second in pairwise(history):
            duplicated += 1
            fenced = second.run > first.run and second.attempt > first.attempt
            possible = chain(reasons[first.job], reasons[None])
            if not fenced or not any(fault.explains(first, second) for fault in possible):
                unexplained.append((first, second))
    return Verdict(
        attempted=len(set(attempted)),
        acknowledged=len(set(acknowledged)),
        executed=len(executed),
        lost=frozenset(set(acknowledged) - executed),
        unexpected=frozenset((executed | runs.keys()) - (set(attempted) - set(rolled_back))),
        duplicated=duplicated,
        unexplained=tuple(unexplained),
    )
