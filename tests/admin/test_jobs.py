"""The pages of jobs: the search, what is shown, and the buttons that a state allows."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.admin.state_strip import state_strip
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.models import Attempt
from django_ojs.operations import fail, fetch, progress, retry
from django_ojs.operations.jobs import listing
from django_ojs.spec import ids
from django_ojs.spec.failure import Failure
from django_ojs.spec.progress import Report
from django_ojs.spec.states import State
from django_ojs.storage import database
from tests.admin.users import VIEW, root, staff
from tests.cases import named, together
from tests.factories import (
    MINUTE,
    WorkerFactory,
    active,
    age,
    held,
    hourly,
    in_state,
    jobs,
    push,
    push_many,
    read,
)

#: No job has it; always the same, as the names of tests must be.
NOBODY = "01a1fc00-0000-7000-8000-000000000001"

pytestmark = pytest.mark.django_db

LIST = "/admin/django_ojs/job/"
#: Statements of a page, those of session, user and savepoints included.
BUDGET = 40


def text(client: Client, address: str = LIST, **query: str) -> str:
    response = client.get(address, query)
    assert response.status_code == 200
    return re.sub(r"\s+", " ", unescape(response.content.decode()))


def page_of(key: UUID) -> str:
    return f"{LIST}{key}/change/"


def listed(client: Client, **query: str) -> list[str]:
    return re.findall(r'name="key" value="([0-9a-f-]{36})"', text(client, **query))


def do(client: Client, name: str, key: UUID, **values: Any) -> Any:
    return client.post(f"{LIST}action/{name}/", {"key": str(key), "confirmed": "1", **values})


def offered(page: str) -> set[str]:
    return set(re.findall(r"/job/action/([a-z-]+)/", page))


class TestList:
    def test_a_search_shows_what_it_means_and_is_an_address(self) -> None:
        client = root()
        wanted = in_state("retryable", queue="email", meta={"tenant": "acme"})
        in_state("retryable", queue="other")
        push(queue="email")
        for search in ("queue:email state:retryable", "meta.tenant:acme", str(wanted.pk)):
            assert listed(client, q=search) == [str(wanted.pk)]
            assert f'value="{search}"' in text(client, q=search)

    @together(
        ("state", "words"),
        [
            ("scheduled", "due <time"),
            ("available", "waiting <time"),
            ("active", "running <time"),
            ("completed", "finished <time"),
            ("retryable", "due <time"),
            ("cancelled", "cancelled <time"),
            ("discarded", "discarded <time"),
            ("pending", "pending <time"),
        ],
        undo=True,
    )
    def test_the_time_means_what_the_state_asks_for(self, state: str, words: str) -> None:
        job = in_state(state, **({"retry": hourly()} if state == "retryable" else {}))
        age(job.pk, MINUTE)
        page = text(root())
        assert words in page
        reported = "in 5" if state in ("scheduled", "retryable") else ">1 min"
        assert reported in page

    @pytest.mark.both
    def test_the_tabs_count_what_the_search_names_of_queues(self) -> None:
        client = root()
        push_many(3, queue="a")
        push_many(2, queue="b")
        assert "available <b>3</b>" in text(client, q="queue:a")
        assert "available <b>5</b>" in text(client)
        # Of other words the counts know nothing, and a wrong number is worse than none.
        assert "available <b>" not in text(client, q="type:test.*")

    @pytest.mark.both
    def test_an_end_of_a_look_is_said_and_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            listing.list_jobs,
            "__kwdefaults__",
            {**listing.list_jobs.__kwdefaults__, "scan_limit": 3},
        )
        client = root()
        rare = push(queue="rare")
        push_many(7, queue="common")
        page = text(client, q="queue:rare")
        assert "Search further" in page
        assert "This page looked at 3 jobs, in the order of the list" in page
        assert str(rare.pk) not in page
        # The counts know how many jobs a queue has in a state.
        for queue in ("few", "many", "many", "few"):
            in_state("completed", queue=queue)
        page = text(client, q="queue:few state:completed")
        assert "Search further" in page
        assert '<span class="ojs-total">2 jobs</span>' in page

    def test_no_address_is_an_error(self) -> None:
        push(args=[{"a": 1}], meta={"x": 1})
        client = root()
        for query in (
            "?q=%00",
            "?queue=%00",
            "?q=queue:%00",
            "?q=id:%00",
            "?q=args.%00:1",
            "?q=args.0:1e400",
            "?q=args.99999999999999999999:1",
            "?q=meta.x:%F0%9F%92%A9",
            "?q=meta.$.x[0]:1",
            "?q=created:>99999w",
            "?q=type:%25",
            "?q=%22",
            "?q=%FF%FE",
            "?q=" + "a:b+" * 400,
            "?p=-1&o=zzz&_to_field=x",
        ):
            with named(query):
                assert client.get(LIST + query).status_code == 200

    def test_ticked_jobs_are_worked_in_one_request(self) -> None:
        client = root()
        keys = [in_state("discarded").pk for _ in range(3)]
        waits = push().pk
        body = {"key": [str(key) for key in [*keys, waits]], "confirmed": "1"}
        response = client.post(f"{LIST}action/retry/", body, follow=True)
        assert "3 retried, 1 skipped" in response.content.decode()
        assert {read(key).state for key in keys} == {"available"}
        assert AuditEntry.primary.count() == 3

    def test_arguments_are_listed_for_those_who_may_see_them(self) -> None:
        push(args=["a-secret"])
        assert "a-secret" in text(root())
        assert "a-secret" not in text(staff(*VIEW))


class TestJob:
    @together(
        ("state", "names"),
        [
            (State.SCHEDULED, {"cancel", "run-now"}),
            (State.AVAILABLE, {"cancel"}),
            (State.PENDING, {"cancel", "activate"}),
            (State.ACTIVE, {"cancel", "delete-history"}),
            (State.RETRYABLE, {"cancel", "delete-history", "run-now"}),
            (State.COMPLETED, {"delete", "delete-history", "run-again"}),
            # It was cancelled before its first attempt.
            (State.CANCELLED, {"delete", "run-again"}),
            (State.DISCARDED, {"delete", "delete-history", "retry", "retry-with", "run-again"}),
        ],
        undo=True,
    )
    def test_buttons_are_those_that_the_state_allows(self, state: State, names: set[str]) -> None:
        policy = {"retry": hourly(1, on_exhaustion="dead_letter")}
        job = in_state(state, **(policy if state is State.DISCARDED else {}))
        assert offered(text(root(), page_of(job.pk))) == names

    def test_the_history_of_a_job_is_shown(self) -> None:
        job = in_state("discarded", retry=hourly(1), args=[{"n": 9007199254740991}])
        page = text(root(), page_of(job.pk))
        assert "available → active → discarded" in page
        assert "it broke" in page
        assert "9007199254740991" in page
        assert "worker-a" in page

    def test_its_parent_and_its_children_are_linked(self) -> None:
        client = root()
        job = push(parent_id=push(type="order.place").pk)
        for number in range(10):
            push(parent_id=job.pk, type=f"order.label{number}")
        page = text(client, page_of(job.pk))
        assert f'parent <a href="{page_of(job.parent_id)}">order.place</a>' in page
        assert "10 child jobs:" in page
        newest = push(parent_id=job.pk, type="order.last")
        page = text(client, page_of(job.pk))
        assert "More than 10 child jobs:" in page
        assert "order.label9" in page
        assert "order.last" not in page
        assert (found := re.search(r'href="../../(\?q=[^"]+)">All child jobs', page))
        assert f'value="{newest.pk}"' in text(client, LIST + found[1])
        jobs().filter(pk=job.parent_id).delete()
        assert f"parent {job.parent_id}, which is no longer there" in text(client, page_of(job.pk))

    def test_a_retryable_job_has_gone_round(self) -> None:
        job = in_state("retryable")
        assert "available → active → retryable" in text(root(), page_of(job.pk))

    def test_each_state_of_the_path_has_its_time(self) -> None:
        job = in_state("retryable", retry=hourly(3))
        # Within one millisecond, SQLite's clock can be behind Python's.
        assert job.enqueued_at is not None
        job.enqueued_at -= timedelta(seconds=1)
        (attempt,) = Attempt.primary.filter(job_id=job.pk)
        strip = state_strip(job, [attempt])
        assert [(visit.state, visit.at) for visit in strip.last] == [
            ("available", job.enqueued_at),
            ("active", attempt.started_at),
            ("retryable", attempt.finished_at),
        ]
        lasted = attempt.finished_at - (attempt.started_at or attempt.finished_at)
        assert [visit.lasted for visit in strip.last] == [job.waited, lasted, None]
        page = text(root(), page_of(job.pk))
        assert page.count('aria-current="step"') == 1
        assert f">{attempt.finished_at:%H:%M:%S}</time>" in page

    def test_of_a_long_path_the_middle_is_counted(self) -> None:
        job = in_state("retryable", retry=hourly(9))
        (attempt,) = Attempt.primary.filter(job_id=job.pk)
        strip = state_strip(job, [attempt] * 5)
        assert (len(strip.first), strip.hidden, len(strip.last)) == (3, 5, 7)

    @pytest.mark.parametrize(
        ("frames", "own"),
        [
            (
                (
                    "/app/shop/mail.py:3 in send",
                    "/venv/lib/python3.12/site-packages/smtp/client.py:9 in connect",
                    "/usr/lib/python3.12/socket.py:850 in create_connection",
                ),
                "/app/shop/mail.py:3 in send",
            ),
            (("/app/a.py:1 in outer", "/app/b.py:2 in inner"), "/app/b.py:2 in inner"),
            (("at inner (/app/b.js:2:1)", "at outer (/app/a.js:1:1)"), "at inner (/app/b.js:2:1)"),
            (("at x (/app/node_modules/m/i.js:2:1)", "at y (/app/a.js:1:1)"), "at y (/app/a.js"),
        ],
    )
    def test_the_error_has_the_innermost_frame_that_is_not_of_a_library(
        self, frames: tuple[str, ...], own: str
    ) -> None:
        claimed = active(retry=hourly(1))
        fail.fail(claimed.id, Failure(type="Boom", message="", backtrace=frames))
        page = text(root(), page_of(claimed.id))
        assert f'<code class="ojs-frame">{own}' in page
        assert "ojs-frame" not in text(staff(*VIEW), page_of(claimed.id))

    def test_progress_of_the_run_is_drawn(self) -> None:
        claimed = active()
        report = Report(progress=0.25, data={"step": "two"})
        progress.report(claimed.id, report, claim=held(claimed))
        page = text(root(), page_of(claimed.id))
        assert "25 % done" in page
        assert '"step": "two"' in page

    def test_the_progress_of_running_jobs_is_a_bar_in_the_list_and_on_the_worker(self) -> None:
        WorkerFactory(id="worker-a")
        half, silent, again = active(), active(), active(retry=hourly(3))
        for claimed in (half, again):
            progress.report(claimed.id, Report(progress=0.5), claim=held(claimed))
        fail.requeue(again.id)
        fetch.fetch([again.queue], worker_id="worker-a")
        assert silent.id != half.id
        client = root()
        for address in (LIST, "/admin/django_ojs/worker/worker-a/change/"):
            html = client.get(address).content.decode()
            (bar,) = re.findall(r'<svg[^>]*role="progressbar"[^>]*>', html)
            assert 'aria-valuenow="0.50"' in bar
            assert "50\u202f% done" in html

    def test_the_message_of_a_report_is_for_those_who_may_see_payloads(self) -> None:
        claimed = active()
        report = Report(progress=0.4, data={"message": "page 4 of 10"})
        progress.report(claimed.id, report, claim=held(claimed))
        client = root()
        assert "40 % done · page 4 of 10" in text(client, page_of(claimed.id))
        assert "page 4" not in text(staff(*VIEW), page_of(claimed.id))
        with override_settings(OJS={"ADMIN_REDACT": ["*"]}):
            assert "page 4" not in text(client, page_of(claimed.id))

    def test_the_checkpoint_of_a_job_is_shown_with_its_number_and_redacted(self) -> None:
        claimed = active()
        checkpoint.save(claimed.id, {"row": 5, "card": "4111111111111111"})
        with override_settings(OJS={"ADMIN_REDACT": ["card"]}):
            page = text(root(), page_of(claimed.id))
        assert "Checkpoint 1" in page
        assert '"row": 5' in page
        assert "4111111111111111" not in page
        assert '"row": 5' not in text(staff(*VIEW), page_of(claimed.id))

    def test_what_a_job_carries_is_for_those_who_may_see_it(self) -> None:
        boom = Failure(type="Boom", message="a-message", backtrace=("a-frame",))
        claimed = active(args=["a-secret"], meta={"m": "a-meta"}, retry=hourly(1))
        fail.fail(claimed.id, boom)
        secrets = ("a-secret", "a-meta", "a-message", "a-frame")
        shown = text(root(), page_of(claimed.id))
        assert all(secret in shown for secret in secrets)
        hidden = text(staff(*VIEW), page_of(claimed.id))
        assert not any(secret in hidden for secret in secrets)
        assert "Boom" in hidden

    @override_settings(OJS={"ADMIN_REDACT": ["card"]})
    def test_what_the_settings_redact_nobody_sees(self) -> None:
        job = push(args=[{"card": "4111111111111111", "name": "Ann"}])
        page = text(root(), page_of(job.pk)) + text(root("other"))
        assert "4111111111111111" not in page
        assert "Ann" in page

    @pytest.mark.both
    def test_each_action_is_one_operation_and_one_line_of_the_history(self) -> None:
        client = root()
        for state, name, after in (
            ("discarded", "retry", "available"),
            ("pending", "activate", "available"),
            ("active", "cancel", "cancelled"),
        ):
            job = in_state(state)
            assert do(client, name, job.pk).status_code == 302
            assert read(job.pk).state == after
            entry = AuditEntry.primary.get(object_id=str(job.pk))
            assert entry.actor == "root"
            for page in (page_of(job.pk), f"{LIST}{job.pk}/history/"):
                assert entry.action in text(client, page)

    def test_a_deleted_job_leads_back_to_the_list(self) -> None:
        job, client = in_state("completed"), root()
        response = do(client, "delete", job.pk, next=page_of(job.pk))
        assert response["Location"] == LIST
        assert not jobs().filter(pk=job.pk).exists()
        assert client.get(page_of(job.pk)).status_code in (302, 404)

    def test_a_dead_letter_is_retried_with_changes(self) -> None:
        job = in_state("discarded", retry=hourly(1, on_exhaustion="dead_letter"))
        changes = {"queue": "elsewhere", "priority": "7", "max_attempts": "9"}
        assert do(root(), "retry-with", job.pk, **changes).status_code == 302
        found = read(job.pk)
        assert (found.queue, found.priority, found.max_attempts) == ("elsewhere", 7, 9)

    def test_a_wrong_change_is_said_and_nothing_happens(self) -> None:
        job = in_state("discarded", retry=hourly(1, on_exhaustion="dead_letter"))
        assert job.dead_letter
        response = do(root(), "retry-with", job.pk, queue="Not A Queue")
        assert "ojs-error" in response.content.decode()
        assert read(job.pk).state == "discarded"

    @pytest.mark.both
    def test_the_loser_of_a_race_gets_a_message(self) -> None:
        job, client = in_state("discarded"), root()
        retry.retry(job.pk)
        response = client.post(f"{LIST}action/retry/", {"key": str(job.pk)}, follow=True)
        assert "The job is available; retry needs it discarded." in response.content.decode()

    @pytest.mark.parametrize("key", ["1", "x", "%00", NOBODY])
    def test_a_job_that_is_not_there_is_a_page_that_is_not_there(self, key: str) -> None:
        assert root().get(f"{LIST}{key}/change/").status_code in (302, 404)


def test_the_pages_take_as_many_queries_for_many_jobs_as_for_few() -> None:
    def budget(address: str) -> int:
        client = root(name=ids.uuid7().hex)
        client.get(address)
        with CaptureQueriesContext(database.connection()) as captured:
            assert client.get(address).status_code == 200
        return len(captured)

    job = in_state("discarded")
    # More than a page: the jobs of a page alone need not be counted.
    push_many(60)
    few = {address: budget(address) for address in (LIST, page_of(job.pk))}
    push_many(60)
    for _ in range(3):
        in_state("discarded")
    for address, number in few.items():
        assert budget(address) <= number <= BUDGET


@pytest.mark.both
def test_a_row_says_how_long_a_job_ran_or_waited_and_names_its_worker_by_its_label() -> None:
    name = "worker_019539a4-b68c-7def-8000-1a2b3c4d5e6f"
    WorkerFactory(id=name, labels=("web-1",))
    active(name, queue="q")
    done = in_state("completed", queue="q")
    at = read(done.pk).finished_at
    assert at is not None
    jobs().filter(pk=done.pk).update(started_at=at - timedelta(seconds=90))
    page = text(root())
    assert "web-1 …4d5e6f" in page
    assert re.search(r"waited \S+", page)
    assert "ran 1 min 30 s" in page


def test_a_dead_job_has_two_buttons_and_a_list() -> None:
    job = in_state("discarded", retry=hourly(1, on_exhaustion="dead_letter"))
    page = root().get(f"/admin/django_ojs/job/{job.pk}/change/").content.decode()
    buttons = page[page.index('<div class="ojs-buttons">') :]
    first, rest = buttons.split('<details class="ojs-more">', 1)
    assert re.findall(r"ojs-button[^>]*>([^<]+)<", first) == ["Retry", "Edit and run…"]
    shown = re.findall(r"ojs-button[^>]*>([^<]+)<", rest[: rest.index("</details>")])
    assert shown == [
        *("More", "Retry with changes…", "Run again…", "Delete history…", "Delete…", "History"),
    ]
