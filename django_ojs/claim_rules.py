"""The rules by which extensions take part in the claims of some queues: the hook `claim_rule`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from django.db.models import Model

from django_ojs.storage.dialects.rows import Candidate, ClaimRequest

#: An SQL condition on a row of `ojs_job`, and its parameters. An empty one always holds.
Condition: TypeAlias = tuple[str, Mapping[str, Any]]


class MayStart(Enum):
    """Whether a job may start according to a rule."""

    YES = "yes"
    NO = "no"
    #: Another claim holds the lock of what the rule has to count.
    BUSY = "busy"


class SetAside(Enum):
    """Whether a rule takes a job that it rejects out of the way of the jobs behind it."""

    #: The job stays where it is.
    NO = "no"
    #: `RuledClaim.set_aside` takes it out of the way.
    YES = "yes"
    #: `set_aside` cannot take more at a time, so the claim ends before this job.
    NOT_NOW = "not now"


class RuledClaim:
    """What one rule does in one claim, and in its transaction.

    The claim asks each rule for its `room`. If a rule has candidates of its own, or decides on each
    job, the candidates are found and locked, and the rules `read` what they need to know about
    them. A job starts if all rules agree and it is not too large; each rule then `take`s it. A job
    that only one rule rejects is left to that rule (`reject`, `set_aside`). A job that several
    rules reject stays where it is, and none of them counts, moves or ends it. If jobs were set
    aside, all of this is repeated with the candidates behind them. At the end, the rules are told
    which jobs have `started`, the last rule first.

    An error undoes the claim, and is logged: no job of this queue is claimed.
    """

    #: How many jobs may start. None means any number.
    room: int | None = None
    #: Whether it decides on each job.
    decides: bool = False
    #: Finds the best jobs for which a condition holds, up to a number, in the order in which they
    #: are to start, and locks them. Only one rule of a queue may have this function. Jobs that it
    #: does not find start after the others, in the order of the queue.
    candidates: Callable[[int, Condition], list[Candidate]] | None = None
    #: Finds jobs in the order of the queue, in place of `Dialect.candidates`. The number limits
    #: those that are open only to claims with this rule.
    in_order: Callable[[ClaimRequest, int], list[Candidate]] | None = None

    def condition(self) -> Condition:
        """Return a condition that jobs meet if they may start now, for another rule's `candidates`.

        It is asked again in each round: jobs for which `may_start` returned BUSY can be left out.
        """
        return "", {}

    def read(self, candidates: Sequence[Candidate]) -> None:
        """Read what decides on these jobs, and forget what was taken or rejected before."""

    def may_start(self, job: Candidate) -> MayStart:
        """Return whether a job may start, in addition to the jobs that were taken."""
        return MayStart.YES

    def take(self, job: Candidate) -> None:
        """Count a job, which will start."""

    def reject(self, job: Candidate) -> SetAside:
        """Decide what is done with a job that only this rule rejects."""
        return SetAside.NO

    def set_aside(self) -> int:
        """Take the rejected jobs out of the way. Return how many jobs changed their states."""
        return 0

    def started(self, jobs: Sequence[Any]) -> None:
        """Note that these jobs have started, in their order. It is called even without jobs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """Why a rule keeps an available job waiting: a word for programs, a sentence for operators."""

    kind: str
    sentence: str
    #: What an operator changes: the group of the queue's configuration, or a stored object.
    group: str = ""
    about: Model | None = None


class ClaimRule:
    """A rule for the claims of the queues that have its bit in `ojs_queue.rules`.

    The statement of a claim returns no job of a queue that has a bit which the process does not
    know. The process then reads the rules of all queues, and claims again. The rules of a queue are
    applied in the order of their numbers.
    """

    #: A queue has the rule if its own configuration has one of these fields, and all queues have it
    #: if the default policy has one. If a claim finds a job that is open only to claims with a rule
    #: (see `spec.hold`), the queue of this job keeps the rule from then on.
    fields: frozenset[str] = frozenset()

    def begin(self, request: ClaimRequest) -> RuledClaim:
        """Begin a claim, in a transaction in which each statement sees what was committed before.

        It does not wait for a lock.
        """
        return RuledClaim()

    def full_among(self, queues: Collection[str]) -> Collection[str]:
        """Return which of these queues still have no job to start; their last claims found none.

        It is called outside of the transaction of a claim. It costs one query, and takes no lock.
        """
        return ()

    def waits_for(self, job: Any, may_see: bool) -> Waits | None:
        """Return why an available job does not start by this rule, or None if it may.

        `may_see` is whether the reader may see arguments of jobs.
        """
        return None

    def may_open(self) -> str | None:
        """Return the SQL condition under which jobs it keeps from claims may be opened, or None."""
        return None
