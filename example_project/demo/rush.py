"""A queue fills, refuses, drains and clears, as a client sees it over HTTP."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django_ojs.models import Event, Job, Queue
from django_ojs.operations import queues
from django_ojs.operations.access import api_keys
from django_ojs.operations.ack import ack
from django_ojs.operations.backpressure import pressure_monitor, rejections
from django_ojs.operations.fetch import fetch
from django_ojs.spec.scopes import Scope
from example_project.site_server import Site

QUEUE, TYPE = "rush", "demo.greeting"
ROOM, WARNING = 20, 0.8
_SHOWN = ("Retry-After", "X-OJS-Queue-Depth", "X-OJS-Queue-Bound", "X-OJS-Queue-Pressure")
_EVENTS = "backpressure."


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back: status, the headers that are shown, the body."""

    status: int
    headers: dict[str, str]
    body: dict[str, Any]


def show(say: Callable[[str], object], *, logs: Path) -> list[str]:
    """Play it, and say what happens. Return what was not as promised."""
    wipe()
    queues.configure(QUEUE, {"backpressure": {"max_depth": ROOM, "warning_threshold": WARNING}})
    try:
        with _client(logs) as push:
            return _play(say, push)
    finally:
        wipe()


def wipe() -> None:
    """Delete what it leaves."""
    Job.objects.filter(queue=QUEUE).delete()
    Event.objects.filter(queue=QUEUE, type__startswith=_EVENTS).delete()
    queues.configure(QUEUE, {"backpressure": None})
    Queue.objects.filter(pk=QUEUE).delete()


def _play(say: Callable[[str], object], push: Callable[[int], Answer]) -> list[str]:
    say(f"a queue with room for {ROOM} jobs, over HTTP:")
    answers = [push(number) for number in range(ROOM)]
    warned = next((n for n, answer in enumerate(answers, 1) if len(answer.headers) > 1), None)
    if warned is not None:
        say(f"  job {warned} is stored with a warning: {_headers(answers[warned - 1])}")
    full = push(ROOM)
    say(f"  job {ROOM + 1}: HTTP {full.status}  {_headers(full)}")
    say(f"  {json.dumps({'error': {**full.body.get('error', {}), 'details': '...'}})}")
    for job in fetch([QUEUE], count=ROOM // 2):
        ack(job.pk)
    pressure_monitor.check_all()  # As a worker does once a second.
    again = push(ROOM)
    say(f"  half of them worked off; the same job again: HTTP {again.status}")
    rejections.recorder.reset()
    told = Event.objects.filter(queue=QUEUE, type__startswith=_EVENTS).order_by("id")
    events = [event.type.removeprefix(_EVENTS) for event in told]
    say(f"  events: {', '.join(events)}")
    return _problems(answers, full, again, events)


def _problems(answers: list[Answer], full: Answer, again: Answer, events: list[str]) -> list[str]:
    promises = {
        "a queue with room refused a job": all(answer.status == 201 for answer in answers),
        "a full queue did not answer 429 QUEUE_FULL": full.status == 429
        and full.body["error"]["code"] == "QUEUE_FULL",
        "a queue that was worked off refused a job": again.status == 201,
        "the events are not warning, rejected and cleared": {*events}
        == {"warning", "rejected", "cleared"},
    }
    return [problem for problem, kept in promises.items() if not kept]


def _headers(answer: Answer) -> str:
    return "  ".join(f"{name}: {value}" for name, value in answer.headers.items())


@contextmanager
def _client(logs: Path) -> Iterator[Callable[[int], Answer]]:
    key, secret = api_keys.create(
        name="demo, a rush",
        scopes=[Scope.PRODUCER],
        queues=[QUEUE],
        expires=timedelta(hours=1),
        by="manage.py demo",
    )

    def push(number: int) -> Answer:
        job = {"type": TYPE, "args": [number], "options": {"queue": QUEUE}}
        request = urllib.request.Request(
            f"{site.url}/ojs/v1/jobs",
            json.dumps(job).encode(),
            {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
        )
        try:
            came = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as refused:
            came = refused
        with came:
            headers = {name: came.headers[name] for name in _SHOWN if name in came.headers}
            return Answer(status=came.status, headers=headers, body=json.load(came))

    try:
        with Site(0, log=logs / "rush.log") as site:
            yield push
    finally:
        api_keys.revoke(key.prefix, by="manage.py demo")
