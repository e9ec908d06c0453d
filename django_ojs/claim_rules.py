"""What an extension has a say in when jobs of some queues are claimed: the hook `claim_rule`."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from django.db.models import Model

from django_ojs.storage.dialects.rows import Candidate, ClaimRequest


class MayStart(Enum):
    """Whether a job may start, as a rule says."""

    YES = "yes"
    NO = "no"
    #: Another claim decides it: it has the lock of what the rule has to count.
    BUSY = "busy"


class SetAside(Enum):
    """Whether a rule takes a job that it rejects out of the way of the jobs behind it."""

    #: It stays where it is.
    NO = "no"
    #: By `RuledClaim.set_aside`.
    YES = "yes"
    #: That cannot take more at a time: the claim ends before this job.
    NOT_NOW = "not now"


class RuledClaim:
    """What one rule does in one claim, and in its transaction.

    The claim asks each rule for its `room`. Where a rule has candidates of its own, or decides on
    each job, the candidates are found and locked, and the rules `read` what they need to know of
    them. A job starts if all rules agree and it is not too large: each `take`s it. A job that one
    rule alone rejects is left to that rule (`reject`, `set_aside`); a job that several reject stays
    where it is, and none of them counts, moves or ends it. Where jobs were set aside, it is all
    done again, with the candidates behind them. At last the rules are told which jobs have
    `started`, the last rule first.

    An error undoes the claim.
    """

    #: How many jobs may start. None: any number.
    room: int | None = None
    #: Whether it decides on each job.
    decides: bool = False
    #: Finds up to so many of the best jobs, in the order in which they are to start, locked, with
    #: their keys. It leaves out jobs of these keys, which are busy. Only one rule of a queue may
    #: bring one. Jobs that it does not find start after them, in the order of the queue.
    candidates: Callable[[int, Collection[str]], list[Candidate]] | None = None
    #: Finds jobs in the order of the queue, in place of `Dialect.candidates`: so many of those with
    #: a key. Of a rule whose jobs have keys.
    in_order: Callable[[ClaimRequest, int, Collection[str]], list[Candidate]] | None = None

    def read(self, candidates: Sequence[Candidate]) -> None:
        """Read what decides on these jobs. Whatever was taken or rejected before is forgotten."""

    def may_start(self, job: Candidate) -> MayStart:
        """Say whether a job may start, after those that were taken."""
        return MayStart.YES

    def take(self, job: Candidate) -> None:
        """Count a job, which will start."""

    def reject(self, job: Candidate) -> SetAside:
        """Decide what becomes of a job that this rule alone rejects."""
        return SetAside.NO

    def set_aside(self) -> int:
        """Take the rejected jobs out of the way. Return how many have changed their states."""
        return 0

    def started(self, jobs: Sequence[Any]) -> None:
        """Note that these jobs have started, in their order; called without any, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """Why a rule lets an available job not start: a word for programs, a sentence for operators."""

    kind: str
    sentence: str
    #: What an operator changes: the group of the queue's configuration, or a stored object.
    group: str = ""
    about: Model | None = None


class ClaimRule:
    """A rule for the claims of some queues: of those that have its bit in `ojs_queue.rules`.

    A process that does not know of a bit of a queue claims no job of it: the statement of the claim
    says so. The process reads the rules of all queues, and claims again. The rules of a queue are
    applied in the order of their numbers.
    """

    #: A queue whose own configuration has one of these fields has the rule, and so does each queue
    #: where the default policy has one. A job that is open to the claims with a rule alone (see
    #: `spec.hold`) gives its queue the rule, for good, once a claim has found it.
    fields: frozenset[str] = frozenset()

    def begin(self, request: ClaimRequest) -> RuledClaim:
        """Begin a claim, in a transaction in which each statement sees what was committed before.

        It does not wait for a lock.
        """
        return RuledClaim()

    def is_full(self, queue: str) -> bool:
        """Say whether no job may start in a queue of which the last claim said so (`next_starts`).

        Called outside of the transaction of a claim: it costs one query, and takes no lock.
        """
        return False

    def waits_for(self, job: Any, key: str | None) -> Waits | None:
        """Return why an available job does not start by this rule, or None if it may.

        `key` is its limit key as the reader may see it.
        """
        return None

    def may_open(self) -> str | None:
        """Return the condition, in SQL, that jobs which it keeps from claims may be opened."""
        return None
