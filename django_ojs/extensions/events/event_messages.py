"""What a stream sends: the messages of a channel (ojs-realtime §4)."""

import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.utils import timezone

from django_ojs.conf import of
from django_ojs.extensions.events import spec as events
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.events.settings import EventSettings
from django_ojs.models import Job
from django_ojs.spec import published, times
from django_ojs.spec.states import TERMINAL

#: Ids of messages that contain a cursor and more: the id of the end of a job, and the id of
#: the first of an event's two messages.
_PART: Final = re.compile(r"(?P<end>[0-9]{1,18})-[0-9]{1,18}|(?P<first>[1-9][0-9]{0,17})\.0")

#: The milliseconds in which a stopping server ends its streams (§5.1).
GRACE_MS: Final = 5_000


class Message(NamedTuple):
    """A message. A client that connects again with its id gets what came after it."""

    id: str
    event: str
    data: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """What a client follows: `job:ID`, `queue:NAME` or `all`, and the types of its events.

    None in `types` stands for all types. `within` are the queues of a limited caller.
    """

    name: str
    job: UUID | None = None
    types: Collection[str] | None = None
    queues: Collection[str] | None = None
    job_types: Collection[str] | None = None
    within: Collection[str] | None = None

    @property
    def has_changes(self) -> bool:
        """Whether `job.state_changed` is among the types."""
        return self.types is None or events.matches_state_changed(self.types)

    def read(self, after: int, limit: int) -> log.EventPage:
        """Return the events after a position, from which the messages of the channel follow."""
        types = self.types
        if types is not None and self.has_changes:
            types = [*types, *published.TRANSITIONS]
        return log.read(
            types=types,
            queues=self.queues,
            job_types=self.job_types,
            subject=None if self.job is None else str(self.job),
            within=self.within,
            after=str(after),
            limit=limit,
        )

    def messages(self, event: dict[str, Any], position: int) -> Iterator[Message]:
        """Yield the messages of an event: the change of state, and the event itself."""
        named = None if self.types is None else published.matching(self.types)
        is_sent = named is None or event["type"] in named
        change = events.state_change(event) if self.has_changes else None
        if change is not None:
            # A client that got only the first of the two gets both again when it reconnects.
            key = f"{position}.0" if is_sent else str(position)
            yield Message(key, published.STATE_CHANGED, change)
        if is_sent:
            yield Message(str(position), event["type"], event)


class Pace:
    """Limits how many messages a stream sends in a second (§5.7)."""

    def __init__(self) -> None:
        self.rate = of(EventSettings).http_event_rate
        self._next = 0.0

    def sent(self, number: int) -> None:
        """Note that this number of messages was sent."""
        self._next = time.monotonic() + number / self.rate

    @property
    def left(self) -> float:
        """The seconds until more messages may be sent."""
        return self._next - time.monotonic()


class Follower:
    """What one client follows, and how far it has come.

    A change of state that ends a job is held back, because it may be the last message of the
    channel, which `ended` makes.
    """

    def __init__(self, channel: Channel, after: int) -> None:
        self.channel = channel
        self.after = after
        self._held: Message | None = None

    def messages(self, page: log.EventPage) -> list[Message]:
        """Return the messages of a page that are to be sent, and continue after it."""
        found: list[Message] = []
        if page.tail_lost:
            lost = log.Resumed(int(page.cursor), has_gap=True, gap_end=timezone.now())
            found.append(gap(lost, self.channel.name))
        for event, position in zip(page.events, page.positions, strict=True):
            for message in self.channel.messages(event, position):
                found += self._unless_end(message)
        self.after = int(page.cursor)
        return found

    def _unless_end(self, message: Message) -> list[Message]:
        if self.channel.job is None or message.event != published.STATE_CHANGED:
            return [message]
        found = [] if self._held is None else [self._held]
        self._held = message if message.data["to"] in TERMINAL else None
        return found if self._held else [*found, message]


def read(follower: Follower, limit: int) -> tuple[log.EventPage, Message | None]:
    """Return the next events of a follower, and the end of its job if that has ended.

    The job is read first, so that all events of its end are in this page or in the next ones.
    """
    channel = follower.channel
    ending = None if channel.job is None else ended(channel.job, channel.within)
    return channel.read(follower.after, limit), ending


def ended(job: UUID, within: Collection[str] | None = None) -> Message | None:
    """Return the last message of a job if it has ended, without its position.

    It is made from the job, so it is the same whatever events are recorded.
    """
    which = Job.primary.filter(pk=job, state__in=TERMINAL)
    if within is not None:
        # A dead letter may be in another queue than the one in which it ran.
        which = which.filter(Job.in_queues(sorted(within)))
    found = which.first()
    return None if found is None else _ending(found)


def _ending(job: Job) -> Message:
    assert job.finished_at is not None
    data = {
        "job_id": str(job.pk),
        "queue": job.queue,
        "type": job.type,
        "to": job.state,
        "timestamp": times.format_timestamp(job.finished_at),
    }
    if before := log.state_before(job.pk, job.state):
        data["from"] = before
    return Message(f"-{finished_ms(job)}", published.STATE_CHANGED, data)


def finished_ms(job: Job) -> int:
    """Return when a job ended: if it runs again, its next end has another value."""
    assert job.finished_at is not None
    return int(job.finished_at.timestamp() * 1000)


def at(position: int, ending: Message) -> Message:
    """Return the last message of a job with its id: a client that has it has seen this end."""
    return ending._replace(id=f"{position}{ending.id}")


def position_of(last_id: str) -> str:
    """Return the cursor that the id of a message contains."""
    if match := _PART.fullmatch(last_id):
        return match["end"] or str(int(match["first"]) - 1)
    return last_id


def gap(start: log.Resumed, channel: str) -> Message:
    """Return the message that the client misses events, because they are no longer kept."""
    limits = {"gap_start": start.gap_start, "gap_end": start.gap_end}
    data: dict[str, Any] = {
        "channel": channel,
        **{name: times.format_timestamp(at) for name, at in limits.items() if at is not None},
    }
    return Message(str(start.position), "system.gap", data)


def shutdown(position: int | str) -> Message:
    """Return the message that the server stops, so that the client connects to another one."""
    data = {"reason": "The server stops.", "grace_period_ms": GRACE_MS}
    return Message(str(position), "server.shutdown", data)


def batch(rate: int) -> int:
    """Return how many events to read at a time: an event makes at most two messages."""
    return max(1, min(log.DEFAULT_LIMIT, rate // 2))


def longest() -> float:
    """Return the seconds after which a stream ends."""
    return of(EventSettings).http_event_stream_time.total_seconds()
