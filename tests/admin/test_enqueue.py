"""Enqueue a job from the admin, and a changed copy of one that has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.enqueue_options import NO_OPTIONS
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.payloads.parameter_kinds import PayloadStream
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.handler_registry import registry
from django_ojs.keyword_handlers import KeywordHandler
from django_ojs.models import Job
from django_ojs.operations import queues
from tests import factories
from tests.admin.markup import HOSTILE, structure
from tests.admin.users import VIEW, root, staff
from tests.cases import together

pytestmark = [pytest.mark.django_db, pytest.mark.once]

BASE = "/admin/django_ojs/job/"
FORM = f"{BASE}enqueue/"


class _Task(KeywordHandler):
    takes_context = False


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    @ojs.job("shop.send", queue="email", rate_limit={"key": "{to}", "concurrency": 2})
    def send(
        to: str,
        times: int = 2,
        share: float | None = None,
        urgent: bool = False,
        lines: list[str] | None = None,
        queue: str = "q",
        *rest: int,
    ) -> None:
        """Take arguments of each kind."""

    @ojs.job("shop.import")
    def load(file: PayloadStream, name: str, /) -> None:
        """Take a payload."""

    def keywords(a: int, *, b: bool, **more: str) -> None:
        """Take keywords."""

    @ojs.job("shop.none")
    def none() -> None:
        raise AssertionError("the page calls the handler")

    registry.add(_Task(keywords, "shop.keywords", atomic=False, options=NO_OPTIONS))
    yield
    for type in ("shop.send", "shop.import", "shop.keywords", "shop.none"):
        registry.remove(type)


def enqueue(client: Client, **values: Any) -> HttpResponse:
    response = client.post(FORM, values)
    assert response.status_code in (200, 302), response
    return response


def newest() -> Job:
    job: Job = Job.primary.latest("pk")
    return job


def test_a_job_is_enqueued_by_the_signature_of_its_handler() -> None:
    client = root("ann")
    assert f'href="{FORM}"' in client.get(BASE).content.decode()
    assert (
        f'href="{FORM}?type=shop.send"'
        in client.get(f"{BASE}type/?type=shop.send").content.decode()
    )
    types = client.get(FORM).content.decode()
    assert 'href="?type=shop.send"' in types
    form = client.get(FORM, {"type": "shop.send"}).content.decode()
    for name in ("to", "times", "share", "urgent", "lines", "queue", "rest"):
        assert f'name="arg_{name}"' in form
    assert "int, default 2" in form
    given = {"type": "shop.send", "arg_to": "ann@example.com", "arg_urgent": "true"}
    response = enqueue(client, **given, priority="7", scheduled_at="2099-01-31T09:30:00")
    job = newest()
    assert response["Location"] == f"{BASE}{job.pk}/change/"
    assert job.args == ["ann@example.com", 2, None, True]
    assert (job.queue, job.priority, job.state) == ("email", 7, "scheduled")
    assert job.options["limit_key"]
    page = client.get(response["Location"]).content.decode()
    assert "Enqueued in email." in page
    (entry,) = AuditEntry.primary.all()
    assert (entry.actor, entry.action, entry.object_id) == ("ann", "job.enqueued", str(job.pk))
    assert "example.com" not in str(entry.detail)
    enqueue(client, **given, arg_share="0.5", arg_lines='["a"]', arg_queue="r", arg_rest="[1, 2]")
    assert newest().args == ["ann@example.com", 2, 0.5, True, ["a"], "r", 1, 2]
    enqueue(client, type="shop.keywords", arg_a="1", arg_b="false", arg_more='{"c": "d"}')
    assert newest().args == [1, {"b": False, "c": "d"}]
    enqueue(client, type="shop.import", arg_file='{"$ref": 1}', arg_name="x")
    assert newest().args == [{"$ref": 1}, "x"]
    enqueue(client, type="shop.send", json="1", args='["x", 9]', queue="slow")
    assert (newest().args, newest().queue) == (["x", 9], "slow")
    page = client.get(FORM, {"type": "shop.none"}).content.decode()
    assert "The handler takes none." in page
    assert "no handler here" not in page
    assert f'href="{FORM}?type=shop.none&amp;json=1"' in page
    enqueue(client, type="shop.none")
    assert newest().args == []
    # A type that only workers in other languages know.
    enqueue(client, type="other.go", args='[{"n": 9007199254740991}]')
    assert (newest().type, newest().args) == ("other.go", [{"n": 9007199254740991}])


@together(
    ("given", "message"),
    [
        ({"type": "Not A Type"}, "type must be dotted segments of a-z"),
        ({"type": "shop.send"}, "This field is required."),
        ({"type": "shop.send", "arg_to": "a", "arg_times": "x"}, "Enter a whole number."),
        ({"type": "shop.send", "arg_to": "a", "arg_share": "nan"}, "Enter a number."),
        ({"type": "shop.send", "arg_to": "a", "arg_urgent": "2"}, "Select a valid choice."),
        ({"type": "shop.send", "arg_to": "a", "arg_lines": "[1"}, "JSON"),
        ({"type": "shop.send", "arg_to": "a", "arg_rest": "{}"}, "Must be an array."),
        ({"type": "shop.send", "arg_to": "a\0b"}, "Null characters"),
        ({"type": "shop.send", "arg_to": "a", "queue": "No Queue"}, "queue must consist of"),
        ({"type": "shop.send", "arg_to": "a", "priority": "999"}, "less than or equal to 100"),
        ({"type": "shop.send", "arg_to": "a", "scheduled_at": "soon"}, "valid date/time"),
        ({"type": "shop.send", "json": "1", "args": "[]"}, "do not fit shop.send"),
        ({"type": "other.go", "args": "{}"}, "Must be an array."),
        ({"type": "other.go", "args": "[1e999]"}, "[0] is NaN, infinite or too large"),
        ({"type": "other.go", "args": '["\\ud800"]'}, "[0] contains a lone surrogate"),
        ({"type": "other.go", "args": "[9007199254740993]"}, "beyond ±(2**53-1)"),
    ],
    undo=True,
)
def test_what_is_wrong_stands_in_the_form(given: dict[str, str], message: str) -> None:
    response = enqueue(root(), **given)
    page = response.content.decode()
    assert response.status_code == 200
    _, _, after = page.partition('class="ojs-confirm"')
    assert message in after
    assert 'class="ojs-error"' in after or 'class="errornote"' in after
    assert not Job.primary.exists()
    assert not AuditEntry.primary.exists()


@pytest.mark.django_db(transaction=True)
def test_a_full_queue_stands_in_the_form_and_is_counted() -> None:
    queues.configure("full", {"backpressure": {"max_depth": 1}})
    factories.push(queue="full")
    response = enqueue(root(), type="other.go", args="[]", queue="full")
    assert "is full" in response.content.decode()
    assert not AuditEntry.primary.exists()
    rollups.flush()
    assert Rollup.primary.get(queue="full", rejected__gt=0).rejected == 1


def test_a_changed_copy_is_linked_with_the_job_that_it_is_a_copy_of() -> None:
    old = factories.in_state(
        "discarded", type="shop.send", queue="other", priority=3, args=["a@example.com", 5, 1]
    )
    client = root("ann")
    page = client.get(f"{BASE}{old.pk}/change/").content.decode()
    assert f'href="{FORM}?copy={old.pk}"' in page
    form = client.get(FORM, {"copy": old.pk}).content.decode()
    # Empty fields are those of the job, and not those of the handler.
    assert 'placeholder="other"' in form
    assert 'value="a@example.com"' in form
    # An integer is no float: it is shown as JSON, so that it is stored as it was.
    same = {"copy": str(old.pk), "arg_to": "a@example.com", "arg_times": "6", "arg_share": "1"}
    response = enqueue(client, **same, queue="slow", priority="3")
    job = newest()
    assert response["Location"] == f"{BASE}{job.pk}/change/"
    assert (job.args, job.queue, job.priority) == (["a@example.com", 6, 1], "slow", 3)
    assert Job.primary.get(pk=old.pk).state == "discarded"
    for here, there in ((old, job), (job, old)):
        page = client.get(f"{BASE}{here.pk}/change/").content.decode()
        assert f'href="{BASE}{there.pk}/change/"' in page
    entry = AuditEntry.primary.get()
    assert entry.object_id == str(job.pk)
    assert entry.detail["copy_of"] == str(old.pk)
    assert entry.detail["changed"] == ["args", "queue"]
    running = factories.in_state("active")
    assert "?copy=" not in client.get(f"{BASE}{running.pk}/change/").content.decode()
    for key in (str(running.pk), "0", "x\0"):
        assert client.get(FORM, {"copy": key}).status_code == 404
    # One whose arguments do not fit the handler of today is edited as JSON.
    odd = factories.in_state("completed", type="shop.import", args=[1, 2, 3])
    assert 'name="args"' in client.get(FORM, {"copy": odd.pk}).content.decode()
    response = client.post(f"{BASE}action/run-again/", {"key": str(old.pk), "confirmed": "1"})
    assert AuditEntry.primary.count() == 2


def test_arguments_that_the_user_may_not_see_are_copied_and_not_shown() -> None:
    old = factories.in_state("completed", type="shop.send", args=["secret-argument"])
    blind = staff(*VIEW, "enqueue_job", name="blind")
    page = blind.get(FORM, {"copy": old.pk}).content.decode()
    assert "secret-argument" not in page
    assert "arg_to" not in page
    tried = enqueue(blind, copy=str(old.pk), arg_to="mine", args='["mine"]', json="1", queue="b")
    assert tried.status_code == 302
    assert (newest().args, newest().queue) == (["secret-argument"], "b")
    with override_settings(OJS={"ADMIN_REDACT": ["to"]}):
        hidden = factories.in_state("completed", type="other.go", args=[{"to": "secret-argument"}])
        page = root().get(FORM, {"copy": hidden.pk}).content.decode()
        assert "secret-argument" not in page
        assert 'name="args"' not in page


def test_only_its_permission_enqueues() -> None:
    old = factories.in_state("completed", type="shop.send", args=["a"])
    others = ("operate_job", "administer_job", "push_job", "work_job", "view_payload_job")
    given = {"type": "shop.send", "arg_to": "a"}
    for client in (
        staff(*VIEW, *others, name="operator"),
        staff("enqueue_job", name="blind"),
    ):
        assert client.get(FORM).status_code == 403
        assert client.post(FORM, given).status_code == 403
        assert client.post(FORM, {"copy": old.pk, "arg_to": "a"}).status_code == 403
    operator = Client()
    operator.force_login(User.objects.get(username="operator"))
    assert "enqueue/" not in operator.get(BASE).content.decode()
    assert "enqueue/" not in operator.get(f"{BASE}{old.pk}/change/").content.decode()
    assert Job.primary.count() == 1
    producer = staff(*VIEW, "enqueue_job", name="producer")
    assert producer.post(FORM, given).status_code == 302
    assert (
        staff("view_job", "enqueue_job", name="c", csrf=True).post(FORM, given).status_code == 403
    )


def test_hostile_texts_change_no_page() -> None:
    def pages(text: str) -> list[tuple[Any, ...]]:
        User.objects.all().delete()
        client = root()
        old = factories.in_state("completed", type="shop.send", args=[text], meta={text: text})
        found = [
            client.get(FORM, {"copy": old.pk}),
            client.post(FORM, {"copy": old.pk, "arg_to": text, "queue": f"No {text}"}),
            client.post(FORM, {"type": text + " é"}),
            client.post(FORM, {"type": "other.go", "args": text + "{"}),
        ]
        read = [structure(each.content.decode()) for each in found]
        assert not any(each.forbidden for each in read)
        return [tuple(each.tags) for each in read]

    plain = pages("Harmless text")
    for text in HOSTILE:
        assert pages(text) == plain, text


@pytest.mark.both
def test_the_job_that_was_copied_is_deleted_if_asked_for() -> None:
    old = factories.in_state("discarded", type="test.job", queue="q")
    client = root()
    address = f"/admin/django_ojs/job/enqueue/?copy={old.pk}"
    assert "Delete the job that this is a copy of" in client.get(address).content.decode()
    body = {"copy": str(old.pk), "json": "1", "args": "[]", "delete_original": "on"}
    page = client.post("/admin/django_ojs/job/enqueue/", body, follow=True).content.decode()
    assert "That job is deleted." in page
    assert not factories.jobs().filter(pk=old.pk).exists()
    assert factories.jobs().filter(type="test.job", state="available").count() == 1
    # It needs the permission to delete.
    kept = factories.in_state("discarded", type="test.job", queue="other")
    clerk = staff(*VIEW, "enqueue_job", "view_payload_job")
    assert "Delete the job" not in clerk.get(f"{address[:-36]}{kept.pk}").content.decode()
    clerk.post("/admin/django_ojs/job/enqueue/", body | {"copy": str(kept.pk)})
    assert factories.jobs().filter(pk=kept.pk).exists()
