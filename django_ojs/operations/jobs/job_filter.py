"""A filter of jobs: its validation, and its query (ojs-admin-api §7.1, §8)."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet, Value

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.fields import check_text
from django_ojs.spec.envelope import check_queue, check_type
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage.dialects.expressions import Moment
from django_ojs.storage.dialects.json_contains import JSONContains, JSONMatch
from django_ojs.storage.figures import counts

_PREFIX = re.compile(r"[a-z0-9_\-.]{0,255}\*").fullmatch


def is_type_prefix(text: str) -> bool:
    """Return whether a text can be the beginning of a job type, followed by `*`."""
    return _PREFIX(text) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """Jobs that meet all conditions that are given.

    `type` is a job type or, ending in `*`, a prefix. `since` and `until` bound
    `created_at`, `ended_since` and `ended_until` the time at which a job ended; the first of each
    pair is inclusive, the second exclusive. `error_type` is the type of the latest failure, `error`
    its type or a part of its message. A job has all of `tags`, and its args or meta contain all of
    `held`. `within` are the queues that the caller may use. Raises InvalidRequest.
    """

    queue: str | None = None
    states: tuple[State, ...] = ()
    type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ended_since: datetime | None = None
    ended_until: datetime | None = None
    priority: int | None = None
    error_type: str | None = None
    error: str | None = None
    dead_letter: bool | None = None
    ids: tuple[UUID, ...] = ()
    worker_id: str | None = None
    tags: tuple[str, ...] = ()
    held: tuple[JSONMatch, ...] = ()
    within: frozenset[str] | None = None

    def __post_init__(self) -> None:
        limits = settings().limits
        if self.queue is not None:
            check_queue(self.queue, limits)
        if self.type is not None and not self.type.endswith("*"):
            check_type(self.type, limits)
        elif self.type is not None and not is_type_prefix(self.type):
            raise InvalidRequest(
                "type must be a job type, or the beginning of one followed by *",
                details={"field": "type"},
            )
        for name in ("error_type", "error", "worker_id"):
            if getattr(self, name) is not None:
                check_text(getattr(self, name), name)
        for tag in self.tags:
            check_text(tag, "tags")

    @property
    def counted(self) -> bool:
        """Whether the counts have the number of these jobs."""
        return not self._fields(but=("queue", "states", "within"))

    @property
    def empty(self) -> bool:
        """Whether it has no condition besides `within`."""
        return not self._fields(but=("within",))

    def _fields(self, *, but: tuple[str, ...]) -> list[str]:
        return [
            name
            for name in self.__slots__
            if name not in but and getattr(self, name) not in (None, ())
        ]

    def number(self) -> int:
        """Return the exact number of jobs, where `counted`."""
        queues = None if self.within is None else set(self.within)
        if self.queue is not None:
            queues = {self.queue} if queues is None else {self.queue} & queues
        return sum(
            number
            for state, number in counts.totals(queues).items()
            if not self.states or state in self.states
        )

    def jobs(self) -> QuerySet[Job]:
        """Return the jobs, without an order."""
        return self.narrow(Job.primary.all())

    def narrow(self, among: QuerySet[Job]) -> QuerySet[Job]:
        """Add the conditions to a query, and keep its order."""
        found = among.filter(**self._equal(), **self._ranges())
        if self.within is not None:
            found = found.filter(queue__in=sorted(self.within))
        if self.states and len(self.states) > 1:
            found = found.filter(state__in=self.states)
        if self.error_type is not None:
            found = found.filter(error__type=self.error_type)
        if self.error is not None:
            found = found.filter(
                Q(error__type=self.error) | Q(error__message__icontains=self.error)
            )
        if self.ids:
            found = found.filter(pk__in=self.ids)
        for tag in self.tags:
            found = found.filter(JSONContains(JSONMatch(column="tags", path=(), values=(tag,))))
        for held in self.held:
            found = found.filter(JSONContains(held))
        if self.since is not None and self.states and TERMINAL.issuperset(self.states):
            # `created_at` has no index, but `finished_at` has one, and a job ends after its
            # creation.
            found = found.filter(finished_at__gte=_clock(self.since))
        return found

    def _equal(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "queue": self.queue,
            "priority": self.priority,
            "dead_letter": self.dead_letter,
            "worker_id": self.worker_id,
        }
        if len(self.states) == 1:
            values["state"] = self.states[0]
        if self.type is not None and self.type.endswith("*"):
            values["type__startswith"] = self.type[:-1] or None
        else:
            values["type"] = self.type
        return {name: value for name, value in values.items() if value is not None}

    def _ranges(self) -> dict[str, Any]:
        values = {
            "created_at__gte": self.since,
            "created_at__lt": self.until,
            "finished_at__gte": _clock(self.ended_since),
            "finished_at__lt": _clock(self.ended_until),
        }
        return {name: value for name, value in values.items() if value is not None}


def _clock(moment: datetime | None) -> Moment | None:
    # As the database writes `finished_at`, so that the two compare.
    return None if moment is None else Moment(Value(moment))
