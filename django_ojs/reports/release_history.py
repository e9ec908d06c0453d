"""When workers first ran each release, by the events of their starts.

`KEEP_EVENTS` must have `worker.started`, as it has by default.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django_ojs.extension import WantedEvents
from django_ojs.hooks import registry
from django_ojs.reports import ended_workers
from django_ojs.spec.published import EventType, PastEvent

#: How many of the latest starts of workers are read.
MOST_STARTS: Final = 1_000


#: The part of a version before its number, such as "django_ojs ".
_NAME: Final = re.compile(r"\D*")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Start:
    """The start of a worker. Workers of one `kind` are deployed together."""

    time: datetime
    kind: tuple[str, ...]
    release: str


def changes(
    since: datetime, queue: str | None = None, latest: Sequence[PastEvent] | None = None
) -> list[tuple[datetime, str]]:
    """Return the first start of each release that followed others, oldest first.

    Workers are compared with those of the same queues. With `queue`, only the workers of this queue
    are read. For a worker without a release, its version counts. The first release that is known is
    no change. Each release is returned once, because the starts of two releases alternate in a
    rolling deployment. `latest` are the events, the latest first, if they have been read already.
    """
    if latest is None:
        latest = read((EventType.WORKER_STARTED,))
    found: list[tuple[datetime, str]] = []
    known: dict[tuple[str, ...], set[str]] = {}
    marked: set[str] = set()
    for start in _starts(reversed(latest), queue):
        before = known.setdefault(start.kind, {start.release})
        if start.release not in before | marked:
            marked.add(start.release)
            found.append((start.time, start.release))
        before.add(start.release)
    return [(time, release) for time, release in found if time >= since]


def read(types: Collection[EventType]) -> list[PastEvent]:
    """Return the latest events of these types, the latest first."""
    wanted = WantedEvents(types=types, limit=MOST_STARTS, among=ended_workers.MOST_EVENTS)
    found: list[PastEvent] = registry.brought("past_events", wanted)
    return found


def _starts(latest: Iterable[PastEvent], queue: str | None) -> Iterator[_Start]:
    for event in latest:
        if event.type is not EventType.WORKER_STARTED:
            continue
        data = event.data
        queues = data.get("queues") or ()
        release, version = data.get("release"), data.get("version")
        if (release or version) and (queue is None or queue in queues):
            # Workers in another language have versions of their own.
            name = "" if release else f"version {_NAME.match(str(version))[0]}"  # type: ignore[index]  # it matches any text
            kind = (name, *sorted(map(str, queues)))
            yield _Start(time=event.time, kind=kind, release=str(release or version))
