"""Dead letters grouped by queue, type, error and message (ojs-dead-letter §6)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Count, Max, Min, QuerySet, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Left

from django_ojs.models import Job
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.maintenance import job_retention
from django_ojs.spec import failure
from django_ojs.spec.errors import OJSError
from django_ojs.storage.dialects.expressions import Moment
from django_ojs.storage.figures import counts

#: How many of the newest dead letters are grouped. Grouping them takes some 80 ms.
NEWEST: Final = 25_000
#: At most this many groups are returned.
GROUPS: Final = 100


#: What the letters of a group have in common: queue, type, type of the error, form of the message.
_Key = tuple[str, str, str | None, str | None]


@dataclass(kw_only=True, slots=True)
class _Letters:
    """The letters of a group. `message` is the same in all of them, or None if they differ."""

    message: str | None
    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Dead letters of one queue, type and error. `sample` is the newest of them.

    `message` is their message, or its form if the messages differ (see `message_form`), or None if
    they were not compared. `alone` says that no other group has the same queue, type and error.
    """

    queue: str
    type: str
    error_type: str | None
    message: str | None
    count: int
    first: datetime
    last: datetime
    alone: bool
    sample: Job | None = None

    @property
    def filter(self) -> JobFilter | None:
        """The filter that finds exactly these letters, or None if there is no such filter."""
        if self.error_type is None:
            return None  # A filter without an error type matches every error.
        if not (self.message or self.alone):
            return None
        try:
            return JobFilter(
                queue=self.queue,
                type=self.type,
                error_type=self.error_type,
                message=self.message or None,
                dead_letter=True,
            )
        except OJSError:  # The name contains something that a search cannot express.
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The groups, in order.

    `seen` is how many letters were grouped, and `more` says whether there are older ones. `total`
    is the number of all dead letters, and `found` the number of groups. `oldest` is the time of the
    oldest dead letter, and `pruned_at` is when it may be deleted, by the retention of its queue.
    """

    groups: list[Group]
    seen: int
    more: bool
    total: int
    found: int = 0
    oldest: datetime | None = None
    pruned_at: datetime | None = None


def groups(
    *,
    newest: int = NEWEST,
    most: int = GROUPS,
    latest_first: bool = False,
    by_message: bool = True,
) -> Groups:
    """Group the newest dead letters; the largest groups come first, or the latest.

    With `by_message`, they are also grouped by the form of their messages, which the caller must be
    allowed to see.
    """
    dead = Job.primary.filter(dead_letter=True)
    times = dead.order_by("-finished_at", "-pk").values_list("finished_at", flat=True)
    start = next(iter(times[newest : newest + 1]), None)
    among = dead if start is None else dead.filter(finished_at__gt=Moment(Value(start)))
    found = _grouped(among, by_message=by_message)
    seen = sum(each.count for each in found.values())
    kinds = Counter(key[:3] for key in found)
    ordered = sorted(found.items(), key=lambda each: tuple(map(str, each[0])))
    ordered.sort(key=lambda each: each[1].last if latest_first else each[1].count, reverse=True)
    shown = ordered[:most]
    samples = _samples([each.last for _key, each in shown], by_message=by_message)
    whole = ("state", "dead_letter", "queue", "original_queue", "finished_at")
    oldest = dead.order_by("finished_at", "pk").only(*whole).first()
    ended = None if oldest is None else oldest.finished_at
    return Groups(
        groups=[
            Group(
                queue=key[0],
                type=key[1],
                error_type=key[2],
                message=key[3] if each.message is None else each.message,
                count=each.count,
                first=each.first,
                last=each.last,
                alone=kinds[key[:3]] == 1,
                sample=samples.get(key),
            )
            for key, each in shown
        ],
        seen=seen,
        more=start is not None,
        total=seen if start is None else counts.dead_letters(),
        found=len(found),
        oldest=ended,
        pruned_at=ended + job_retention.of(oldest) if ended and oldest else None,
    )


def _grouped(among: QuerySet[Job], *, by_message: bool) -> dict[_Key, _Letters]:
    # One character more is read than is compared, which shows that a message is longer.
    message = (
        Left(KT("error__message"), failure.MAX_FORM_CHARACTERS + 1) if by_message else Value("")
    )
    counted: Any = (
        among.annotate(error_type=KT("error__type"), message=message)
        .order_by()
        .values_list("queue", "type", "error_type", "message")
        .annotate(count=Count("pk"), first=Min("finished_at"), last=Max("finished_at"))
    )
    found: dict[_Key, _Letters] = {}
    for queue, type, error_type, text, count, first, last in counted:
        key = queue, type, error_type, failure.message_form(text) if by_message else None
        letters = found.get(key)
        if letters is None:
            same = text if by_message and failure.is_form(text) else None
            found[key] = _Letters(message=same, count=count, first=first, last=last)
        else:
            letters.message = None
            letters.count += count
            letters.first = min(letters.first, first)
            letters.last = max(letters.last, last)
    return found


def _samples(times: Sequence[datetime], *, by_message: bool) -> dict[_Key, Job]:
    # The newest letters are found by their times, which are indexed; other letters may have the
    # same time.
    newest = Job.primary.filter(
        dead_letter=True, finished_at__in=[Moment(Value(time)) for time in times]
    )
    samples: dict[_Key, Job] = {}
    for job in newest.only("id", "queue", "type", "error", "finished_at")[: 10 * GROUPS]:
        error = job.error if isinstance(job.error, dict) else {}
        form = failure.message_form(error.get("message")) if by_message else None
        samples[job.queue, job.type, error.get("type"), form] = job
    return samples
