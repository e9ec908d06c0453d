"""The errors of operations that the pages repeat, in the language of the reader."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.operations import queues
from django_ojs.operations.cancel import cancel
from django_ojs.operations.workflows import cancellation as workflow_cancellation
from tests import factories
from tests.admin import test_cron_jobs
from tests.admin.test_pages import BASE
from tests.admin.users import root
from tests.command_line.run import ojs as command
from tests.operations.cron.scenes import register

# A full queue is counted in a transaction of its own.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

CRON = test_cron_jobs.FORM
LIMITS = {"concurrency": "", "rate": "", "rate_period": "", "throttle": "", "throttle_period": ""}
KEY = {"name": "billing", "scopes": ["producer"], "queues": "", "expires_at_0": ""}
HOOK = {"url": "https://hooks.example.com/x", "events": "job.*", "active": "on"}


@pytest.fixture
def in_german() -> Iterator[None]:
    with override_settings(LANGUAGE_CODE="de"):
        yield


def shown(response: HttpResponse) -> str:
    text = html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode()))
    return " ".join(text.split())


class Visit:
    """Someone who reads German, and what was not said to them in it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.wrong: list[str] = []

    def __call__(self, address: str, body: dict[str, Any], expected: str) -> None:
        response = self._client.post(f"{BASE}{address}", body, follow=True)
        assert response.status_code == 200
        if expected not in shown(response):
            place = response.content.decode()
            errors = re.findall(r"(?s)(?:errorlist|messagelist|ojs-error)[^>]*>(.*?)</[uod]", place)
            self.wrong.append(f"{address} {body}: {expected!r} is not in {errors}")


