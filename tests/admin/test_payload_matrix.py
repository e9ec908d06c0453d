"""What a job carries beside its arguments: who sees it, in the admin and on the command line.

That are the results of the steps before it, attributes of its client that have no field, and the
arguments in its limit key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.enqueue_options import read_options
from django_ojs.extensions.limits import findings as limit_findings
from django_ojs.extensions.limits import limit_journal, limit_keys
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.handler_registry import registry
from django_ojs.handlers import Handler, parameters_of
from django_ojs.keyword_handlers import KeywordHandler
from django_ojs.models import Job
from django_ojs.operations import fetch
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.redaction import HIDDEN, redacted_key
from django_ojs.operations.jobs.search_hints import members_with
from tests.admin.test_pages import BASE
from tests.admin.users import at, root, staff
from tests.command_line.run import ojs as command
from tests.factories import WORKER, WorkerFactory, claim, jobs, push
from tests.operations.cron.scenes import register
from tests.operations.workflows.scenes import chain, create, finish

pytestmark = [pytest.mark.django_db, pytest.mark.once]

#: A result, an attribute without a field, and an argument in a limit key.
RESULT, ATTRIBUTE, ARGUMENT = "result-4711", "attribute-4711", "argument-4711"
KEY = f"cust:{ARGUMENT}"


@pytest.fixture
def step() -> Job:
    """The second step of a chain."""
    create(chain({"type": "test.first", "args": []}, {"type": "test.second", "args": []}))
    finish("test.first", {"password": RESULT})
    return jobs().get(type="test.second")


@pytest.fixture
def foreign() -> Job:
    """A job with attributes that no field is for."""
    return push(extra={"x_note": {"password": ATTRIBUTE}})


@pytest.fixture
def limited() -> Iterator[Job]:
    """A job whose limit key has its argument."""

    @ojs.job("test.limited", rate_limit=ojs.RateLimitPolicy(key="cust:{password}", concurrency=1))
    def handler(password: str) -> None: ...

    yield jobs().get(pk=handler.enqueue(ARGUMENT).id)
    registry.remove("test.limited")


def page(job: Job, *, payload: bool) -> str:
    """Return the page of a job for a user with or without the permission to see payloads."""
    permissions = ("view_job", *(["view_payload_job"] if payload else []))
    client = staff(*permissions, name=f"{job.pk} {payload}")
    response = client.get(f"{BASE}job/{job.pk}/change/")
    assert response.status_code == 200
    return unescape(response.content.decode())


def carried(name: str, request: pytest.FixtureRequest) -> tuple[Job, str]:
    secrets = {"step": RESULT, "foreign": ATTRIBUTE, "limited": KEY}
    return request.getfixturevalue(name), secrets[name]


@pytest.mark.parametrize("name", ["step", "foreign", "limited"])
@pytest.mark.parametrize("redact", [[], ["other"], ["Password"], ["*"]], ids=str)
@pytest.mark.parametrize("payload", [True, False], ids=["payload", "none"])
def test_it_is_shown_to_those_who_may_see_it_and_not_redacted(
    name: str, redact: list[str], payload: bool, request: pytest.FixtureRequest
) -> None:
    job, secret = carried(name, request)
    is_visible = payload and redact in ([], ["other"])
    with override_settings(OJS={"ADMIN_REDACT": redact}):
        assert (secret in page(job, payload=payload)) is is_visible
        more = ["--args"] if payload else []
        as_json = command("show", job.pk, "--json", *more)
        assert (secret in as_json.out) is is_visible
        # A limit key is in the text only where the job waits for it.
        if name != "limited":
            assert (secret in command("show", job.pk, *more).out) is is_visible
    assert as_json.json["id"] == str(job.pk)
    assert as_json.code == 0


@pytest.fixture
def charge() -> Iterator[Job]:
    """A running job whose argument has the name of a parameter, and none where it is stored."""

    @ojs.job("test.charge", queue="mail")
    def handler(order: int, card_number: str) -> None:
        pass

    claim(jobs().get(pk=handler.enqueue(7, card_number="4111-secret").id), "web-1")
    yield jobs().get()
    registry.remove("test.charge")


def test_an_argument_is_hidden_by_the_name_of_its_parameter(charge: Job) -> None:
    register("charging", template={"type": "test.charge", "args": [7, "4111-secret"]})
    WorkerFactory(id="web-1", queues=("mail",))
    client = root()
    pages = (
        *(f"job/{charge.pk}/change/", "job/", "queue/mail/change/", "worker/web-1/change/"),
        *("cronjob/charging/change/", "cronjob/charging/edit/"),
    )
    shown = [page for page in pages if "4111-secret" in client.get(at(page)).content.decode()]
    assert shown == list(pages)
    with override_settings(OJS={"ADMIN_REDACT": ["Card_Number"]}):
        for address in pages:
            assert "4111-secret" not in client.get(at(address)).content.decode(), address
        for more in ((), ("--json",)):
            shown_args = command("show", charge.pk, "--args", *more).out
            assert "4111-secret" not in shown_args
            assert HIDDEN in shown_args or ascii(HIDDEN).strip("'") in shown_args
        for search in ("args.1:4111-secret", "args:4111-secret"):
            found = client.get(at("job/"), {"q": f"type:test.charge {search}"}).content.decode()
            assert "so it cannot be searched" in found, search
        for search in ("args.0:7 type:test.charge", "type:other.go args:7"):
            found = client.get(at("job/"), {"q": search}).content.decode()
            assert "so it cannot be searched" not in found, search


def test_no_search_looks_into_a_hidden_argument() -> None:
    @ojs.job("test.charge")
    def handler(order: dict[str, Any], card: dict[str, Any]) -> None: ...

    client, search = root(), "type:test.charge args.number:4111"
    try:
        handler.enqueue({"id": 7}, {"number": "4111", "owner": {"name": "4112"}})
        typed = "type:test.charge 4112"
        assert "args.owner.name:4112" in client.get(at("job/"), {"q": typed}).content.decode()
        with override_settings(OJS={"ADMIN_REDACT": ["card"]}):
            for hidden in (search, "args.number:4111", "args.1.number:4111"):
                found = unescape(client.get(at("job/"), {"q": hidden}).content.decode())
                assert "Name the index of another argument, such as args.0" in found, hidden
                refused = command("jobs", hidden)
                assert "so it cannot be searched" in refused.err, hidden
            assert members_with("4112", JobFilter(type="test.charge"), parameters_of) == []
            for allowed in ("args.0.id:7", "args.number:4111 type:other.go"):
                found = client.get(at("job/"), {"q": allowed}).content.decode()
                assert "so it cannot be searched" not in found, allowed
    finally:
        registry.remove("test.charge")


def in_order(order: int, *card_numbers: str) -> None: ...


def with_keywords(order: int, *card_numbers: str, currency: str = "EUR", **more: str) -> None: ...


class Keywords(KeywordHandler):
    takes_context = False


@pytest.mark.parametrize(
    ("kind", "function"), [(Handler, in_order), (Keywords, in_order), (Keywords, with_keywords)]
)
def test_all_values_of_a_hidden_parameter_that_takes_several_are_hidden(
    kind: type[Handler[..., Any]], function: Any
) -> None:
    handler = kind(function, "test.charge", atomic=False, options=read_options({}))
    registry.add(handler)
    try:
        job = jobs().get(pk=handler.enqueue(7, "4111-a", "4222-b").id)
        other = jobs().get(pk=handler.enqueue(8).id)
        register("charging", template={"type": "test.charge", "args": job.args})
        client = root()
        pages = (f"job/{job.pk}/change/", "job/", "cronjob/charging/change/")
        with override_settings(OJS={"ADMIN_REDACT": ["card_numbers"]}):
            for address in pages:
                shown = client.get(at(address)).content.decode()
                assert not {"4111-a", "4222-b"} & set(re.findall(r"[\w-]+", shown)), address
            for more in ((), ("--json",)):
                shown = command("show", job.pk, "--args", *more).out
                assert not {"4111-a", "4222-b"} & set(re.findall(r"[\w-]+", shown))
            kept = command("show", job.pk, "--args", "--json").json["args"]
            assert kept[:3] == [7, HIDDEN, HIDDEN]
            # What comes after them is shown.
            assert kept[3:] == job.args[3:]
            assert command("show", other.pk, "--args", "--json").json["args"] == other.args
            for search in ("args.1:4111-a", "args.2:4222-b", "args.002:4222-b", "args:4222-b"):
                found = client.get(at("job/"), {"q": search}).content.decode()
                assert "so it cannot be searched" in found, search
            found = client.get(at("job/"), {"q": "args.0:7"}).content.decode()
            assert f"{job.pk}/change/" in found
    finally:
        registry.remove("test.charge")


def test_what_decides_how_a_job_runs_is_shown_to_all() -> None:
    job = push(tags=["urgent"], schema="urn:x:mail", rate_limit={"key": "free", "concurrency": 3})
    shown = page(job, payload=True)
    assert all(each in shown for each in ('"urgent"', "urn:x:mail", '"key": "free"'))
    # No template gives the key, so it may have anything in it.
    shown = page(job, payload=False)
    assert all(each in shown for each in ('"urgent"', "urn:x:mail", '"concurrency": 3'))
    assert '"key": "free"' not in shown


@pytest.mark.parametrize("redact", ["apiKey", "APIKEY"])
def test_the_case_of_a_name_in_a_limit_key_does_not_matter(redact: str) -> None:
    policy = ojs.RateLimitPolicy(key="{account[apiKey]}:{account[name]}", concurrency=1)

    @ojs.job("test.limited", rate_limit=policy)
    def handler(account: dict[str, str]) -> None: ...

    try:
        with override_settings(OJS={"ADMIN_REDACT": [redact]}):
            shown = redacted_key(f"{ARGUMENT}:acme", may_see=True)
    finally:
        registry.remove("test.limited")
    assert shown == f"{HIDDEN}:acme"


def test_show_says_that_a_job_carries_more(step: Job, foreign: Job) -> None:
    for job in (step, foreign):
        assert "--args" in command("show", job.pk).out


@pytest.mark.parametrize("redact", [["password"], ["*"]], ids=str)
@pytest.mark.usefixtures("limited")
def test_limit_keys_are_redacted_on_the_command_line(redact: list[str]) -> None:
    WorkerFactory(queues=("default",))
    waiting = registry.handlers["test.limited"].enqueue(ARGUMENT)
    fetch.fetch(["default"], count=2, worker_id=WORKER)
    limit_keys.pause([KEY], timedelta(hours=1))
    calls: tuple[list[Any], ...] = (
        ["limits", "list"],
        ["limits", "list", "--all"],
        ["limits", "list", "--all", "--json"],
        ["limits", "show", KEY],
        ["limits", "show", KEY, "--json"],
        ["limits", "pause", KEY],
        ["limits", "pause", KEY, "--json"],
        ["limits", "resume", KEY],
        ["limits", "resume", KEY, "--json"],
        ["show", waiting.id, "--args"],
        ["show", waiting.id, "--args", "--json"],
    )
    for arguments in calls:
        assert KEY in command(*arguments).out, arguments
        limit_keys.pause([KEY], timedelta(hours=1))
    for more in ([], ["--json"]):
        assert KEY not in command("show", waiting.id, *more).out
    limit_keys.pause([KEY], timedelta(hours=1))
    with override_settings(OJS={"ADMIN_REDACT": redact}):
        for arguments in calls:
            run = command(*arguments)
            assert run.code == 0, arguments
            assert KEY not in run.out + run.err, arguments
            assert HIDDEN in run.out, arguments
        # Nor do the names that a misspelt one is compared with tell it.
        misspelt = command("limits", "show", f"{KEY[:-1]}x")
        assert misspelt.code == 2
        assert ARGUMENT not in misspelt.err


@pytest.mark.usefixtures("limited")
def test_a_finding_names_a_paused_key_without_the_arguments_in_it() -> None:
    limit_journal.pause(KEY, timedelta(hours=1))
    (finding,) = limit_findings.found()
    assert "is paused until" in finding.text
    assert ARGUMENT not in f"{finding.identity} {finding.text} {finding.command}"


@pytest.mark.parametrize("redact", [[], ["password"]], ids=str)
@pytest.mark.usefixtures("limited")
def test_limit_keys_are_redacted_in_jobs_that_are_sent_later(redact: list[str]) -> None:
    away = {"OUTBOX": {"far": {"url": "http://127.0.0.1:9", "types": ["*"]}}}
    with override_settings(OJS=away):
        registry.handlers["test.limited"].enqueue(ARGUMENT)
    template = {"type": "test.limited", "args": [], "options": {"rate_limit": {"key": KEY}}}
    register("nightly", "0 3 * * *", template=template)
    entry = OutboxEntry.objects.get()
    may = ("view_outboxentry", "view_cronjob", "view_payload_job")
    client = staff(*may)
    with override_settings(OJS={"ADMIN_REDACT": redact}):
        for address in (f"outboxentry/{entry.pk}", "cronjob/nightly"):
            response = client.get(at(f"{address}/change/"))
            assert response.status_code == 200
            shown = unescape(response.content.decode())
            assert (KEY in shown) is (not redact), address
