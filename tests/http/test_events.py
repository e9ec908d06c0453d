"""`GET /events` over HTTP (ojs-events §6.4)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.test import override_settings

from django_ojs.extension import Actor
from django_ojs.hooks import publish
from django_ojs.models import ActorKind
from django_ojs.operations import fetch, queues
from django_ojs.operations.access.operator import acting
from django_ojs.spec.published import EventType, of_queue
from tests.cases import together
from tests.factories import WorkerFactory, push
from tests.http.api import Api, make_key

pytestmark = pytest.mark.django_db

api = Api()


def happen(name: str = "q") -> None:
    publish(EventType.QUEUE_PAUSED, of_queue, name)


def read(query: str = "", by: Api = api) -> Any:
    return by.get(f"events{query}").ok()


def subjects(body: Any) -> list[str]:
    return [event["subject"] for event in body["events"]]


def test_an_empty_page_has_a_cursor_and_no_more() -> None:
    assert read() == {"events": [], "cursor": "0", "has_more": False}


@pytest.mark.requirement("EV-01", "EV-02", "EV-S01")
def test_an_event_is_the_envelope_of_the_document() -> None:
    with acting(Actor(kind=ActorKind.USER, name="user:ops")):
        queues.pause("email")
    queues.resume("email")
    event, other = read()["events"]
    assert event["id"] != other["id"]
    prefix, _, key = event.pop("id").partition("_")
    assert (prefix, UUID(key).version) == ("evt", 7)
    assert event.pop("time").endswith("Z")
    assert event == {
        "specversion": "1.0",
        "type": "queue.paused",
        "source": "ojs://django_ojs/api",
        "subject": "email",
        "data": {"queue": "email", "paused_by": "user:ops"},
    }


def test_pausing_over_http_says_who_did_it() -> None:
    api.post("queues/email/pause").ok()
    api.post("queues/email/resume").ok()
    paused, resumed = read()["events"]
    assert paused["data"]["paused_by"] == resumed["data"]["resumed_by"] == "anybody"


@pytest.mark.both
@pytest.mark.requirement("EV-S06")
def test_the_cursor_of_each_page_leads_to_the_next() -> None:
    for name in "abc":
        happen(name)
    first = read("?limit=2")
    assert (subjects(first), first["has_more"]) == (["a", "b"], True)
    rest = read(f"?limit=2&after={first['cursor']}")
    assert (subjects(rest), rest["has_more"]) == (["c"], False)
    assert subjects(read(f"?after={first['events'][0]['id']}")) == ["b", "c"]


@pytest.mark.both
@pytest.mark.requirement("EV-S05")
@override_settings(OJS={**settings.OJS, "KEEP_EVENTS": ["*"]})
def test_filters_take_commas_repetition_and_patterns() -> None:
    push(queue="a", type="one.job")
    push(queue="b", type="two.job")
    queues.pause("a")
    WorkerFactory(id="w")
    assert len(read("?types=job.*,worker.started")["events"]) == 3
    assert len(read("?types=job.*&types=worker.started")["events"]) == 3
    assert len(read("?types=*&queues=a,b")["events"]) == 3
    assert len(read("?queues=b&queues=c")["events"]) == 1
    assert len(read("?job_types=one.job")["events"]) == 1
    assert len(read("?types=&queues=&job_types=&after=&limit=")["events"]) == 5
    assert read("?types=job.exploded")["events"] == []
    fetch.fetch(["b"], worker_id="w/1")
    for sources, number in (
        ("ojs://django_ojs/workers/w%252F1", 1),
        ("ojs://django_ojs/workers/*", 3),
        ("ojs://django_ojs/api", 3),
        ("ojs://django_ojs/cron,ojs://django_ojs/scheduler", 0),
        ("ojs://django_ojs/cron&sources=ojs://django_ojs/api", 3),
        ("ojs://django_ojs/*", 6),
        ("*", 6),
        ("ojs://another/*", 0),
        ("ojs://django_ojs/workers/%00", 0),
        ("", 6),
    ):
        found = read(f"?sources={sources}")["events"]
        assert len(found) == number, sources
        if sources.endswith("api"):
            assert {event["source"] for event in found} == {"ojs://django_ojs/api"}
    for accept in (
        "application/json, text/event-stream",
        "application/openjobspec+json;q=1,text/event-stream",
        "text/event-stream;q=0, */*",
        "text/event-stream; q=0.000",
        "text/event-stream;charset=utf-8;q=0",
    ):
        assert "events" in api.get("events", headers={"Accept": accept}).ok()
    stream = api.get("events?sources=*", headers={"Accept": "text/event-stream"})
    stream.error(400, "invalid_request", field="sources")
    # However many there are, it is one condition: SQLite rejects a thousand.
    assert len(read(f"?sources={','.join(['*'] * 2000)}")["events"]) == 6
    many = [f"ojs://django_ojs/workers/{number}" for number in range(2000)]
    assert read(f"?sources={','.join(many)}")["events"] == []


@pytest.mark.once
@together(
    ("query", "field"),
    [
        ("types=job", "types"),
        ("types=job.*,Job.failed", "types"),
        ("types=%00", "types"),
        ("queues=A", "queues"),
        ("queues=a%00b", "queues"),
        ("job_types=A", "job_types"),
        ("job_types=a%00b", "job_types"),
        ("sources=ojs://*/cron", "sources"),
        ("sources=ojs://django_ojs/workers/w*", "sources"),
        ("after=x", "after"),
        ("after=-1", "after"),
        ("after=evt_019539a4-b68c-7def-8000-aabbccddeeff", "after"),
        ("after=ffffffff-ffff-7fff-8fff-ffffffffffff", "after"),
        ("after=00000000-0000-7000-8000-000000000000", "after"),
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
    ],
    undo=True,
)
def test_what_is_ill_formed_is_rejected_by_name(query: str, field: str) -> None:
    happen()
    error = api.get(f"events?{query}").error(400, "invalid_request")
    assert field in error["message"]


def test_a_limit_above_the_maximum_is_the_maximum() -> None:
    happen()
    assert len(read("?limit=99999999999")["events"]) == 1


@override_settings(OJS={})
def test_a_key_for_some_queues_sees_their_events_alone() -> None:
    happen("mine")
    happen("other")
    WorkerFactory(id="w")
    everything, some = Api(make_key("operator")), Api(make_key("operator", queues=("mine",)))
    assert subjects(read(by=everything)) == ["mine", "other", "w"]
    assert subjects(read(by=some)) == ["mine"]
    assert subjects(read("?types=worker.*", by=some)) == []
    assert subjects(read("?queues=mine", by=some)) == ["mine"]
    some.get("events?queues=other").error(403, "PERMISSION_DENIED")
    some.get("events?queues=mine,other").error(403, "PERMISSION_DENIED")


@override_settings(OJS={})
def test_events_are_for_those_who_may_look_and_not_for_everybody() -> None:
    Api().get("events").error(401, "UNAUTHENTICATED")
    assert read(by=Api(make_key("read")))["events"] == []


def test_other_methods_are_not_allowed() -> None:
    assert api.post("events", {}).status == 405
