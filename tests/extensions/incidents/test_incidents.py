"""An incident has a row while it is open, and an hour after it, whoever looks."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import DatabaseError
from django.test import override_settings
from django.utils import timezone

from django_ojs.extension import Actor
from django_ojs.extensions.statistics import rollups
from django_ojs.finding import Finding
from django_ojs.http import metrics
from django_ojs.models import ActorKind, Incident, Queue
from django_ojs.models.worker import Directive
from django_ojs.operations import queues
from django_ojs.operations.access.operator import acting
from django_ojs.operations.maintenance import mode
from django_ojs.operations.workers import registry, removal
from django_ojs.reports import incidents
from django_ojs.reports.causes import with_causes
from tests.admin.test_navigation import links
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.factories import WORKER, WorkerFactory, push, push_many
from tests.http.api import Api, make_key
from tests.reading import read_only

pytestmark = pytest.mark.django_db

OVERVIEW = "/admin/django_ojs/overview/"
TEXT = "Queue mail is paused: 2 jobs wait."
IDENTITY = "queue_paused:mail"


@pytest.fixture
def paused(db: None) -> None:
    WorkerFactory(queues=("mail",))
    push_many(2, queue="mail")
    queues.pause("mail")


def row() -> Incident:
    return Incident.primary.get(pk=IDENTITY)


@pytest.mark.usefixtures("paused")
def test_the_overview_the_command_http_and_the_metrics_tell_the_same() -> None:
    assert TEXT in root().get(OVERVIEW).content.decode()
    (found,) = ojs("doctor", "--only", "overview", "--json").json["checks"][0]["findings"]
    answer = Api().get("/ojs/v1/health/findings").ok()
    assert answer == {"status": "degraded", "verdict": answer["verdict"], "findings": [found]}
    verdict = "Not working · 1 worker, no job is ready, no maintenance"
    for told in (answer["verdict"], ojs("doctor", "--only", "overview").out):
        assert verdict in re.sub("oldest ready job [^,]*", "no job is ready", told)
    assert (found["text"], found["severity"], found["identity"]) == (TEXT, "warning", IDENTITY)
    assert found["command"] == "ojs resume mail"
    line = f'ojs_incident{{identity="{IDENTITY}",kind="queue_paused",severity="warning"}} 1.0'
    assert line in metrics.render(None).decode()
    # Numbers that change are no new series.
    push(queue="mail")
    assert line in metrics.render(None).decode()
    assert "ojs_incident{" not in metrics.render({"other"}).decode()
    assert Incident.primary.count() == 1


@pytest.mark.usefixtures("paused")
@pytest.mark.parametrize(
    "look",
    [
        incidents.look_and_forget,
        lambda: root(f"root {time.monotonic_ns()}").get(OVERVIEW),
        lambda: ojs("doctor", "--only", "overview"),
        lambda: Api().get("/ojs/v1/health/findings"),
    ],
    ids=["maintenance", "page", "doctor", "health"],
)
def test_whoever_looks_writes_its_begin_and_its_end(look: Any) -> None:
    look()
    assert (row().ended_at, row().jobs, row().queue) == (None, 2, "mail")
    queues.resume("mail")
    look()
    assert row().ended_at is not None
    # It went on, when it comes back at once; later it is another one.
    began = timezone.now() - timedelta(hours=5)
    Incident.primary.update(since=began)
    queues.pause("mail")
    look()
    assert (row().ended_at, row().since) == (None, began)
    queues.resume("mail")
    look()
    Incident.primary.update(ended_at=timezone.now() - timedelta(minutes=2))
    queues.pause("mail")
    look()
    assert row().since > began
    # An hour after its end nothing is left.
    queues.resume("mail")
    look()
    Incident.primary.update(ended_at=timezone.now() - timedelta(minutes=61))
    look()
    assert not Incident.primary.exists()


@pytest.mark.usefixtures("paused")
def test_doctor_says_for_how_long_as_the_verdict_above_it() -> None:
    incidents.look()
    Incident.primary.update(since=timezone.now() - timedelta(hours=5, minutes=2, seconds=9))
    assert f"{TEXT} For 5 h 2 min." in ojs("doctor", "--only", "overview").out


@pytest.mark.usefixtures("paused")
def test_one_that_is_over_stays_in_grey_for_an_hour() -> None:
    client = root()
    grey = '<li class="ojs-dead"><span lang="en">' + TEXT
    assert grey not in client.get(OVERVIEW).content.decode()
    queues.resume("mail")
    assert grey in client.get(OVERVIEW).content.decode()
    ended = timezone.now() - timedelta(minutes=59)
    Incident.primary.update(ended_at=ended)
    rollups.add(rollups.COMPLETED, {("mail", "send"): 500, ("other", "send"): 7})
    rollups.flush()
    page = client.get(OVERVIEW).content.decode()
    assert re.search(grey + r".*ended .*, 500 runs completed since", page)
    Incident.primary.update(ended_at=ended - timedelta(minutes=2))
    assert grey not in client.get(OVERVIEW).content.decode()


@pytest.mark.usefixtures("paused")
def test_one_that_follows_from_another_has_not_ended() -> None:
    queues.resume("mail")
    removal.remove(WORKER)
    WorkerFactory(id="other")
    incidents.look()
    assert Incident.primary.get(pk="queue_unworked:mail").ended_at is None
    removal.remove("other")
    incidents.look()
    assert Incident.primary.get(pk="queue_unworked:mail").ended_at is None
    assert Incident.primary.get(pk="no_worker").ended_at is None


@pytest.mark.usefixtures("paused")
def test_a_scrape_and_another_page_tell_it_and_write_nothing() -> None:
    assert "ojs_incident{" in metrics.render(None).decode()
    assert "Overview 1 problem" in links(root(), "/admin/django_ojs/worker/")
    assert not Incident.primary.exists()


@pytest.mark.usefixtures("paused")
def test_where_nothing_can_be_written_each_tells_it_all_the_same() -> None:
    client, api = root(), Api()
    with read_only(keeps_incidents=True) as rejected:
        assert TEXT in client.get(OVERVIEW).content.decode()
        assert TEXT in ojs("doctor", "--only", "overview").out
        answer = api.get("/ojs/v1/health/findings").ok()
        assert [each["text"] for each in answer["findings"]] == [TEXT]
        assert rejected == []
    assert not Incident.primary.exists()


def test_a_key_of_some_queues_learns_that_nobody_takes_their_jobs() -> None:
    push(queue="mail")
    push(queue="other")
    assert [each.kind for each in incidents.look()] == ["no_worker"]
    (found,) = incidents.look({"mail"})
    assert (found.kind, found.queue) == ("queue_unworked", "mail")
    # It learns nothing of the workers and the jobs of others.
    keys = "django_ojs.http.authentication.ApiKeyAuthentication"
    with override_settings(OJS=settings.OJS | {"HTTP_AUTHENTICATION": [keys]}):
        answer = Api(make_key("read", queues=("mail",))).get("/ojs/v1/health/findings").ok()
    assert answer["verdict"] is None
    assert [each["kind"] for each in answer["findings"]] == ["queue_unworked"]


@pytest.mark.usefixtures("paused")
def test_who_has_looked_before_another_one_changes_nothing_of_it() -> None:
    incidents.look()
    before = incidents.rows()
    found = incidents.look()
    queues.resume("mail")
    incidents.look()
    ended = row().ended_at
    assert ended is not None
    incidents.write(before, found, now=timezone.now())
    assert row().ended_at == ended
    # What could not be read may last.
    queues.pause("mail")
    incidents.look()
    incidents.write(incidents.rows(), [], now=timezone.now(), are_complete=False)
    assert row().ended_at is None


@pytest.mark.usefixtures("paused")
def test_a_failed_write_leaves_the_answer_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise DatabaseError("permission denied")

    monkeypatch.setattr(type(Incident.primary.all()), "bulk_create", denied)
    assert TEXT in root().get(OVERVIEW).content.decode()
    assert [each.text for each in incidents.look()] == [TEXT]


def test_an_advice_is_no_incident() -> None:
    assert [each.severity for each in incidents.look()] == ["advice"]
    assert not Incident.primary.exists()
    assert Api().get("/ojs/v1/health/findings").ok()["status"] == "ok"
    # The overview is red without a worker, also where nothing waits.
    page = root().get(OVERVIEW).content.decode()
    assert '<li class="ojs-is-bad">No worker is running.' in page
    assert "<b>Not working</b> · no worker, no job is ready, no maintenance" in page
    push()
    assert [each.severity for each in incidents.look()] == ["critical"]
    assert Incident.primary.get().identity == "no_worker"


def causes() -> dict[str, str]:
    return {each.kind: each.cause for each in incidents.look()}


def test_an_incident_tells_which_operator_probably_caused_it() -> None:
    WorkerFactory(queues=("mail",))
    push_many(2, queue="mail")
    with acting(Actor(kind=ActorKind.USER, name="ann")):
        queues.configure("mail", {"backpressure": {"max_depth": 2}})
    full = dict.fromkeys(("warned_at", "near_full_at", "full_at"), timezone.now())
    Queue.primary.filter(pk="mail").update(**full)
    said = r"the configuration of mail was changed \(backpressure\) by ann at \d\d:\d\d:\d\d\."
    assert re.fullmatch(f"Probably because {said}", causes()["queue_full"])
    with acting(Actor(kind=ActorKind.API_KEY, name="deploy")):
        mode.enable()
        registry.direct(WORKER, Directive.QUIET)
    assert re.fullmatch(
        r"It was switched on by deploy at \d\d:\d\d:\d\d\.", causes()["maintenance"]
    )
    removal.remove(WORKER)
    said = rf"Probably because the worker {WORKER} was told to quiet by deploy at .*"
    assert re.fullmatch(said, causes()["no_worker"])


def test_without_its_events_a_change_of_all_queues_is_told_by_the_audit_trail() -> None:
    WorkerFactory(queues=("mail",))
    push_many(2, queue="mail")
    given = settings.OJS | {"WARN_OLDEST_AVAILABLE": 0.001, "KEEP_EVENTS": []}
    with override_settings(OJS=given), acting(Actor(kind=ActorKind.USER, name="ann")):
        queues.configure_default({"concurrency": 1})
        (cause,) = [each.cause for each in incidents.look() if each.kind == "queue_late"]
    said = r"Probably because the configuration of all queues was changed \(concurrency\) by ann .*"
    assert re.fullmatch(said, cause)


def test_a_change_of_its_queue_is_no_cause_of_the_failures_of_a_type() -> None:
    queues.configure("mail", {"backpressure": {"max_depth": 2}})
    values = {"queue": "mail", "text": "", "why": "", "cure": "", "since": timezone.now()}
    fails = Finding(kind="type_failing", type="send", **values)
    late, fails = with_causes([Finding(kind="queue_late", **values), fails])
    assert late.cause.startswith("Probably because the configuration of mail was changed")
    assert fails.cause == ""
