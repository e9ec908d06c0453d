"""Dead letters grouped by queue, type and error (ojs-dead-letter §6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Count, Max, Min, Value
from django.db.models.fields.json import KT

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.errors import OJSError
from django_ojs.storage.dialects.expressions import Moment

#: The number of dead letters that are grouped, the newest ones: this takes some 80 ms.
NEWEST: Final = 25_000
#: The number of groups that are returned.
GROUPS: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Dead letters of one queue, type and error. `sample` is the newest of them."""

    queue: str
    type: str
    error_type: str | None
    count: int
    first: datetime
    last: datetime
    sample: Job | None = None

    @property
    def filter(self) -> JobFilter | None:
        """The filter that finds its letters; None where none finds these alone."""
        if self.error_type is None:
            return None  # A filter without an error type matches every error.
        try:
            return JobFilter(
                queue=self.queue, type=self.type, error_type=self.error_type, dead_letter=True
            )
        except OJSError:  # A name that a search cannot hold.
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The groups, in order. `seen` letters were grouped; `more`: there are older ones.

    `found` is the number of groups. `oldest` is the time of the oldest dead letter, `pruned_at` the
    time at which it will be deleted.
    """

    groups: list[Group]
    seen: int
    more: bool
    found: int = 0
    oldest: datetime | None = None
    pruned_at: datetime | None = None


def groups(*, newest: int = NEWEST, most: int = GROUPS, latest_first: bool = False) -> Groups:
    """Group the newest dead letters; the largest groups first, or the latest."""
    dead = Job.primary.filter(dead_letter=True)
    times = dead.order_by("-finished_at", "-pk").values_list("finished_at", flat=True)
    start = next(iter(times[newest : newest + 1]), None)
    among = dead if start is None else dead.filter(finished_at__gt=Moment(Value(start)))
    counted: Any = (
        among.annotate(error_type=KT("error__type"))
        .order_by()
        .values("queue", "type", "error_type")
        .annotate(count=Count("pk"), first=Min("finished_at"), last=Max("finished_at"))
        .order_by("-last" if latest_first else "-count", "queue", "type", "error_type")
    )
    rows: list[dict[str, Any]] = list(counted)
    shown = rows[:most]
    samples = _samples([row["last"] for row in shown])
    oldest = dead.order_by("finished_at", "pk").values_list("finished_at", flat=True).first()
    return Groups(
        groups=[
            Group(**row, sample=samples.get((row["queue"], row["type"], row["error_type"])))
            for row in shown
        ],
        seen=sum(row["count"] for row in rows),
        more=start is not None,
        found=len(rows),
        oldest=oldest,
        pruned_at=None if oldest is None else oldest + settings().keep_dead_letters,
    )


def _samples(times: Sequence[datetime]) -> dict[tuple[str, str, str | None], Job]:
    # The newest letters are found by their times, which are indexed; other letters may have the
    # same time.
    found = Job.primary.filter(
        dead_letter=True, finished_at__in=[Moment(Value(time)) for time in times]
    )
    samples: dict[tuple[str, str, str | None], Job] = {}
    for job in found.only("id", "queue", "type", "error", "finished_at")[: 10 * GROUPS]:
        kind = job.error.get("type") if isinstance(job.error, dict) else None
        samples[job.queue, job.type, kind] = job
    return samples
