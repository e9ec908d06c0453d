"""What an operator tries beside the great scenes: a closed door, a filter, a copy, a schedule."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models import F

from django_ojs.extensions.cron.models import CronJob
from django_ojs.models import Job, Worker
from django_ojs.operations import ack, fail, fetch, queues
from django_ojs.spec.failure import Failure
from tests.admin.users import staff
from tests.browser.test_journeys import ADMIN, act, body, confirm, counts, follow, shows
from tests.factories import WORKER, active, hourly, push
from tests.model_factories import ApiKeyFactory
from tests.operations.cron import scenes as cron
from tests.worker.acceptance.conftest import Start, start
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

__all__ = ["start"]  # The fixture.

COLOUR = "each => getComputedStyle(each).color"
BORDER = "each => getComputedStyle(each).borderTopColor"


def test_a_page_that_is_closed_leads_back_and_no_address_of_a_page_is_missing(page: Any) -> None:
    missing: list[str] = []
    page.on("response", lambda found: missing.append(found.url) if found.status == 404 else None)
    page.goto(f"{ADMIN}overview/")
    icon = page.locator("link[rel=icon]").get_attribute("href")
    assert page.request.get(icon).status == 200
    cookie = staff("view_queue", name="guest").cookies[settings.SESSION_COOKIE_NAME]
    host = {"domain": "127.0.0.1", "path": "/"}
    page.context.add_cookies([{"name": cookie.key, "value": cookie.value, **host}])
    assert page.goto(f"{ADMIN}job/").status == 403
    shows(body(page), "You may not see this page")
    follow(page, page.get_by_role("link", name="Queues", exact=True).first)
    shows(body(page), "There is no queue yet")
    page.goto(f"{ADMIN}job/")
    follow(page, page.get_by_role("link", name="Back to the start"))
    assert page.url.endswith("/admin/")
    assert missing == []


def test_events_are_filtered_by_their_group(page: Any) -> None:
    push(queue="mail")
    queues.pause("mail")
    queues.resume("mail")
    page.goto(f"{ADMIN}event/")
    page.get_by_label("Type").select_option(label="all queue.* events")
    follow(page, page.get_by_role("button", name="Show"))
    types = page.locator("#ojs-events tbody th").all_inner_texts()
    assert sorted(types) == ["queue.paused", "queue.resumed"]


def test_a_dead_job_is_edited_and_run_and_the_old_one_deleted(page: Any) -> None:
    retry = hourly(1, on_exhaustion="dead_letter")
    old = active(queue="mail", type="testapp.add", args=[1, "two"], retry=retry)
    fail.fail(old.id, Failure(type="TypeError", message="two"))
    page.goto(f"{ADMIN}job/{old.id}/change/")
    follow(page, page.get_by_role("link", name="Edit and run…"))
    page.get_by_label("b", exact=True).fill("2")
    page.get_by_label("Delete the job that this is a copy of").check()
    follow(page, page.get_by_role("button", name="Enqueue"))
    shows(page.locator(".messagelist"), "That job is deleted.")
    (left,) = Job.primary.all()
    assert (left.args, left.state) == ([1, 2], "available")


def test_a_schedule_shows_how_long_it_ran_what_it_skipped_and_that_it_is_late(page: Any) -> None:
    cron.register("nightly", overlap_policy="skip")
    for _ in range(2):
        cron.tick("nightly")
        (claimed,) = fetch.fetch(["default"], worker_id=WORKER)
        ack.ack(claimed.id)
    Job.primary.update(started_at=F("started_at") - timedelta(seconds=3))
    for _ in range(3):
        cron.tick("nightly")
    for address in ("cronjob/", "cronjob/nightly/change/"):
        page.goto(f"/admin/ojs_cron/{address}")
        shows(body(page), re.compile(r"skipped 2 since .*, because a run has not ended: the job"))
    counts(page.locator("#ojs-cron-job h2 svg"), 1)
    next_run = page.locator("dt:has-text('Next run') + dd .ojs-state")
    counts(next_run, 0)
    cron.make_due("nightly", ago=timedelta(hours=1))
    page.reload()
    assert CronJob.primary.get().next_run_at
    amber = page.locator(".ojs-fair").first.evaluate(COLOUR)
    assert next_run.evaluate(BORDER) == amber
    assert amber != page.locator("dt:has-text('Last run') + dd").evaluate(COLOUR)
    # The job that holds it is one click away.
    follow(page, page.get_by_role("link", name="the job"))
    shows(body(page), "report.make")


def test_a_search_of_a_parameter_finds_the_jobs_of_the_handlers_that_have_it(page: Any) -> None:
    wanted = push(queue="email", type="testing.send", args=["ann@example.com", "bill"])
    push(queue="email", type="testing.send", args=["bob@example.com", "bill"])
    page.goto(f"{ADMIN}job/")
    box = page.get_by_role("combobox", name="Search jobs")
    box.press_sequentially("args.to:ann@example.com")
    box.press("Escape")
    with page.expect_navigation():
        box.press("Enter")
    shows(body(page), "1 job")
    counts(page.locator(f"a[href*='{wanted.pk}']"), 1)
    # A search that finds nothing offers the one that does, also inside of an argument.
    push(queue="email", type="testing.send", args=["x", "bill", {"reply": "eve@example.com"}])
    page.goto(f"{ADMIN}job/?q=eve@example.com")
    follow(page, page.get_by_role("link", name="args.reply:eve@example.com"))
    shows(body(page), "1 job")


@pytest.mark.process
def test_a_worker_takes_the_slots_that_its_page_asks_for(page: Any, start: Start) -> None:
    start("--threads", "2:6").ready()
    worker = Worker.primary.get()
    assert worker.concurrency == 2
    page.goto(f"{ADMIN}worker/{worker.pk}/change/")
    act(page, "Change slots")
    page.get_by_label("Slots").fill("7")
    confirm(page)
    shows(body(page), "The worker takes 2 to 6 slots.")
    page.get_by_label("Slots").fill("5")
    confirm(page)

    def has_five() -> bool:
        return Worker.primary.get(pk=worker.pk).concurrency == 5

    eventually(has_five, "the worker announces five slots")


def test_a_list_of_keys_is_turned_and_some_of_it_is_revoked(page: Any) -> None:
    for number in range(51):
        ApiKeyFactory(name=f"shop-{number:02}")
    page.goto(f"{ADMIN}apikey/")
    counts(page.locator("#result_list tbody tr"), 50)
    page.get_by_label("shop-07").check()
    page.get_by_label("Action", exact=True).select_option(label="Revoke")
    follow(page, page.get_by_role("button", name="Go"))
    shows(page.locator(".messagelist"), "1 revoked.")
    shows(page.locator("tr", has_text="shop-07"), "revoked")
    follow(page, page.get_by_role("link", name="Next"))
    shows(page.locator("#result_list"), "shop-50")
    page.get_by_role("searchbox", name="Search").fill("nobody")
    follow(page, page.get_by_role("button", name="Search"))
    follow(page, page.get_by_role("link", name="Show all").last)
    counts(page.locator("#result_list tbody tr"), 50)
