"""Backpressure over HTTP: fill a bounded queue, be rejected, drain it, and enqueue again."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django_ojs.extensions.backpressure.operations import pressure_monitor, rejection_counts
from django_ojs.extensions.events.models import Event
from django_ojs.models import Job, Queue
from django_ojs.operations import queues
from django_ojs.operations.access import api_keys
from django_ojs.operations.ack import ack
from django_ojs.operations.fetch import fetch
from django_ojs.spec.scopes import Scope
from example_project.site_server import Site

QUEUE, TYPE = "demo-bounded", "demo.greeting"
MAX_DEPTH, WARNING_THRESHOLD = 20, 0.8
_SHOWN = ("Retry-After", "X-OJS-Queue-Depth", "X-OJS-Queue-Bound", "X-OJS-Queue-Pressure")
_EVENTS = "backpressure."
_EXPECTED = {"warning", "rejected", "cleared"}
#: Seconds until an event is late.
_LATE = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A response: status, the headers that are shown, the body."""

    status: int
    headers: dict[str, str]
    body: dict[str, Any]


def show(write: Callable[[str], object], *, logs: Path) -> list[str]:
    """Run the demonstration, print each step with `write`, and return the broken promises."""
    delete_data()
    queues.configure(
        QUEUE, {"backpressure": {"max_depth": MAX_DEPTH, "warning_threshold": WARNING_THRESHOLD}}
    )
    try:
        with _client(logs) as push:
            return _run(write, push)
    finally:
        delete_data()


def delete_data() -> None:
    """Delete the jobs, the events and the configuration of the queue."""
    Job.objects.filter(queue=QUEUE).delete()
    Event.objects.filter(queue=QUEUE, type__startswith=_EVENTS).delete()
    queues.configure(QUEUE, {"backpressure": None})
    Queue.objects.filter(pk=QUEUE).delete()


def _run(write: Callable[[str], object], push: Callable[[int], Response]) -> list[str]:
    write(f"a queue with a bound of {MAX_DEPTH} jobs, over HTTP:")
    responses = [push(number) for number in range(MAX_DEPTH)]
    warned = next((n for n, response in enumerate(responses, 1) if len(response.headers) > 1), None)
    if warned is not None:
        write(f"  job {warned} is stored with a warning: {_headers(responses[warned - 1])}")
    full = push(MAX_DEPTH)
    write(f"  job {MAX_DEPTH + 1}: HTTP {full.status}  {_headers(full)}")
    write(f"  {json.dumps({'error': {**full.body.get('error', {}), 'details': '...'}})}")
    for job in fetch([QUEUE], count=MAX_DEPTH // 2):
        ack(job.pk)
    pressure_monitor.check_all()  # As a worker does once a second.
    again = push(MAX_DEPTH)
    write(f"  half of the jobs completed; the same job again: HTTP {again.status}")
    rejection_counts.recorder.reset()
    events = _wait_for_events()
    write(f"  events: {', '.join(events)}")
    return _problems(responses, full, again, events)


def _wait_for_events() -> list[str]:
    """Return the events of the queue, once all are there or they are late."""
    end = time.monotonic() + _LATE
    while True:
        stored = Event.objects.filter(queue=QUEUE, type__startswith=_EVENTS).order_by("id")
        events = [event.type.removeprefix(_EVENTS) for event in stored]
        # The site records its rejections in the background.
        if {*events} >= _EXPECTED or time.monotonic() > end:
            return events
        time.sleep(0.1)


def _problems(
    responses: list[Response], full: Response, again: Response, events: list[str]
) -> list[str]:
    promises = {
        "a queue below its bound rejected a job": all(
            response.status == 201 for response in responses
        ),
        "the response of a full queue was not 429 QUEUE_FULL": full.status == 429
        and full.body["error"]["code"] == "QUEUE_FULL",
        "a drained queue rejected a job": again.status == 201,
        "the events are not warning, rejected and cleared": {*events} == _EXPECTED,
    }
    return [problem for problem, kept in promises.items() if not kept]


def _headers(response: Response) -> str:
    return "  ".join(f"{name}: {value}" for name, value in response.headers.items())


@contextmanager
def _client(logs: Path) -> Iterator[Callable[[int], Response]]:
    key, secret = api_keys.create(
        name="demo, full queue",
        scopes=[Scope.PRODUCER],
        queues=[QUEUE],
        expires=timedelta(hours=1),
    )

    def push(number: int) -> Response:
        job = {"type": TYPE, "args": [number], "options": {"queue": QUEUE}}
        request = urllib.request.Request(
            f"{site.url}/ojs/v1/jobs",
            json.dumps(job).encode(),
            {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
        )
        try:
            received = urllib.request.urlopen(request, timeout=120)
        except urllib.error.HTTPError as error:
            received = error
        with received:
            headers = {name: received.headers[name] for name in _SHOWN if name in received.headers}
            return Response(status=received.status, headers=headers, body=json.load(received))

    try:
        with Site(0, log=logs / "full_queue.log") as site:
            yield push
    finally:
        api_keys.revoke(key.prefix)