@pytest.mark.usefixtures("in_german")
def test_an_error_of_an_operation_is_shown_in_the_language_of_the_page() -> None:
    visit = Visit(root())
    for name in ("mail", "draining", "full", "old"):
        factories.push(queue=name)
    queues.drain("draining")
    queues.configure("full", {"backpressure": {"max_depth": 1}})
    new = {"type": "other.go", "args": "[]"}

    visit("job/enqueue/", new | {"queue": "draining"}, "Queue draining läuft aus: Sie nimmt keine")
    visit("job/enqueue/", new | {"queue": "draining"}, "In eine andere Queue einreihen oder diese")
    visit("job/enqueue/", new | {"queue": "full"}, "Queue full ist voll: 1 von 1")
    visit("job/enqueue/", new | {"queue": "No Queue"}, "queue muss aus a-z, 0-9, - und Punkten")
    visit("job/enqueue/", {"type": "Not A Type"}, "type muss aus Segmenten aus a-z")
    visit("job/enqueue/", new | {"args": "[1e999]"}, "[0] ist NaN, unendlich oder zu groß")
    visit("job/enqueue/", new | {"args": '["\\ud800"]'}, "[0] enthält ein einzelnes Surrogat")
    visit("job/enqueue/", new | {"args": "[9007199254740993]"}, "jenseits von ±(2**53-1)")

    register("taken")
    in_code = test_cron_jobs.in_code()
    create = "cronjob/create/"
    visit(create, CRON | {"name": "taken"}, "name gehört bereits einem anderen Cron-Job.")
    visit(create, CRON | {"name": "Not A Name"}, "name muss aus a-z, 0-9, - und Punkten")
    visit(create, CRON | {"type": "Not A Type"}, "type muss aus Segmenten")
    visit(create, CRON | {"args": "{"}, "das Dokument ist kein JSON: ")
    visit(create, CRON | {"args": '{"a": 1}'}, "args muss ein Array sein")
    visit(create, CRON | {"timezone": "EST"}, "timezone ist ungültig: eine Abkürzung kann")
    visit(create, CRON | {"timezone": "Europe/Pariss"}, "War Europe/Paris gemeint?")
    for expression, problem in (
        ("0 25 * * *", "Stunde: '25' liegt außerhalb des Bereichs. Erlaubt: 0 bis 23."),
        ("0 0 * FOO *", "Monat: 'FOO' ist kein Wert. Erlaubt: 1 bis 12 oder JAN bis DEC."),
        ("0 0 31 2 *", "Tag des Monats: keiner der gewählten Monate hat einen solchen Tag"),
        ("*/99 * * * *", "Minute: die Schrittweite '99' liegt außerhalb des Bereichs."),
        ("5-1 * * * *", "Minute: der Bereich 5-1 endet, bevor er beginnt."),
        ("1,, * * * *", "Minute: ein Wert der Liste fehlt."),
        ("* *", "Ausdruck: die Anzahl der Felder ist 2."),
        ("@dayly", "@dayly ist kein Alias. War @daily gemeint?"),
        ("@every x", "Intervall: eine Dauer aus Stunden, Minuten und Sekunden schreiben"),
    ):
        visit(create, CRON | {"expression": expression}, problem)
    removal = {"key": in_code.pk, "confirmed": "1"}
    visit("cronjob/action/remove/", removal, "im Code deklariert")
    register("drained", template={"options": {"queue": "draining"}})
    rejected = "hat keinen Job eingereiht (rejected). Queue draining läuft aus: Sie nimmt"
    visit("cronjob/action/run/", {"key": "drained", "confirmed": "1"}, rejected)

    visit("webhook/add/", HOOK | {"url": "http://a.example"}, "url muss mit https:// beginnen.")
    visit("webhook/add/", HOOK | {"events": "nothing.here"}, "Kein Ereignis wird aufgezeichnet")
    visit("apikey/add/", KEY | {"queues": "Not-A-Queue"}, "queue muss aus a-z, 0-9")
    new_key = LIMITS | {"key": "acme", "override_until": ""}
    visit("limitkey/add/", new_key | {"key": "-!"}, "key muss aus Buchstaben, Ziffern")
    none = {"rate": "0", "rate_period": "PT1M"}
    visit("limitkey/add/", new_key | none, "eine ganze Zahl von 1 bis 1.000.000.000")
    rate = {"rate": "5", "rate_period": "PT0S"}
    visit("limitkey/add/", new_key | rate, "muss eine Dauer nach ISO 8601 über null sein")
    past = {"concurrency": "1", "override_until": "2020-01-01 00:00"}
    visit("limitkey/add/", new_key | past, "Abweichung bis muss in der Zukunft liegen")

    done = factories.push(queue="old")
    cancel(done.id)
    running = factories.active("w-1", queue="runs")
    factories.worker("w-1")
    for action, key, said in (
        ("delete", running.id, "zum Löschen muss er cancelled oder completed oder discarded sein"),
        ("retry", running.id, "Der Job ist active; für"),
        ("run-again", running.id, "nur ein beendeter Job kann erneut ausgeführt werden"),
    ):
        visit(f"job/action/{action}/", {"key": str(key), "confirmed": "1"}, said)
    visit(
        "bulkoperation/create/retry/",
        {"q": "state:completed"},
        "Retry braucht Jobs, die discarded sind.",
    )
    visit("worker/action/deregister/", {"key": "w-1", "confirmed": "1"}, "sendet noch seine")
    workflow = ojs.chain(ojs.request("other.go", [])).enqueue()
    workflow_cancellation.cancel(workflow.id)
    ended = {"key": str(workflow.id), "confirmed": "1"}
    visit("workflow/action/cancel/", ended, "Der Workflow ist beendet: Er ist cancelled.")

    assert not visit.wrong, "\n".join(visit.wrong)


@pytest.mark.usefixtures("in_german")
def test_a_command_says_it_in_the_language_of_the_site_and_to_programs_in_english() -> None:
    register("drained", template={"options": {"queue": "draining"}})
    factories.push(queue="draining")
    queues.drain("draining")

    assert "id muss eine UUIDv7 in Kleinbuchstaben" in command("show", "none").err
    assert "id must be a UUIDv7 in lowercase" in command("show", "none", "--json").err
    rejected = command("cron", "run", "drained")
    assert "Queue draining läuft aus: Sie nimmt keine Jobs an" in rejected.err
    error = command("cron", "run", "drained", "--json").json["cron_jobs"]["drained"]["error"]
    assert error.endswith("queue draining is draining: it accepts no jobs")
