"""`manage.py ojs webhooks`."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.extensions.webhooks.operations import dispatch
from django_ojs.extensions.webhooks.operations.deliveries import died
from django_ojs.extensions.webhooks.spec import DISABLED_AFTER
from django_ojs.hooks import publish
from django_ojs.models import Job
from django_ojs.spec.ids import uuid7
from django_ojs.spec.published import EventType, of_queue
from tests.admin.users import root
from tests.command_line.run import ojs as run
from tests.model_factories import SubscriptionFactory
from tests.webhooks.conftest import LOOPBACK, Receiver

pytestmark = pytest.mark.django_db


def discard(job: Job) -> None:
    job.state, job.finished_at = "discarded", job.created_at
    job.error = {"type": "HTTP", "message": "The receiver responded with 410."}
    job.save()


def test_an_operator_finds_a_disabled_webhook_and_has_it_work_again(
    receiver: Receiver, settings: Any
) -> None:
    settings.OJS = {**settings.OJS, **LOOPBACK}
    assert run("webhooks", "list").out == "There are no webhooks.\n"
    webhook, secret = SubscriptionFactory(url=receiver.url, events=["queue.*"], queues=["email"])
    other, _secret = SubscriptionFactory(url=receiver.url, events=["job.*"])
    assert "No delivery yet." in run("webhooks", "show", webhook.pk).out
    publish(EventType.QUEUE_PAUSED, of_queue, "email")
    dispatch.dispatch()
    job = Job.objects.get(queue="ojs-webhooks")
    discard(job)
    for _ in range(DISABLED_AFTER):
        died(webhook)

    lines = run("webhooks", "list").out.splitlines()
    assert len(lines) == 3
    assert all(text in lines[1] for text in (str(webhook.pk), "disabled by failures", " dead "))
    assert " active " in lines[2]
    # Whoever does not look for it is told: by the doctor, and by the overview of the admin.
    assert "webhooks enable ID" in run("doctor", "--only", "overview").out
    overview = root().get("/admin/django_ojs/overview/").content.decode()
    assert "Webhooks that are disabled because their deliveries failed: 1.</b>" in overview
    assert '<a href="/admin/ojs_webhooks/webhook/"' in overview
    shown = run("webhooks", "show", webhook.pk)
    assert "responded with 410" in shown.out
    assert f"manage.py ojs webhooks retry {job.pk}" in shown.out
    assert f"manage.py ojs webhooks enable {webhook.pk}" in shown.out
    as_json = run("webhooks", "show", f"sub_{webhook.pk}", "--json").json
    assert (as_json["active"], as_json["failures"]) == (False, DISABLED_AFTER)
    assert [each["status"] for each in as_json["deliveries"]] == ["dead"]
    for text in (shown.out, str(as_json)):
        # What may hold a token is not shown.
        assert secret not in text
        assert "/hook" not in text

    # The receiver is still away, and then it works.
    receiver.responses.append(503)
    failed = run("webhooks", "test", webhook.pk)
    assert (failed.code, "did not take the test event" in failed.out) == (1, True)
    assert run("webhooks", "test", webhook.pk).code == 0
    assert receiver.received[-1].event["type"] == "webhook.test"
    assert "gets the events from now on" in run("webhooks", "enable", webhook.pk).out
    assert "webhooks enable" not in run("doctor", "--only", "overview").out
    stored = Webhook.objects.get(pk=webhook.pk)
    assert (stored.active, stored.failures, stored.disabled_at) == (True, 0, None)
    assert f"del_{job.pk} is sent again" in run("webhooks", "retry", f"del_{job.pk}").out
    again = run("webhooks", "retry", job.pk, "--json")
    assert (again.code, list(again.json["deliveries"])) == (1, [f"del_{job.pk}"])
    assert Job.objects.get(pk=job.pk).state == "available"
    assert run("webhooks", "disable", other.pk, "--json").json["webhooks"][0]["active"] is False
    trail = AuditEntry.objects.filter(object_type="webhook").order_by("pk")
    assert [entry.action for entry in trail] == ["webhook.changed", "webhook.changed"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show"], "webhooks list"),
        (["enable", "x"], "id"),
        (["show", uuid7()], "There is no webhook"),
        (["list", uuid7()], "webhooks show ID"),
        (["retry"], "webhooks show ID"),
        (["retry", uuid7()], "There is no delivery"),
    ],
)
def test_arguments_that_are_wrong(arguments: list[Any], said: str) -> None:
    done = run("webhooks", *arguments)
    assert done.code == 2
    assert said in done.err
