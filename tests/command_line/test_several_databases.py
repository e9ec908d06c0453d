"""`manage.py ojs` where jobs are in several databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from django.db import OperationalError, connections, transaction
from django.test import override_settings

import django_ojs as django_ojs_api
from django_ojs.models import Job, LimitKey, Queue, Webhook
from django_ojs.operations.webhooks import subscriptions
from django_ojs.operations.webhooks.subscriptions import Subscription
from tests.command_line.run import ojs

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture(autouse=True)
def several() -> Iterator[None]:
    with override_settings(OJS={"DATABASES": ["default", "other"]}):
        yield


def test_the_command_line_shows_one_system() -> None:
    keys = {}
    for alias in ("default", "other"):
        with transaction.atomic(using=alias):
            keys[alias] = str(django_ojs_api.enqueue(f"job.{alias}").id)
    # Figures are sums, lists come from one database after the other.
    (queue,) = ojs("stats", "--json").json["queues"]
    assert queue["depth"] == 2
    listed = ojs("jobs")
    assert listed.err.split() == ["Database", "default:", "Database", "other:"]
    assert all(key in listed.out for key in keys.values())
    listed = ojs("jobs", "--database", "other", "--json")
    assert [job["id"] for job in listed.json["jobs"]] == [keys["other"]]
    # An id is enough.
    assert ojs("show", keys["other"], "--json").json["id"] == keys["other"]
    assert ojs("cancel", keys["other"]).code == 0
    states = dict(Job.objects.using("other").values_list("type", "state"))
    assert states == {"job.other": "cancelled"}
    # So are those of jobs in both; one that is not there is the only one that fails.
    both = []
    for alias in ("default", "other"):
        with transaction.atomic(using=alias):
            both.append(str(django_ojs_api.enqueue("job.both", queue="both").id))
    planned = ojs("cancel", *both, "--dry-run")
    assert "This would cancel 2 jobs" in planned.out
    assert all(key in planned.out for key in both)
    unknown = str(django_ojs_api.new_id())
    done = ojs("cancel", *both, unknown, "--yes", "--json")
    assert (done.code, done.json["done"], done.json["failed"]) == (1, 2, 1), done
    assert list(done.json["errors"]) == [unknown]
    for alias in ("default", "other"):
        assert Job.objects.using(alias).get(queue="both").state == "cancelled"
        Job.objects.using(alias).filter(queue="both").delete()
    with transaction.atomic(using="other"):
        chain = django_ojs_api.chain(django_ojs_api.request("job.first", queue="far")).enqueue()
    assert str(chain.id) in ojs("workflows", "list").out
    (step,) = ojs("workflows", "show", chain.id, "--json").json["steps"]
    assert (step["type"], step["job_state"]) == ("job.first", "available")
    assert ojs("workflows", "cancel", chain.id, "--yes").code == 0
    Job.objects.using("other").filter(queue="far").delete()
    # A search acts in each database.
    assert ojs("cancel", "queue:default", "--yes").code == 0
    assert Job.objects.get().state == "cancelled"
    assert ojs("pause", "default").code == 0
    (one,) = ojs("stats", "--database", "other", "--json", "--queue", "default").json["queues"]
    assert one["state"] == "paused", one

    # Names in different databases: each is changed where it is, or none if one is nowhere.
    webhooks = {}
    for alias in ("default", "other"):
        with transaction.atomic(using=alias):
            django_ojs_api.enqueue("job.limited", queue=alias, rate_limit={"key": f"key-{alias}"})
        with django_ojs_api.using(alias):
            given = Subscription(url="https://a.example", events=["*"], active=False)
            webhooks[alias] = subscriptions.create(given)[0]
    ids = [str(webhook.pk) for webhook in webhooks.values()]
    names = ("default", "other")
    for arguments, problem in (
        (("webhooks", "enable", *ids, unknown), f"{unknown}: There is no webhook"),
        (("limits", "pause", "key-default", "key-other", "key-othe"), "Did you mean key-other?"),
        (("pause", *names, "othe"), "Did you mean other?"),
        (("webhooks", "retry", ids[0]), f"{ids[0]}: There is no delivery"),
    ):
        run = ojs(*arguments)
        assert (run.code, problem in run.err) == (2, True), run
    assert not any(Webhook.objects.using(alias).get().active for alias in names)
    assert ojs("webhooks", "enable", *ids).code == 0
    assert all(Webhook.objects.using(alias).get().active for alias in names)
    run = ojs("limits", "pause", "key-default", "key-other")
    assert (run.code, run.out.count("starts before")) == (0, 2), run
    assert ojs("pause", *names).code == 0
    for alias in names:
        assert LimitKey.objects.using(alias).get().is_paused
        assert Queue.objects.using(alias).get(pk=alias).paused_at is not None
        Job.objects.using(alias).filter(queue=alias).delete()

    # What only one of them knows is no error, and one that fails does not stop the others.
    with transaction.atomic(using="other"):
        django_ojs_api.enqueue("job.far", queue="far")
    run = ojs("pause", "far")
    assert (run.code, run.out.count("Queue far is paused")) == (0, 1), run
    assert run.err.split() == ["Database", "other:"]
    away = OperationalError("connection refused")
    connections["default"].close()
    with mock.patch.object(connections["default"], "ensure_connection", side_effect=away):
        run = ojs("resume", "far")
    assert (run.code, "connection refused" in run.err) == (1, True), run
    (one,) = ojs("stats", "--database", "other", "--json", "--queue", "far").json["queues"]
    assert one["state"] == "active"

    for arguments, problem in (
        (("pause", "nowhere"), "There is no queue 'nowhere'."),
        (("jobs", "--json"), "--database must name one of default, other"),
        (("jobs", "--database", "nowhere"), "'nowhere' holds no jobs"),
    ):
        run = ojs(*arguments)
        assert (run.code, problem in run.err) == (2, True), run.err


@pytest.mark.parametrize("into", [(), ("--database", "other")])
def test_an_import_leaves_the_jobs_of_all_databases_as_they_are(
    tmp_path: Path, into: tuple[str, ...]
) -> None:
    for alias in ("default", "other"):
        with transaction.atomic(using=alias):
            django_ojs_api.enqueue("charge.card", [alias])
    lines = "".join(ojs("export", "--database", alias).out for alias in ("default", "other"))
    file = tmp_path / "jobs.jsonl"
    file.write_text(lines)
    assert len(lines.splitlines()) == 2
    done = ojs("import", file, "--json", *into)
    assert (done.code, done.json["existing"]) == (0, 2)
    assert sum(Job.objects.using(alias).count() for alias in ("default", "other")) == 2
