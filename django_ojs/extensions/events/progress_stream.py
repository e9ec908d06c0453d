"""The progress of a job as server-sent events, which end with the job (ojs-progress §7.2)."""

import time
from collections.abc import Collection
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, InterfaceError

from django_ojs.extensions.events import event_messages
from django_ojs.extensions.events.event_messages import Message, finished_ms
from django_ojs.extensions.events.event_stream import HEARTBEAT, RETRY, Steps, Wait, render, wait
from django_ojs.extensions.events.operations.feed import feed
from django_ojs.models import Job
from django_ojs.spec.progress import shown
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.times import format_timestamp

#: Seconds between two queries: a worker reports about once in a second.
CHECK: Final = 1.0

_ENDS: Final = {
    State.COMPLETED: "completed",
    State.DISCARDED: "failed",
    State.CANCELLED: "cancelled",
}


def progress_of(key: UUID, within: Collection[str] | None, last_id: str) -> Steps:
    """Yield the progress of a job whenever it has changed, and its end.

    It is read from the job, so it does not depend on recorded events. `last_id` is the id of the
    last message that the client got.
    """
    end = time.monotonic() + event_messages.longest()
    yield f"retry: {RETRY}\n\n"
    last_sent = time.monotonic()
    while (left := end - time.monotonic()) > 0:
        if feed.is_stopping:
            yield render(event_messages.shutdown(last_id))
            return
        reading = feed.call(partial(_read, key, within))
        yield Wait(reading)
        try:
            job = reading.result()
        except (DatabaseError, InterfaceError):
            return
        if job is None:
            # The job was deleted, or is in a queue that the caller may not read.
            return
        message = _message(job)
        if message is not None and message.id != last_id:
            yield render(message)
            last_sent, last_id = time.monotonic(), message.id
        if job.state in TERMINAL:
            return
        if time.monotonic() - last_sent >= HEARTBEAT:
            last_sent = time.monotonic()
            yield ":heartbeat\n\n"
        yield from wait(feed.stopping(), min(CHECK, left))


def _read(key: UUID, within: Collection[str] | None) -> Job | None:
    which = Job.primary.filter(pk=key)
    if within is not None:
        which = which.filter(Job.in_queues(sorted(within)))
    return which.only("state", "progress", "run", "attempt", "finished_at").first()


def _message(job: Job) -> Message | None:
    """Return the message with the current progress of a job, or None if it has none."""
    state = State(job.state)
    found = shown(job.progress, run=job.run, attempt=job.attempt, state=state)
    data: dict[str, Any] = {"progress": found.progress}
    if state in TERMINAL:
        assert job.finished_at is not None
        data |= {"state": state.value, "updated_at": format_timestamp(job.finished_at)}
        return Message(f"0-{finished_ms(job)}", _ENDS[state], data)
    if found.updated_at is None:
        return None
    data |= {"data": found.data, "updated_at": found.updated_at}
    return Message(f"{job.run}/{found.updated_at}", "progress", data)
