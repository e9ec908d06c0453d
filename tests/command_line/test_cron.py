"""`manage.py ojs cron`."""

from __future__ import annotations

import pytest

import django_ojs as ojs
from django_ojs.extensions.cron import command_line as command
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob
from django_ojs.models import Job
from django_ojs.operations import fail, fetch
from django_ojs.operations.keyset import PageRequest
from django_ojs.spec.failure import Failure
from tests.admin.users import root
from tests.command_line.run import ojs as run
from tests.factories import read
from tests.operations.cron.scenes import register, tick
from tests.testapp.jobs import add

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def test_the_list_has_the_schedules_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("cron", "list").out == "No cron job is registered.\n"
    monkeypatch.setattr(command, "_PAGE", 2)
    register("b", "0 9 * * MON-FRI", timezone="Europe/Paris", description="Words")
    register("a")
    register("c")
    cron.set_enabled("c", False)
    lines = run("cron", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "a", "b", "c"]
    assert "Europe/Paris" in lines[2]
    assert "paused" in lines[3]
    (shown,) = run("cron", "list", "b", "--json").json["cron_jobs"]
    assert (shown["cron"], shown["description"], shown["owner"]) == (
        "0 9 * * MON-FRI",
        "Words",
        "api",
    )
    assert shown["next_run_at"].endswith("Z")


@pytest.mark.both
def test_the_list_says_how_often_a_schedule_was_skipped_and_why() -> None:
    register("nightly", overlap_policy="skip")
    assert ":" not in run("cron", "list").out
    for _ in range(4):
        tick("nightly")
    assert "3: overlap" in run("cron", "list").out
    assert run("cron", "list", "--json").json["cron_jobs"][0]["skipped_count"] == 3


def test_a_schedule_that_cannot_be_evaluated_any_more_is_listed() -> None:
    register("a")
    CronJob.primary.update(expression="never")
    assert "never (UTC)" in run("cron", "list").out


@pytest.mark.both
@pytest.mark.both
def test_sync_stores_what_the_code_declares() -> None:
    assert run("cron", "sync").out == "The code declares none.\n"
    ojs.cron("@daily", name="sums", args=[1, 2])(add)
    planned = run("cron", "sync", "--dry-run")
    assert "sums: registered." in planned.out
    assert "Nothing was changed" in planned.err
    assert cron.page(PageRequest(limit=1)).total == 0
    assert run("cron", "sync", "--json").json == {
        "created": ["sums"],
        "changed": [],
        "taken_over": [],
        "removed": [],
        "kept": [],
        "unchanged": [],
        "dry_run": False,
    }
    assert run("cron", "sync").out == "1 unchanged.\n"
    assert cron.get("sums").type == add.type
    assert run("cron", "sync", "sums").code == 2


@pytest.mark.both
@pytest.mark.both
def test_run_enqueues_a_job_now() -> None:
    register("a")
    done = run("cron", "run", "a", "--json")
    job = read(done.json["cron_jobs"]["a"]["job_id"])
    assert job.meta["cron_name"] == "a"
    assert cron.runs("a").get().triggered_by.endswith("(manage.py ojs)")
    again = run("cron", "run", "a")
    assert again.code == 1
    assert "has not ended" in again.err
    # The list says what became of the last run of each.
    register("b")
    shown = run("cron", "list", "--json").json["cron_jobs"]
    assert [each["last_job"] for each in shown] == [{"id": str(job.pk), "state": "available"}, None]
    failed = fetch.fetch([job.queue], worker_id=None)[0]
    fail.fail(failed.id, Failure(type="Boom", message="", retryable=False))
    assert " dead letter " in run("cron", "list").out.splitlines()[1]
    assert "dead letter" in root().get("/admin/ojs_cron/cronjob/").content.decode()
    job.delete()
    assert "is available." in run("cron", "run", "a").out
    Job.objects.all().delete()
    assert run("cron", "list", "a", "--json").json["cron_jobs"][0]["last_job"] is None


def test_pause_and_resume() -> None:
    register("a")
    assert run("cron", "pause", "a").out == "Cron job a is paused.\n"
    assert cron.get("a").next_run_at is None
    assert "runs next at 2" in run("cron", "resume", "a").out
    (shown,) = run("cron", "pause", "a", "--json").json["cron_jobs"]
    assert shown["enabled"] is False


@pytest.mark.parametrize("action", ["run", "pause", "resume", "list"])
def test_a_name_that_is_not_known_is_probably_misspelt(action: str) -> None:
    assert "None is registered." in run("cron", action, "reprot").err
    register("report")
    done = run("cron", action, "reprot")
    assert done.code == 2
    assert "Did you mean report?" in done.err


@pytest.mark.parametrize("action", ["run", "pause", "resume"])
def test_names_are_needed(action: str) -> None:
    assert run("cron", action).code == 2
