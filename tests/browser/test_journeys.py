"""What an operator does on a bad day, clicked through from one end to the other."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.models import Worker
from django_ojs.operations import bulk_operations, fail, fetch, jobs, pressure, queues
from django_ojs.spec.failure import Failure
from django_ojs.storage import database
from tests.factories import active, hourly, push, push_many, read
from tests.factories import worker as worker_that_beats

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

ADMIN = "/admin/django_ojs/"


def text(page: Any) -> str:
    return str(page.locator(".ojs-page").inner_text())


def act(page: Any, name: str) -> None:
    """Press a button, and say yes where it asks."""
    button = page.locator(".ojs-page .ojs-buttons").get_by_text(name)
    with page.expect_navigation():
        button.first.click()
    if page.locator("form.ojs-confirm").count():
        with page.expect_navigation():
            page.locator("form.ojs-confirm button[type=submit]").click()


def test_a_queue_fills_and_turns_red_is_paused_and_given_more_room(page: Any) -> None:
    queues.configure("email", {"backpressure": {"max_depth": 4}})
    push_many(1, queue="email")
    page.goto(f"{ADMIN}queue/")
    assert "25" in text(page)
    assert page.locator(".ojs-gauge-bad").count() == 0
    push_many(3, queue="email")
    pressure.watch()
    # Nobody reloads: the page brings itself up to date.
    page.locator(".ojs-gauge-bad").wait_for(state="attached", timeout=30_000)
    page.get_by_role("link", name="email", exact=True).first.click()
    assert "full" in text(page)
    act(page, "Pause")
    page.locator("text=paused").first.wait_for()
    assert fetch.fetch(["email"], worker_id="w") == []
    act(page, "Resume")
    page.get_by_role("link", name="Configure").click()
    page.get_by_label("Most jobs").fill("100")
    with page.expect_navigation():
        page.locator("form.ojs-confirm button[type=submit]").click()
    pressure.watch()
    page.goto(f"{ADMIN}queue/")
    assert page.locator(".ojs-gauge-bad").count() == 0
    assert len(push_many(10, queue="email")) == 10


def test_a_group_of_dead_letters_is_retried_after_the_fix(page: Any) -> None:
    policy = hourly(1, on_exhaustion="dead_letter")
    for _ in range(12):
        claimed = active(queue="payments", type="payment.charge", retry=policy)
        fail.fail(claimed.id, Failure(type="GatewayDown", message="No answer in 10 s."))
    page.goto(f"{ADMIN}deadletter/")
    row = page.locator(".ojs-page tbody tr", has_text="GatewayDown")
    assert "12" in row.inner_text()
    row.get_by_role("link", name="Retry group").click()
    assert "12 jobs" in text(page)
    page.get_by_role("button", name="Retry them").click()
    page.locator("text=waiting").first.wait_for()
    while bulk_operations.work_once(chunk=5) is not None:
        pass
    page.locator("text=✓ done").first.wait_for()
    assert jobs().filter(queue="payments", state="available").count() == 12
    page.goto(f"{ADMIN}deadletter/")
    assert "There are none" in text(page)


def test_one_job_is_found_and_cancelled_while_it_runs(page: Any) -> None:
    claimed = active(queue="email", args=[{"user_id": 42}])
    push_many(5, queue="email")
    page.goto(f"{ADMIN}job/")
    page.get_by_label("Search jobs").fill("args.user_id:42 queue:email")
    page.get_by_role("button", name="Search").click()
    assert "1 job" in text(page)
    page.locator(".ojs-page tbody th a").click()
    assert page.get_by_role("img", name="available → active").count() == 1
    assert '"user_id": 42' in text(page)
    page.get_by_role("link", name="Cancel").click()
    assert "running job" in text(page)
    page.get_by_role("button", name="Cancel").click()
    page.locator("text=⊘ cancelled").first.wait_for()
    assert read(claimed.id).state == "cancelled"
    assert "Who did what" in text(page)
    assert "ann" in text(page)


def test_a_search_that_cannot_be_read_says_what_can(page: Any) -> None:
    push(queue="email")
    page.goto(f"{ADMIN}job/")
    page.get_by_label("Search jobs").fill("colour:red queue:email")
    page.keyboard.press("Enter")
    page.locator(".ojs-complaint").wait_for()
    assert "There is no qualifier colour" in text(page)
    page.get_by_role("navigation", name="States").get_by_text("available").click()
    assert page.get_by_label("Search jobs").input_value() == "state:available queue:email"


def test_ticked_jobs_stay_ticked_while_the_page_would_refresh(page: Any) -> None:
    made = push_many(3, queue="email")
    page.goto(f"{ADMIN}job/")
    page.locator(".ojs-page tbody input[type=checkbox]").first.check()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_load_state("networkidle")
    assert page.locator(".ojs-page tbody input[type=checkbox]").first.is_checked()
    page.get_by_role("button", name="Cancel").click()
    page.locator("form.ojs-confirm button[type=submit]").click()
    page.locator("text=Cancelled.").first.wait_for()
    assert sum(read(job.pk).state == "cancelled" for job in made) == 1


def test_a_worker_is_quieted(page: Any) -> None:
    worker_that_beats("web-1")
    page.goto(f"{ADMIN}worker/")
    page.get_by_role("link", name="web-1", exact=True).first.click()
    act(page, "Quiet")
    page.locator(".messagelist").wait_for()
    found = Worker.objects.using(database.alias()).get(pk="web-1")
    assert found.directive == "quiet"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_its_window(page: Any, width: int, scheme: str) -> None:
    policy = hourly(1, on_exhaustion="dead_letter")
    claimed = active(queue="q" * 60, type="t" * 60, args=["x" * 500], retry=policy)
    fail.fail(claimed.id, Failure(type="E" * 80, message="m" * 500, backtrace=("f" * 300,)))
    worker_that_beats("w" * 80)
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    for address in (
        *("overview/", "queue/", f"queue/{'q' * 60}/change/", "worker/", "event/", "job/"),
        *(f"job/{claimed.id}/change/", "deadletter/", "bulkoperation/"),
        "bulkoperation/order/retry/?q=is:dead",
    ):
        page.goto(ADMIN + address)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
