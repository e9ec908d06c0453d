"""A finding: what an operator should know, in the words of the module that finds it.

The overview of the admin, `manage.py ojs doctor` and `GET /health` show the same text, and the
metrics show its identity. The text contains no age, because these show the age separately.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db.models import Model

from django_ojs.spec.times import format_timestamp


class Severity(StrEnum):
    """How bad it is. All except advice are incidents, which are stored while they last."""

    #: Jobs do not run, or are lost.
    CRITICAL = "critical"
    #: It hurts some jobs, or will soon.
    WARNING = "warning"
    #: Nothing is wrong now.
    ADVICE = "advice"


@dataclass(frozen=True, kw_only=True, slots=True)
class AdminPage:
    """A page of the admin: a list of objects, one of them, or an action on it.

    With `jobs`, the list of these jobs, or an action on all of them. There is no such page for a
    name that a search cannot contain.
    """

    model: type[Model]
    key: str = ""
    #: Whether the link to the object shows its key, which the text must not contain.
    names_key: bool = False
    #: The query string of the list, such as `?state=rejected`.
    query: str = ""
    action: str = ""
    #: Attributes of the object that decide whether the action applies to it, beside its key.
    state: tuple[tuple[str, object], ...] = ()
    #: The arguments of a `JobFilter`.
    jobs: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What was found, why it matters, what probably caused it, and what to do."""

    #: What was found, as a name in lower case, such as `queue_full`.
    kind: str
    #: What it is about, if that is neither a queue nor a type in it. It distinguishes findings of
    #: one kind.
    subject: str = ""
    severity: Severity = Severity.WARNING
    text: str
    why: str
    cure: str
    #: What the system knows of its cause, if it knows something.
    cause: str = ""
    #: The arguments of `manage.py` for a command that mends it, if there is one.
    command: str = ""
    #: Since when it holds; None means since it was first found.
    since: datetime | None = None
    #: How many jobs it keeps from running, or has hurt.
    jobs: int = 0
    queue: str = ""
    type: str = ""
    #: The pages of the admin for this finding; the one that mends it is first.
    pages: Sequence[AdminPage] = field(default=())
    #: Kinds of findings from which this one follows: if there is one of these, this one is left
    #: out.
    follows: frozenset[str] = frozenset()

    @property
    def identity(self) -> str:
        """A name that stays the same while the finding lasts."""
        subject = self.subject or (f"{self.type} {self.queue}".strip() if self.queue else "")
        return f"{self.kind}:{subject}" if subject else self.kind

    @property
    def is_incident(self) -> bool:
        """Whether something is wrong."""
        return self.severity is not Severity.ADVICE

    @property
    def is_critical(self) -> bool:
        """Whether jobs do not run, or are lost."""
        return self.severity is Severity.CRITICAL


def as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as a JSON object."""
    return {
        "identity": finding.identity,
        "kind": finding.kind,
        "severity": finding.severity.value,
        "text": finding.text,
        "why": finding.why,
        "cause": finding.cause,
        "cure": finding.cure,
        "command": finding.command,
        "since": finding.since and format_timestamp(finding.since),
        "jobs": finding.jobs,
    }
