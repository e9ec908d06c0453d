"""What happened in the last minutes: by queue and minute, and by type. From the rollups."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Q, Sum
from django.utils import timezone

from django_ojs.models import Rollup

MINUTE = timedelta(minutes=1)

#: Rates are means over so many whole minutes.
RATE_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Flow:
    """A queue's minutes, oldest first; the last one is not over yet.

    `came` were enqueued; `went` left for good (completed, or discarded); `failed` are runs.
    """

    came: list[int]
    went: list[int]
    failed: list[int]
    refused: int = 0

    @property
    def came_per_minute(self) -> float:
        """How many came in a minute, lately."""
        return _rate(self.came)

    @property
    def went_per_minute(self) -> float:
        """How many went in a minute, lately."""
        return _rate(self.went)


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeFigures:
    """How the runs of a type ended."""

    type: str
    queue: str
    failed: int
    completed: int
    last: datetime

    @property
    def share(self) -> float:
        """The part of the runs that failed."""
        return self.failed / max(1, self.failed + self.completed)


def nothing(minutes: int = 60) -> Flow:
    """Return the flow of a queue in which nothing happened."""
    return Flow([0] * minutes, [0] * minutes, [0] * minutes)


def flows(minutes: int = 60) -> dict[str, Flow]:
    """Return the flow of each queue in which something happened, over so many minutes."""
    start = _minute(timezone.now()) - MINUTE * (minutes - 1)
    rows = (
        Rollup.primary.filter(minute__gte=start)
        .values("queue", "minute")
        .annotate(
            came=Sum("enqueued"),
            done=Sum("completed"),
            gone=Sum("discarded"),
            broke=Sum("failed"),
            no=Sum("rejected"),
        )
        .order_by()
    )
    found: dict[str, Flow] = {}
    refused: dict[str, int] = {}
    for row in rows:
        flow = found.setdefault(row["queue"], nothing(minutes))
        place = (row["minute"] - start) // MINUTE
        if 0 <= place < minutes:  # A process whose clock is ahead wrote the others.
            flow.came[place] += row["came"]
            flow.went[place] += row["done"] + row["gone"]
            flow.failed[place] += row["broke"]
        refused[row["queue"]] = refused.get(row["queue"], 0) + row["no"]
    return {
        name: Flow(flow.came, flow.went, flow.failed, refused[name]) for name, flow in found.items()
    }


def failing(minutes: int = 60, limit: int = 10) -> list[TypeFigures]:
    """Return the types whose runs failed most often, by queue."""
    start = _minute(timezone.now()) - MINUTE * (minutes - 1)
    rows = (
        Rollup.primary.filter(minute__gte=start)
        .values("type", "queue")
        .annotate(
            broke=Sum("failed"), done=Sum("completed"), last=Max("minute", filter=Q(failed__gt=0))
        )
        .filter(broke__gt=0)
        .order_by("-broke", "type", "queue")[:limit]
    )
    return [
        TypeFigures(
            type=row["type"],
            queue=row["queue"],
            failed=row["broke"],
            completed=row["done"],
            last=row["last"],
        )
        for row in rows
    ]


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def _rate(minutes: list[int]) -> float:
    # The minute that is not over would make every rate too low.
    whole = minutes[-1 - RATE_MINUTES : -1]
    return sum(whole) / max(1, len(whole))


__all__ = ["Flow", "TypeFigures", "failing", "flows", "nothing"]
