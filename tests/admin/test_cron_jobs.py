"""The pages of cron jobs: schedules in words, next runs, history; run, pause, create, edit."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob, CronOwner
from django_ojs.operations import cancel
from tests.admin.users import root, staff
from tests.cases import together
from tests.factories import jobs
from tests.operations.cron.scenes import make_due, register, tick

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LIST = "/admin/ojs_cron/cronjob/"
FORM = {
    "name": "nightly",
    "expression": "0 3 * * *",
    "timezone": "Europe/Paris",
    "type": "report.make",
    "queue": "reports",
    "args": '["all"]',
    "overlap_policy": "skip",
    "description": "",
}


def text(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def said(response: Any) -> str:
    return " ".join(map(str, get_messages(response.wsgi_request)))


def done_to(name: str) -> list[str]:
    """Return what the audit trail has about a cron job, in order."""
    entries = AuditEntry.primary.filter(object_type="cron_job", object_id=name)
    return list(entries.order_by("pk").values_list("action", flat=True))


def test_the_list_says_in_words_when_what_runs() -> None:
    register("weekdays", "0 9 * * MON-FRI", timezone="Europe/Paris", overlap_policy="allow")
    register("paused", enabled=False)
    register("in-code", in_code=True)

    page = text(root(), LIST)

    for shown in (
        "every weekday at 09:00 (Europe/Paris)",
        "0 9 * * MON-FRI",
        "report.make",
        '<td class="ojs-nowrap" data-label="Overlap">allow</td>',
        "‖ paused",
        "● enabled",
        "declared in code",
    ):
        assert shown in page
    assert "every weekday" not in text(root("second"), f"{LIST}?q=pau")


def test_the_empty_list_says_how_to_make_one() -> None:
    page = text(root(), LIST)
    assert "@ojs.cron(" in page
    assert f'href="{LIST}create/"' in page
    assert "create/" not in text(staff("view_cronjob"), LIST)
    assert "contains this text" in text(root("second"), f"{LIST}?q=x")


def test_the_page_has_the_next_five_runs_in_the_zone_of_the_page_and_its_own(settings: Any) -> None:
    settings.TIME_ZONE = "UTC"
    register("report", "0 9 * * *", timezone="Asia/Kolkata")

    page = text(root(), f"{LIST}report/change/")

    assert "runs every day at 09:00 (Asia/Kolkata)." in page
    assert page.count(" 03:30:00 UTC</td>") == 5
    assert page.count(" 09:00:00</td>") == 5


def test_the_next_runs_of_an_interval_are_apart_by_it() -> None:
    job = register("report", "@every 90m")

    page = text(root(), f"{LIST}report/change/")

    assert job.next_run_at is not None
    first = job.next_run_at
    for n in range(5):
        at = first + n * timedelta(minutes=90)
        assert f"{at:%Y-%m-%d %H:%M:%S}" in page


def test_the_page_links_to_the_jobs_of_its_runs() -> None:
    register("report")
    assert "It has not run yet" in text(root(), f"{LIST}report/change/")
    tick("report")
    job = jobs().get()

    page = text(root("second"), f"{LIST}report/change/")

    assert f'<a href="/admin/django_ojs/job/{job.pk}/change/">' in page
    assert "available" in page
    jobs().all().delete()
    assert "deleted" in text(root("third"), f"{LIST}report/change/")


@pytest.mark.both
@pytest.mark.both
def test_the_page_draws_how_long_its_latest_runs_took() -> None:
    register("report", overlap_policy="allow")
    for _ in range(3):
        tick("report")
    assert "ojs-spark" not in text(root(), f"{LIST}report/change/")
    end = timezone.now()
    for seconds, job in enumerate(jobs().order_by("pk"), start=1):
        started = end - timedelta(seconds=seconds)
        jobs().filter(pk=job.pk).update(state="completed", started_at=started, finished_at=end)
    page = text(root("second"), f"{LIST}report/change/")
    (title,) = re.findall(r'<svg class="ojs-spark"[^>]*aria-label="([^"]*)"', page)
    assert title == "Running times of the latest runs, at most 3 s"
    assert re.search(r'<path class="ojs-line ojs-line-done" d="M0 [^"]+L90 ', page)


def test_a_timezone_that_is_no_longer_known_breaks_no_page() -> None:
    register("report")
    CronJob.objects.update(timezone="Europe/Gone", expression="61 * * * *")

    assert "invalid:" in text(root(), LIST)
    assert "invalid:" in text(root("second"), f"{LIST}report/change/")


def test_arguments_need_their_permission(settings: Any) -> None:
    register("report", template={"args": ["classified"]})
    page = f"{LIST}report/change/"

    assert "classified" in text(root(), page)
    assert "classified" not in text(staff("view_cronjob"), page)
    editor = staff("view_cronjob", "administer_job", name="editor")
    assert "classified" not in text(editor, f"{LIST}report/edit/")
    editor.post(f"{LIST}report/edit/", FORM)
    assert CronJob.objects.get().template["args"] == ["classified"]


def test_redacted_arguments_are_not_stored_by_the_form(settings: Any) -> None:
    register("report", template={"args": [{"password": "secret", "n": 1}]})
    settings.OJS = {"ADMIN_REDACT": ["password"]}
    client = root()

    assert "secret" not in text(client, f"{LIST}report/change/")
    assert "secret" not in text(client, f"{LIST}report/edit/")
    client.post(f"{LIST}report/edit/", FORM)

    assert CronJob.objects.get().template["args"] == [{"password": "secret", "n": 1}]


def test_run_now_enqueues_a_job_and_names_the_operator() -> None:
    register("report")
    client = root()

    assert "The schedule stays as it is" in text(client, f"{LIST}action/run/?key=report")
    done = client.post(f"{LIST}action/run/", {"key": "report", "confirmed": "1"})

    job = jobs().get()
    assert f"Cron job report has enqueued job {job.pk}" in said(done)
    assert cron.runs("report").get().triggered_by == "root"
    assert "root" in text(client, f"{LIST}report/change/")
    assert done_to("report") == ["cron.run"]
    again = client.post(f"{LIST}action/run/", {"key": "report", "confirmed": "1"})
    assert "A run of the cron job has not ended" in said(again)


@pytest.mark.parametrize("in_code", [False, True])
def test_each_is_paused_and_resumed_also_one_of_code(in_code: bool) -> None:
    name = register("some", in_code=in_code).name
    client = root()

    client.post(f"{LIST}action/pause/", {"key": name})
    assert CronJob.objects.get().next_run_at is None
    assert "None while it is paused" in text(client, f"{LIST}{name}/change/")
    again = client.post(f"{LIST}action/pause/", {"key": name})
    assert "already paused" in said(again)

    client.post(f"{LIST}action/resume/", {"key": name})
    assert CronJob.objects.get().next_run_at is not None
    assert done_to(name) == ["cron.paused", "cron.resumed"]


def test_one_of_code_is_not_edited_and_not_removed() -> None:
    expression = register("in-code", in_code=True).expression
    client = root()

    page = text(client, f"{LIST}in-code/change/")
    assert "Declared in code (shop.jobs.nightly)" in page
    assert "/edit/" not in page
    assert "/action/remove/" not in page
    assert client.post(f"{LIST}in-code/edit/", FORM).status_code == 404
    rejected = client.post(f"{LIST}action/remove/", {"key": "in-code", "confirmed": "1"})
    assert "declared in code" in said(rejected)
    assert CronJob.objects.get().expression == expression


def test_one_is_created() -> None:
    client = root()

    done = client.post(f"{LIST}create/", FORM, follow=True)

    job = CronJob.objects.get()
    assert (job.name, job.expression, job.timezone) == ("nightly", "0 3 * * *", "Europe/Paris")
    assert job.template == {"type": "report.make", "args": ["all"], "options": {"queue": "reports"}}
    assert done.redirect_chain[-1][0] == f"{LIST}nightly/change/"
    assert "Cron job nightly runs every day at 03:00 (Europe/Paris)." in done.content.decode()
    assert done_to("nightly") == ["cron.created"]
    rare = client.post(
        f"{LIST}create/", FORM | {"name": "b", "expression": "0 0 31 * *"}, follow=True
    )
    assert "Not every chosen month has the day 31" in rare.content.decode()


@together(
    ("field", "value", "message"),
    [
        ("expression", "0 25 * * *", ">hour: &#x27;25&#x27; is out of range. Use 0 to 23."),
        ("expression", "0 0 31 2 *", "no chosen month has such a day"),
        ("timezone", "EST", "an abbreviation can mean several timezones"),
        ("name", "Not A Name", "must consist of"),
        ("name", "taken", "is taken by another cron job"),
        ("type", "Not A Type", "type must be dotted segments"),
        ("queue", "Not A Queue", "queue must"),
        ("args", "{", "the document is not JSON: "),
        ("args", '{"a": 1}', "args must be an array"),
    ],
    undo=True,
)
def test_an_error_stands_at_its_field_and_keeps_what_was_typed(
    field: str, value: str, message: str
) -> None:
    register("taken")

    response = root().post(f"{LIST}create/", FORM | {field: value})

    assert response.status_code == 200
    errors = response.context["form"].errors
    assert list(errors) == [field]
    page = " ".join(response.content.decode().split())
    assert message in page
    assert "Europe/Paris" in page or field == "timezone"
    assert CronJob.objects.count() == 1


def test_one_is_edited_and_keeps_what_the_form_does_not_show() -> None:
    register("report", template={"meta": {"a": 1}, "options": {"queue": "x", "priority": 5}})
    cron.set_enabled("report", False)
    client = root()
    page = text(client, f"{LIST}report/edit/")
    assert "Edit report" in page
    assert 'name="name"' not in page

    client.post(f"{LIST}report/edit/", FORM)

    job = CronJob.objects.get()
    assert (job.name, job.expression, job.enabled) == ("report", "0 3 * * *", False)
    assert job.template["meta"] == {"a": 1}
    assert job.template["options"] == {"queue": "reports", "priority": 5}
    assert done_to("report") == ["cron.changed"]
    assert "0 3 * * *" in text(client, f"{LIST}report/history/")


def test_one_is_removed_after_a_question() -> None:
    register("report")
    client = root()

    assert "stay" in text(client, f"{LIST}action/remove/?key=report")
    values = {"key": "report", "confirmed": "1", "next": f"{LIST}report/change/"}
    done = client.post(f"{LIST}action/remove/", values)

    assert done["Location"] == LIST
    assert not CronJob.objects.exists()
    assert client.get(f"{LIST}report/change/").status_code == 404


def test_an_operator_runs_and_pauses_and_an_administrator_edits() -> None:
    register("report", "@hourly")
    operator = staff("view_cronjob", "operate_job", name="operator")
    page = text(operator, f"{LIST}report/change/")
    assert "/action/run/" in page
    assert "/edit/" not in page
    for address in (f"{LIST}create/", f"{LIST}report/edit/"):
        assert operator.post(address, FORM).status_code == 403
    assert "/edit/" in text(staff("view_cronjob", "administer_job"), f"{LIST}report/change/")
    assert CronJob.objects.get().expression == "@hourly"


def test_hostile_names_and_descriptions_change_no_page() -> None:
    hostile = '"><script>alert(1)</script>'
    register("report", description=hostile)
    CronJob.objects.update(type=hostile, defined_in=hostile, owner=CronOwner.CODE)

    for address in (LIST, f"{LIST}report/change/"):
        assert "<script>alert" not in text(root(name=address), address)


@pytest.mark.both
def test_occurrences_that_enqueued_nothing_are_counted_with_the_reason_until_a_run() -> None:
    register("nightly", overlap_policy="skip")
    for _ in range(4):
        tick("nightly")
    client = root()
    for page in (LIST, f"{LIST}nightly/change/"):
        shown = re.sub(r"<[^>]+>", "", text(client, page))
        assert re.search(r"skipped 3 since \S+, because a run has not ended: the job", shown)
    # A run that enqueues a job ends it.
    cancel.cancel(jobs().get().pk)
    tick("nightly")
    assert CronJob.primary.get().skipped_count == 0
    assert "skipped 3" not in text(client, LIST)


def test_a_next_run_in_the_past_is_amber() -> None:
    register("nightly")
    client = root()
    assert "ojs-is-fair" not in text(client, LIST)
    make_due("nightly", ago=timedelta(minutes=5))
    for page in (LIST, f"{LIST}nightly/change/"):
        assert re.search(
            r'<span class="ojs-state ojs-is-fair"><time [^>]*>5[^<]*ago', text(client, page)
        )
