"""The actions that make jobs run: before they are due, and again after they ended."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

import django_ojs as ojs
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import BulkOperation
from django_ojs.operations.jobs import bulk_execution, bulk_operations
from tests.admin.markup import form_data
from tests.admin.test_pages import BASE
from tests.admin.users import root, staff
from tests.cases import together
from tests.factories import MINUTE, age, in_state, jobs, push, read

pytestmark = [pytest.mark.django_db, pytest.mark.once]

DO = f"{BASE}job/action/"


def said(client: Client, action: str, *keys: object, **values: str) -> str:
    response = client.post(f"{DO}{action}/", {"key": [str(key) for key in keys], **values})
    return " ".join(map(str, get_messages(response.wsgi_request)))


def test_jobs_that_wait_for_their_time_run_now() -> None:
    scheduled, retryable = in_state("scheduled"), in_state("retryable")
    client = root()
    assert "Run now" in client.get(f"{BASE}job/{scheduled.pk}/change/").content.decode()
    assert "2 made available." in said(client, "run-now", scheduled.pk, retryable.pk)
    assert {read(job.pk).state for job in (scheduled, retryable)} == {"available"}
    assert "Run now" not in client.get(f"{BASE}job/{scheduled.pk}/change/").content.decode()


def test_a_job_that_has_ended_runs_again_as_a_copy_after_a_question() -> None:
    job = in_state("completed", args=[7])
    client = root()
    asked = client.post(f"{DO}run-again/", {"key": str(job.pk)}).content.decode()
    assert "The handler repeats what it did the first time." in asked
    assert jobs().count() == 1
    message = said(client, "run-again", job.pk, confirmed="1")
    copy = jobs().exclude(pk=job.pk).get()
    assert str(copy.pk) in message
    assert (copy.state, copy.args, read(job.pk).state) == ("available", [7], "completed")


def test_a_copy_that_a_unique_policy_ignores_is_skipped_with_the_reason() -> None:
    policy = ojs.UniquePolicy(on_conflict="ignore")
    job, other = in_state("completed", unique=policy), push(unique=policy)
    assert f"a duplicate of {other.pk}" in said(root(), "run-again", job.pk, confirmed="1")
    assert jobs().count() == 2


def test_who_comes_second_is_told_so_and_is_not_in_the_history() -> None:
    scheduled, dead = in_state("scheduled"), in_state("discarded")
    first, second = root("first"), root("second")
    for action, job in (("cancel", scheduled), ("retry", dead), ("run-now", in_state("scheduled"))):
        assert "skipped" not in said(first, action, job.pk, confirmed="1")
        assert "1 skipped" in said(second, action, job.pk, confirmed="1")
    assert "already cancelled" in said(second, "cancel", scheduled.pk, confirmed="1")
    logged = AuditEntry.primary.values_list("actor", flat=True)
    assert list(logged) == ["first"] * 3


def test_all_jobs_of_a_search_run_now() -> None:
    waiting = [in_state("scheduled", queue="mail") for _ in range(3)]
    client = root()
    page = client.get(f"{BASE}job/?q=queue:mail").content.decode()
    assert "Select all 3 that match" in page
    assert "/create/run_now/" not in page
    selected = client.get(f"{BASE}job/?q=queue:mail&all=1").content.decode()
    assert "Selected: all 3 jobs of this search" in selected
    assert f"{BASE}bulkoperation/create/run_now/?q=queue%3Amail" in selected
    # No search: an action on every job is not offered, and no row is selected.
    assert "checked" not in client.get(f"{BASE}job/?all=1").content.decode()
    assert (
        "that match"
        not in staff("view_job", name="viewer")
        .get(f"{BASE}job/?q=queue:mail&all=1")
        .content.decode()
    )
    create = f"{BASE}bulkoperation/create/run_now/"
    asked = client.get(create, {"q": "queue:mail"}).content.decode()
    assert "Run all now" in asked
    assert "become available before they are due" in asked
    client.post(create, {"q": "queue:mail"})
    bulk_execution.work()
    assert {read(job.pk).state for job in waiting} == {"available"}
    shown = client.get(f"{BASE}bulkoperation/{BulkOperation.objects.get().pk}/change/")
    assert "Run now" in shown.content.decode()


def test_jobs_that_came_after_the_page_was_read_are_not_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, create = root(), f"{BASE}bulkoperation/create/run_now/"
    seen = in_state("scheduled", queue="mail", type="mail.send")
    age(seen.pk, 2 * MINUTE)
    monkeypatch.setattr(bulk_operations, "moment", lambda: timezone.now() - MINUTE)
    page = client.get(create, {"q": "queue:mail type:mail.send"}).content.decode()
    assert "Jobs created after this moment are not changed." in page
    later = in_state("scheduled", queue="mail", type="mail.send")
    age(later.pk, 1)
    client.post(create, form_data(page, "read_at"))
    bulk_execution.work()
    operation = BulkOperation.objects.get()
    assert (operation.expected, operation.done) == (1, 1)
    assert (read(seen.pk).state, read(later.pk).state) == ("available", "scheduled")
    shown = client.get(f"{BASE}bulkoperation/{operation.pk}/change/").content.decode()
    assert "queue:mail" in shown
    assert "created:" not in shown


@together("read_at", ["2099-01-01T00:00:00+00:00", "x:y", ":", "\N{NULL}", "a" * 9999], undo=True)
def test_a_time_of_reading_that_no_page_gave_changes_nothing(read_at: str) -> None:
    job, client = in_state("scheduled", queue="mail"), root()
    create = f"{BASE}bulkoperation/create/run_now/"
    response = client.post(create, {"q": "queue:mail", "read_at": read_at})
    assert response.status_code == 200
    page = response.content.decode()
    assert "It is not known when this page was read. Check the jobs again." in page
    assert not BulkOperation.objects.exists()
    # The page that says so is read now, and can be confirmed.
    client.post(create, form_data(page, "read_at"))
    age(job.pk, MINUTE)
    bulk_execution.work()
    assert read(job.pk).state == "available"


def test_a_user_who_may_only_look_runs_nothing() -> None:
    job = in_state("scheduled")
    client = staff("view_job")
    assert client.post(f"{DO}run-now/", {"key": str(job.pk)}).status_code == 403
    assert read(job.pk).state == "scheduled"


@pytest.mark.parametrize(
    ("states", "confirm", "leave"),
    [
        (["active"], "Cancel this job", "Keep it running"),
        (["available"], "Cancel this job", "Keep it"),
        (["active", "available"], "Cancel these jobs", "Keep them running"),
    ],
)
def test_to_cancel_and_to_keep_are_two_choices(states: list[str], confirm: str, leave: str) -> None:
    keys = [str(in_state(state).pk) for state in states]
    page = root().get(f"{DO}cancel/", {"key": keys}).content.decode()
    assert f">{confirm}</button>" in page
    assert f">{leave}</a>" in page
