"""A filter of jobs: its validation, and its query (ojs-admin-api §7.1, §8)."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, Expression, F, Q, QuerySet, Value, When
from django.db.models.fields.json import KT
from django.db.models.functions import Now
from django.db.models.lookups import (
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from django_ojs.conf import settings
from django_ojs.hooks import registry
from django_ojs.models import Job, Worker
from django_ojs.spec.envelope import check_queue, check_type
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.field_checks import check_text
from django_ojs.spec.retry_policy import FAILED_RUN
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage.dialects.expressions import (
    ElapsedMilliseconds,
    HasForm,
    InWorkflow,
    Moment,
)
from django_ojs.storage.dialects.json_contains import JSONContains, JSONMatch
from django_ojs.storage.figures import counts

_MILLISECOND = timedelta(milliseconds=1)

_PREFIX = re.compile(r"[a-z0-9_\-.]{0,255}\*").fullmatch


def is_type_prefix(text: str) -> bool:
    """Return whether a text can be the beginning of a job type, followed by `*`."""
    return _PREFIX(text) is not None


def condition(name: str, value: str) -> Any:
    """Return the condition of a qualifier of an extension. Raises InvalidRequest."""
    qualifier = registry.qualifiers.get(name)
    if qualifier is None:
        raise InvalidRequest(
            f"There is no qualifier {name}: its extension is not installed.",
            details={"field": name},
        )
    return qualifier.condition(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """Jobs that meet all conditions that are given.

    With `states_excluded`, `states` are what an exclusion left over.
    `type` is a job type or, ending in `*`, a prefix. A job is in one of `queues`. Where only dead
    letters or discarded jobs are asked for, one that was moved to a dead letter queue is in the
    queue where it ran as well (ojs-dead-letter §9.1), unless `by_current_queue`. `since` and
    `until` bound `created_at`, `ended_since` and `ended_until` the time at which a job ended; the
    first of each pair is inclusive, the second exclusive. `error_type` is the type of the latest
    failure, `error` its type or a part of its message, `message` the form of its message. `host` is
    the host of a registered worker. `parent_id` is the job that enqueued them, `workflow_id` their
    workflow.
    `ran` is the duration of the last run, and of an active job the time so far; `waited` the time
    from available to that run, and of an available job the time so far. `attempts` are those that
    were spent, both bounds inclusive. A job has all of `tags`, its args or meta contain all of
    `held`, and it meets `by_extensions`, qualifiers with their values. `within` are the queues that
    the caller may use. `at` is the time that "so far" means; None is now. Raises InvalidRequest.
    """

    queue: str | None = None
    states: tuple[State, ...] = ()
    states_excluded: bool | None = None
    type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ended_since: datetime | None = None
    ended_until: datetime | None = None
    priority: int | None = None
    error_type: str | None = None
    error: str | None = None
    message: str | None = None
    dead_letter: bool | None = None
    ids: tuple[UUID, ...] = ()
    worker_id: str | None = None
    parent_id: UUID | None = None
    workflow_id: UUID | None = None
    queues: tuple[str, ...] = ()
    not_queues: tuple[str, ...] = ()
    not_types: tuple[str, ...] = ()
    host: str | None = None
    ran_over: timedelta | None = None
    ran_under: timedelta | None = None
    waited_over: timedelta | None = None
    waited_under: timedelta | None = None
    attempts_from: int | None = None
    attempts_to: int | None = None
    tags: tuple[str, ...] = ()
    held: tuple[JSONMatch, ...] = ()
    by_extensions: tuple[tuple[str, str], ...] = ()
    within: frozenset[str] | None = None
    at: datetime | None = None
    by_current_queue: bool | None = None

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
        for queue in (*self.queues, *self.not_queues):
            check_queue(queue, limits)
        for excluded in self.not_types:
            check_type(excluded, limits)
        for name in ("error_type", "error", "message", "worker_id", "host"):
            if getattr(self, name) is not None:
                check_text(getattr(self, name), name)
        for tag in self.tags:
            check_text(tag, "tags")
        for name, value in self.by_extensions:
            # A stored filter stays readable after the extension of its qualifier was removed.
            if name in registry.qualifiers:
                condition(name, value)

    def located(self, positions: Callable[[str], Iterable[tuple[str, range]]]) -> "JobFilter":
        """Return the filter in which a parameter of handlers stands for an argument as well.

        `positions` returns, for the name of a parameter, the types that have it and the indexes.
        """
        held = tuple(
            replace(
                each,
                positions=tuple((type, found.start) for type, found in positions(each.path[0])),
            )
            if each.column == "args" and each.path and not each.has_index
            else each
            for each in self.held
        )
        return replace(self, held=held) if held else self

    @property
    def counted(self) -> bool:
        """Whether the counts have the number of these jobs."""
        return not self._fields(
            but=(
                *("queue", "states", "states_excluded", "dead_letter"),
                *("within", "at", "by_current_queue"),
            )
        )

    @property
    def empty(self) -> bool:
        """Whether it has no condition besides `within`. The type `*` is not a condition."""
        return self.type in (None, "*") and not self._fields(
            but=("type", "within", "at", "by_current_queue")
        )

    def check_names_something(self) -> None:
        """Raise InvalidRequest if it is empty, so that no bulk action changes all jobs."""
        if self.empty:
            raise InvalidRequest(
                "filter must name something; a state alone selects all jobs in it.",
                details={"field": "filter"},
            )

    def _fields(self, *, but: tuple[str, ...]) -> list[str]:
        return [
            name
            for name in self.__slots__
            if name not in but and getattr(self, name) not in (None, ())
        ]

    def number(self) -> int:
        """Return the exact number of jobs, where `counted`.

        The counts are by the present queue of a job.
        """
        by_state = counts.totals(self._counted_queues, dead_letter=self.dead_letter)
        number = sum(
            number for state, number in by_state.items() if not self.states or state in self.states
        )
        return number + self.moved_out()

    def moved_out(self) -> int:
        """Return how many of them are dead letters that are counted in another queue."""
        queues = self._counted_queues
        if queues is None or not self._may_be_dead:
            return 0
        if self.within is None and not self._by_original_queue:
            return 0
        moved = self.jobs().filter(original_queue__isnull=False)
        return moved.exclude(queue__in=queues).count()

    @property
    def _counted_queues(self) -> set[str] | None:
        queues = None if self.within is None else set(self.within)
        if self.queue is None:
            return queues
        return {self.queue} if queues is None else {self.queue} & queues

    @property
    def _may_be_dead(self) -> bool:
        return self.dead_letter is not False and (not self.states or State.DISCARDED in self.states)

    @property
    def _by_original_queue(self) -> bool:
        if self.by_current_queue:
            return False
        return bool(self.dead_letter) or (self._may_be_dead and self.states == (State.DISCARDED,))

    def jobs(self) -> QuerySet[Job]:
        """Return the jobs, without an order."""
        return self.narrow(Job.primary.all())

    def narrow(self, among: QuerySet[Job]) -> QuerySet[Job]:
        """Add the conditions to a query, and keep its order."""
        found = among.filter(**self._equal(), **self._ranges())
        if self.within is not None:
            names = sorted(self.within)
            # A dead letter that was moved to another queue also belongs to the queue where it ran.
            found = found.filter(Job.in_queues(names) if self._may_be_dead else Q(queue__in=names))
        if self.states and len(self.states) > 1:
            found = found.filter(state__in=self.states)
        if self.error_type is not None:
            found = found.filter(error__type=self.error_type)
        if self.error is not None:
            found = found.filter(
                Q(error__type=self.error) | Q(error__message__icontains=self.error)
            )
        if self.message is not None:
            found = found.filter(HasForm(KT("error__message"), self.message))
        if self.workflow_id is not None:
            is_step = InWorkflow(self.workflow_id)
            found = found.filter(is_step) if registry.has("workflows") else found.none()
        if self.ids:
            found = found.filter(pk__in=self.ids)
        found = self._narrow_names(found)
        found = self._narrow_durations(found)
        for tag in self.tags:
            found = found.filter(JSONContains(JSONMatch(column="tags", path=(), values=(tag,))))
        for held in self.held:
            has = Q(JSONContains(held))
            for type, index in held.positions:
                at = replace(held, path=(str(index), *held.path[1:]))
                has |= Q(type=type) & Q(JSONContains(at))
            found = found.filter(has)
        for name, value in self.by_extensions:
            found = found.filter(condition(name, value))
        if self.since is not None and self.states and TERMINAL.issuperset(self.states):
            # `created_at` has no index, but `finished_at` has one, and a job ends after its
            # creation.
            found = found.filter(finished_at__gte=_clock(self.since))
        return found

    def _narrow_names(self, found: QuerySet[Job]) -> QuerySet[Job]:
        if self._by_original_queue and self.queue is not None:
            found = found.filter(Job.in_queues([self.queue]))
        if self.queues and self._by_original_queue:
            found = found.filter(Job.in_queues(self.queues))
        elif self.queues:
            found = found.filter(queue__in=self.queues)
        if self.not_queues:
            found = found.exclude(queue__in=self.not_queues)
        if self.not_types:
            found = found.exclude(type__in=self.not_types)
        if self.host is not None:
            found = found.filter(
                worker_id__in=Worker.primary.filter(hostname=self.host).values("pk")
            )
        return found

    def _narrow_durations(self, found: QuerySet[Job]) -> QuerySet[Job]:
        # Each is a condition on the rows that a scan reads, because no index covers it.
        spent = F("attempt") - F("returned")
        if self.attempts_from is not None:
            found = found.filter(GreaterThanOrEqual(spent, self.attempts_from))
        if self.attempts_to is not None:
            found = found.filter(LessThanOrEqual(spent, self.attempts_to))
        if self.ran_over is not None or self.ran_under is not None:
            found = _between(found.filter(_RAN), _ran(self._now()), self.ran_over, self.ran_under)
        if self.waited_over is not None or self.waited_under is not None:
            found = _between(found, _waited(self._now()), self.waited_over, self.waited_under)
        return found

    def _now(self) -> Expression:
        return _clock(self.at) or Now()

    def _equal(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "queue": None if self._by_original_queue else self.queue,
            "priority": self.priority,
            "dead_letter": self.dead_letter,
            "worker_id": self.worker_id,
            "parent_id": self.parent_id,
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
    # The time has the form in which the database writes `finished_at`, so that the two can be
    # compared.
    return None if moment is None else Moment(Value(moment))


#: The times of these jobs belong to a run. Others ended without a run, or later than their run and
#: for another reason.
_RAN = Q(state__in=(State.ACTIVE, State.COMPLETED)) | (
    Q(state=State.DISCARDED) & (Q(discard_reason__isnull=True) | Q(discard_reason__in=FAILED_RUN))
)


def _ran(now: Expression) -> Expression:
    end = Case(When(state=State.ACTIVE, then=now), default=F("finished_at"))
    return ElapsedMilliseconds(end, F("started_at"))


def _waited(now: Expression) -> Expression:
    end = Case(When(state=State.AVAILABLE, then=now), default=F("started_at"))
    return ElapsedMilliseconds(end, F("enqueued_at"))


def _between(
    found: QuerySet[Job], elapsed: Expression, over: timedelta | None, under: timedelta | None
) -> QuerySet[Job]:
    # A job that is available again has the start of an earlier run, which makes this time negative.
    found = found.filter(GreaterThanOrEqual(elapsed, 0.0))
    if over is not None:
        found = found.filter(GreaterThan(elapsed, over / _MILLISECOND))
    if under is not None:
        found = found.filter(LessThan(elapsed, under / _MILLISECOND))
    return found
