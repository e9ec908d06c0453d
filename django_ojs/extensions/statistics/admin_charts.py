"""The charts of a period, which the overview and the pages of queues show."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_ojs.admin.formatting import StrOrPromise
from django_ojs.extensions.statistics import admin_svg as svg
from django_ojs.extensions.statistics import stats
from django_ojs.extensions.statistics.admin_svg import Chart, Series
from django_ojs.extensions.statistics.history import Point
from django_ojs.extensions.statistics.rollups import BUCKETS
from django_ojs.reports import release_history
from django_ojs.spec.published import EventType


def history_charts(
    points: Sequence[Point] | None, *, happened: Iterable[tuple[datetime, str]] = ()
) -> dict[str, Any]:
    """Return the charts of a period, and its sums and percentiles.

    Without `points`, all of these are unknown. `happened` are the events that the charts mark, with
    their times.
    """
    if points is None:
        unknown = history_charts([])
        return {
            name: replace(value, is_unknown=True) if isinstance(value, Chart) else None
            for name, value in unknown.items()
        }
    starts = [point.timestamp for point in points]
    markers = _markers(starts, happened)
    names = _names(starts)
    percentiles = [stats.percentiles(point.waited, (50, 95)) for point in points]
    waited = _sum(point.waited for point in points)
    ran = _sum(point.ran for point in points)
    total, runs = (stats.percentiles(histogram, (50, 95)) for histogram in (waited, ran))
    completed = [point.completed for point in points]
    failed = [point.failed for point in points]
    # The current period is left out, because it would make the line of enqueued jobs end in a drop.
    enqueued = [point.enqueued for point in points]
    whole = [*enqueued[:-1], None]
    lost = [
        Series(name=name, kind=kind, values=values)
        for name, kind, values in (
            (pgettext("jobs", "rejected"), "warned", [point.rejected for point in points]),
            (pgettext("jobs", "dropped"), "dropped", [point.dropped for point in points]),
        )
        if any(values)
    ]
    return {
        "throughput": svg.bars(
            _("Jobs in and out"),
            names,
            [
                Series(name=pgettext("runs", "completed"), kind="done", values=completed),
                Series(name=_("failed runs"), kind="failed", values=failed),
                *lost,
                Series(
                    name=pgettext("jobs", "enqueued"),
                    kind="in",
                    values=whole,
                    line=True,
                    total=sum(enqueued),
                ),
            ],
            unit=_unit(starts),
            markers=markers,
        ),
        "waits": svg.bars(
            _("Waiting time before a run"),
            names,
            [
                Series(
                    name=name,
                    kind=kind,
                    values=[_seconds(point[name]) for point in percentiles],
                    line=True,
                )
                for name, kind in (("p50", "in"), ("p95", "warned"))
            ],
            seconds=True,
            markers=markers,
        ),
        "waited": svg.histogram(_("Waiting times"), waited, kind="in"),
        "ran": svg.histogram(_("Running times"), ran),
        "p50": _seconds(total["p50"]),
        "p95": _seconds(total["p95"]),
        "ran_p50": _seconds(runs["p50"]),
        "ran_p95": _seconds(runs["p95"]),
        "completed": sum(completed),
        "failed": sum(failed),
    }


def release_markers(since: datetime, queue: str | None = None) -> list[tuple[datetime, str]]:
    """Return the marks of charts at the times when the release of the workers changed."""
    return _named(release_history.changes(since, queue))


def change_markers(
    since: datetime, names: Mapping[EventType, StrOrPromise]
) -> list[tuple[datetime, str]]:
    """Return what the charts of the overview mark: starts and releases of workers, and changes.

    `names` are the words for the changes of queues. Workers that start in one minute share a mark.
    """
    latest = release_history.read((*names, EventType.WORKER_STARTED))
    started = Counter(
        event.time.replace(second=0, microsecond=0)
        for event in latest
        if event.type is EventType.WORKER_STARTED
    )
    return [
        *(
            (
                minute,
                ngettext("%(count)d worker started", "%(count)d workers started", count)
                % {"count": count},
            )
            for minute, count in started.items()
        ),
        *(
            (event.time, f"{event.subject}: {names[event.type]}")
            for event in latest
            if event.type in names
        ),
        *_named(release_history.changes(since, latest=latest)),
    ]


def _named(releases: Iterable[tuple[datetime, str]]) -> list[tuple[datetime, str]]:
    return [(time, _("release %(release)s") % {"release": release}) for time, release in releases]


def _markers(
    starts: Sequence[datetime], happened: Iterable[tuple[datetime, str]]
) -> dict[int, str]:
    found: dict[int, list[str]] = {}
    for time, text in sorted(happened):
        if starts and time >= starts[0]:
            shown = f"{text}, {timezone.localtime(time):%H:%M:%S}"
            found.setdefault(bisect_right(starts, time) - 1, []).append(shown)
    return {index: "\n".join(texts) for index, texts in found.items()}


def _unit(starts: Sequence[datetime]) -> str:
    if len(starts) < 2:
        return ""
    minutes = (starts[1] - starts[0]) // timedelta(minutes=1)
    if minutes == 60:
        return _("per hour")
    if minutes == 1:
        return _("per minute")
    return _("per %(minutes)d min") % {"minutes": minutes}


def _names(moments: Sequence[datetime]) -> list[str]:
    with_day = len(moments) > 1 and moments[-1] - moments[0] > timedelta(hours=2)
    form = "D H:i" if with_day else "H:i"
    return [date_format(timezone.localtime(moment), form) for moment in moments]


def _sum(histograms: Iterable[Sequence[int]]) -> list[int]:
    nothing = [0] * BUCKETS
    return [sum(column) for column in zip(nothing, *histograms, strict=True)]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
