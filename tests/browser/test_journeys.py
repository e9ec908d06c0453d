"""What an operator does in an incident, clicked through from start to end."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from django_ojs.extension import Actor
from django_ojs.extensions.backpressure.operations import pressure_monitor
from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.findings import FEWEST_RUNS
from django_ojs.models import ActorKind
from django_ojs.operations import ack, fail, fetch, queues
from django_ojs.operations.access import operator
from django_ojs.operations.jobs import bulk_execution
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import QueueFull
from django_ojs.spec.failure import Failure
from tests.admin.users import at
from tests.browser.conftest import TIMEOUT_MS
from tests.factories import (
    WorkerFactory,
    active,
    claim,
    hourly,
    in_state,
    jobs,
    push,
    push_many,
    read,
    silence,
)
from tests.model_factories import RollupFactory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

ADMIN = "/admin/django_ojs/"

#: Runs the refresh of the page at once, and resolves when its response has been applied or skipped.
REFRESH = """() => new Promise(resolve => {
    document.addEventListener("ojs-refreshed", () => resolve(), { once: true });
    document.dispatchEvent(new Event("visibilitychange"));
})"""


#: The tables that are wider than what is shown of them.
CUT_TABLES = """() => [...document.querySelectorAll(".ojs-scroll > table")]
    .filter(each => each.checkVisibility() && each.offsetWidth > each.parentElement.clientWidth)
    .map(each => each.innerText.slice(0, 80))"""


def shows(found: Any, text: str | re.Pattern[str]) -> None:
    """Wait until an element contains a text."""
    from playwright.sync_api import expect

    expect(found).to_contain_text(text, use_inner_text=True, timeout=TIMEOUT_MS)


def counts(found: Any, number: int) -> None:
    """Wait until so many elements match."""
    from playwright.sync_api import expect

    expect(found).to_have_count(number, timeout=TIMEOUT_MS)


def body(page: Any) -> Any:
    """Return the part of a page that this package renders."""
    return page.locator(".ojs-page")


def follow(page: Any, link: Any) -> None:
    """Click a link or button, and wait for the page that it opens: a click returns before."""
    with page.expect_navigation():
        link.click()


def act(page: Any, name: str) -> None:
    """Press one of the buttons at the top."""
    follow(page, page.locator(".ojs-page .ojs-buttons").get_by_text(name).first)


def confirm(page: Any) -> None:
    """Submit the confirmation page."""
    follow(page, page.locator("form.ojs-confirm button[type=submit]"))


def test_a_queue_fills_and_turns_red_is_paused_and_given_more_room(page: Any) -> None:
    queues.configure("email", {"backpressure": {"max_depth": 4}})
    push_many(1, queue="email")
    page.goto(f"{ADMIN}queue/")
    shows(body(page), "25")
    counts(page.locator(".ojs-gauge-bad"), 0)
    push_many(3, queue="email")
    pressure_monitor.check_all()
    # Without a reload: the page refreshes itself.
    page.locator(".ojs-gauge-bad").wait_for(state="attached")
    follow(page, page.get_by_role("link", name="email", exact=True).first)
    shows(body(page), "full")
    act(page, "Pause")
    shows(body(page), "paused")
    assert fetch.fetch(["email"], worker_id="w") == []
    act(page, "Resume")
    act(page, "Configure")
    page.get_by_label("Maximum jobs").fill("100")
    confirm(page)
    pressure_monitor.check_all()
    page.goto(f"{ADMIN}queue/")
    shows(body(page), "email")
    counts(page.locator(".ojs-gauge-bad"), 0)
    assert len(push_many(10, queue="email")) == 10


def test_the_cause_of_a_red_queue_is_found_with_one_click(page: Any) -> None:
    queues.configure("email", {"backpressure": {"max_depth": 4}})
    for _ in range(FEWEST_RUNS):
        claimed = active(queue="email", type="email.send", retry=hourly(1))
        fail.fail(claimed.id, Failure(type="SMTPRefused", message="550"))
    rollups.flush()
    push_many(4, queue="email")
    with pytest.raises(QueueFull):
        push(queue="email")
    rollups.flush()
    pressure_monitor.check_all()
    page.goto(f"{ADMIN}queue/")
    counts(page.locator(".ojs-gauge-bad"), 1)
    follow(page, page.get_by_role("link", name="email", exact=True).first)
    problems = page.get_by_role("list", name="Problems")
    shows(problems, "Queue email is full")
    shows(problems, "1 job rejected")
    shows(problems, "The last 10 runs of email.send all failed in email")
    counts(problems.get_by_role("link", name="Its failed jobs"), 1)
    counts(problems.get_by_role("link", name="Configure…"), 1)


def test_the_job_of_one_customer_is_found_with_two_clicks(page: Any) -> None:
    claimed = active(queue="email", type="email.send", args=[{"user_id": 42}], retry=hourly(3))
    fail.fail(claimed.id, Failure(type="SMTPRefused", message="550 no such user"))
    push_many(3, queue="email", args=[{"user_id": 41}])
    page.goto(f"{ADMIN}overview/")
    follow(page, page.get_by_role("navigation", name="Pages of").get_by_text("Jobs", exact=True))
    page.get_by_label("Search jobs").fill("args.user_id:42")
    follow(page, page.get_by_role("button", name="Search"))
    row = page.locator("#ojs-jobs tbody tr")
    counts(row, 1)
    shows(row, "email.send")
    shows(row, "retryable")
    shows(row, "550 no such user")


def test_a_group_of_dead_letters_is_retried_after_the_fix_with_three_clicks(page: Any) -> None:
    policy = hourly(1, on_exhaustion="dead_letter")
    for _ in range(12):
        claimed = active(queue="payments", type="payment.charge", retry=policy)
        fail.fail(claimed.id, Failure(type="GatewayDown", message="No response in 10 s."))
    page.goto(f"{ADMIN}overview/")
    follow(page, page.get_by_role("navigation", name="Pages of").get_by_text("Dead letters"))
    row = page.locator(".ojs-page tbody tr", has_text="GatewayDown")
    shows(row, "12")
    counts(page.get_by_role("link", name="Retry all 12…"), 1)
    follow(page, row.get_by_role("link", name="Retry group"))
    shows(body(page), "12 jobs")
    follow(page, page.get_by_role("button", name="Retry all"))
    shows(body(page), "waiting")
    while bulk_execution.work_once(chunk=5) is not None:
        pass
    shows(body(page), "✓ done")
    # It leads to what became of them.
    became = page.locator("h2", has_text="The retried jobs now").locator("+ p")
    shows(became, "12 not ended")
    for number, claimed in enumerate(fetch.fetch(["payments"], count=11, worker_id="w")):
        if number < 8:
            ack.ack(claimed.id)
        else:
            fail.fail(claimed.id, Failure(type="GatewayDown", message="Again."))
    page.evaluate(REFRESH)
    shows(became, "8 completed, 3 failed again, 1 not ended.")
    for label, state, number in (
        ("1 not ended", "available", 1),
        ("8 completed", "completed", 8),
        ("3 failed again", "discarded", 3),
    ):
        follow(page, became.get_by_role("link", name=label))
        counts(page.locator("#ojs-jobs tbody tr", has_text=state), number)
        counts(page.locator("#ojs-jobs tbody tr"), number)
        page.go_back()


def test_one_job_is_found_and_cancelled_while_it_runs(page: Any) -> None:
    claimed = active(queue="email", args=[{"user_id": 42}])
    push_many(5, queue="email")
    page.goto(f"{ADMIN}job/")
    page.get_by_label("Search jobs").fill("args.user_id:42 queue:email")
    follow(page, page.get_by_role("button", name="Search"))
    shows(body(page), "1 job")
    follow(page, page.locator(".ojs-page tbody th a"))
    counts(page.get_by_role("list", name="Path of the job: available → active"), 1)
    shows(body(page), '"user_id": 42')
    follow(page, page.get_by_role("link", name="Cancel"))
    shows(body(page), "running job")
    # Neither of the two is called just Cancel.
    counts(page.locator("form.ojs-confirm").get_by_text("Cancel", exact=True), 0)
    counts(page.get_by_role("link", name="Keep it running"), 1)
    follow(page, page.get_by_role("button", name="Cancel this job"))
    shows(body(page), "⊘ cancelled")
    assert read(claimed.id).state == "cancelled"
    shows(body(page), "History")
    shows(body(page), "ann")


def test_the_arguments_of_a_job_are_copied_with_one_click(page: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    job = push(queue="email", args=[{"user_id": 42}])
    page.goto(f"{ADMIN}job/{job.pk}/change/")
    for refreshed in (False, True):
        if refreshed:  # The button is in a region that the refresh has replaced.
            page.evaluate(REFRESH)
        value = page.locator(".ojs-json", has_text="user_id")
        value.get_by_role("button", name="Copy").click()
        value.get_by_role("button", name="Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert json.loads(copied) == [{"user_id": 42}]


def test_selected_jobs_stay_selected_when_the_page_refreshes(page: Any) -> None:
    made = push_many(3, queue="email")
    page.goto(f"{ADMIN}job/")
    page.evaluate(REFRESH)
    boxes = page.locator(".ojs-page tbody input[type=checkbox]")
    boxes.first.check()
    push(queue="email", type="test.later")
    page.evaluate(REFRESH)
    assert "test.later" not in body(page).inner_text()
    assert boxes.first.is_checked()
    follow(page, page.get_by_role("button", name="Cancel"))
    confirm(page)
    shows(page.locator(".messagelist"), "Cancelled.")
    assert sum(read(job.pk).state == "cancelled" for job in made) == 1


def test_the_jobs_of_a_page_and_then_of_a_search_are_selected_at_once(page: Any) -> None:
    push_many(3, queue="email")
    push(queue="other")
    page.goto(f"{ADMIN}job/?q=queue:email")
    every = page.get_by_label("Select all on this page")
    for refreshed in (False, True):
        if refreshed:  # The head of the table is in a region that the refresh has replaced.
            page.evaluate(REFRESH)
        every.check()
        shows(body(page), "With 3 selected:")
        every.uncheck()
        every.blur()
    page.locator(".ojs-page tbody input[type=checkbox]").first.check()
    shows(body(page), "With 1 selected:")
    assert every.evaluate("box => box.indeterminate")
    follow(page, page.get_by_role("link", name="Select all 3 that match"))
    counts(page.locator(".ojs-page tbody input[type=checkbox]:checked:disabled"), 3)
    # No row is selected by the user, so the page is refreshed.
    push(queue="email")
    page.evaluate(REFRESH)
    shows(body(page), "all 4 jobs of this search")
    act(page, "Cancel")
    shows(body(page), "4 jobs")
    confirm(page)
    bulk_execution.work()
    states = jobs().values_list("queue", "state")
    assert sorted(states) == [*[("email", "cancelled")] * 4, ("other", "available")]


def test_a_page_says_whether_it_is_live_and_its_rows_do_not_move_under_the_mouse(page: Any) -> None:
    push(queue="email", type="test.first")
    page.goto(f"{ADMIN}job/")
    line = page.locator(".ojs-live")
    shows(line, "Live, ")
    counts(line.get_by_role("button"), 1)
    # Rows that would move under the mouse are announced, and shown on a click.
    page.locator(".ojs-page tbody th a").hover()
    push_many(2, queue="email", type="test.later")
    page.evaluate(REFRESH)
    shows(line, "2 new")
    assert "test.later" not in body(page).inner_text()
    line.get_by_role("button", name="2 new").click()
    shows(body(page), "test.later")
    # Away from the rows, they come by themselves, unless the page is paused.
    page.mouse.move(0, 0)
    push(queue="email", type="test.last")
    page.evaluate(REFRESH)
    shows(body(page), "test.last")
    line.get_by_role("button", name="Pause updates").click()
    shows(line, "Paused, as of")
    line.get_by_role("button", name="Resume updates").click()
    shows(line, "Live, ")
    # One failure may be a deployment; after two the page says that it is stale.
    page.route("**/job/", lambda route: route.abort())
    page.evaluate(REFRESH)
    shows(line, "Live, ")
    page.evaluate(REFRESH)
    shows(line, "The server does not respond. As of")
    page.unroute("**/job/")
    page.evaluate(REFRESH)
    shows(line, "Live, ")
    job = push(queue="email")
    page.goto(f"{ADMIN}job/{job.pk}/change/")
    jobs().filter(pk=job.pk).delete()
    page.evaluate(REFRESH)
    shows(line, "This is gone")
    page.goto(f"{ADMIN}job/")
    page.context.clear_cookies()
    page.evaluate(REFRESH)
    shows(line, "You are logged out")


def test_a_press_is_not_lost_to_a_refresh_between_down_and_up(page: Any) -> None:
    push(queue="email")
    page.goto(f"{ADMIN}job/")
    place = page.locator(".ojs-page tbody th a").bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.down()
    page.evaluate(REFRESH)
    with page.expect_navigation():
        page.mouse.up()
    counts(page.get_by_role("list", name="Path of the job: available"), 1)


def test_the_overview_follows_every_two_seconds_for_who_wants_it(page: Any) -> None:
    push(queue="email")
    page.goto(f"{ADMIN}overview/")
    faster = page.get_by_role("button", name="Update every 2 s")
    assert faster.get_attribute("aria-pressed") == "false"
    ready = page.locator("#ojs-now tbody td[data-label=Ready]")
    shows(ready, "1")
    push_many(2, queue="email")
    with page.expect_response(lambda response: "live=1" in response.url) as found:
        faster.click()
    assert "<html" not in found.value.text()
    shows(ready, "3")
    assert faster.get_attribute("aria-pressed") == "true"
    # The browser remembers it, and the page asks by itself.
    page.goto(f"{ADMIN}overview/")
    push(queue="email")
    with page.expect_response(lambda response: "live=1" in response.url):
        pass
    shows(ready, "4")
    faster.click()
    assert faster.get_attribute("aria-pressed") == "false"
    # Pages without such a region have no such button.
    page.goto(f"{ADMIN}queue/")
    shows(page.locator(".ojs-live"), "Live")
    counts(page.get_by_role("button", name="Update every 2 s"), 0)


def test_on_a_telephone_the_navigation_and_the_numbers_of_a_row_are_on_the_screen(
    page: Any,
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    push_many(3, queue="email")
    page.goto(f"{ADMIN}overview/")
    navigation = page.get_by_role("navigation", name="Pages of background jobs")
    shows(navigation, "1")
    assert navigation.bounding_box()["height"] < 50, "It takes one line."
    follow(page, navigation.get_by_role("link", name="Queues"))
    cells = page.locator("#ojs-queues tbody td:visible")
    right = cells.evaluate_all("all => Math.max(...all.map(e => e.getBoundingClientRect().right))")
    assert right <= 390
    # The names of the columns stand before the numbers, since the head of the table is hidden.
    label = page.locator("#ojs-queues td[data-label^=Ready]").evaluate(
        "cell => getComputedStyle(cell, '::before').content"
    )
    assert "Ready" in label
    # Django's own lists have no names of columns in their cells.
    limit_keys.override("customer:4711", {"concurrency": 3})
    page.goto("/admin/ojs_limits/limitkey/")
    current = navigation.locator("summary")
    shows(current, "Limit keys")
    box = current.bounding_box()
    assert box["x"] >= 0, "The page that is open is on the screen."
    assert box["x"] + box["width"] <= 390
    cells = page.locator("#result_list tbody :is(th, td):visible")
    right = cells.evaluate_all("all => Math.max(...all.map(e => e.getBoundingClientRect().right))")
    assert right <= 390
    shows(cells.first, "")
    label = page.locator("#result_list .field-overridden").evaluate(
        "cell => getComputedStyle(cell, '::before').content"
    )
    assert "Override" in label


def test_no_page_is_wider_than_its_window(page: Any) -> None:
    policy = hourly(1, on_exhaustion="dead_letter")
    claimed = active(queue="q" * 60, type="t" * 60, args=["x" * 500], retry=policy)
    fail.fail(claimed.id, Failure(type="E" * 80, message="m" * 500, backtrace=("f" * 300,)))
    WorkerFactory(id="w" * 80)
    claim(push(queue="held"), "w" * 80)
    silence("w" * 80, timedelta(hours=37, minutes=44))
    WorkerFactory(id="ended")
    active("ended", type="t" * 60)
    rescue.rescue(["ended"])
    RollupFactory(
        ago=timedelta(minutes=5),
        queue="q" * 60,
        type="t" * 60,
        enqueued=123_456_789,
        completed=123_456_789,
        waited=[0] * 20 + [8, 0, 1, 0],
        ran=[0] * 20 + [8, 0, 1, 0],
    )
    with operator.acting(Actor(kind=ActorKind.API_KEY, name="a" * 80, source_ip="f" * 39)):
        queues.configure("q" * 60, {"backpressure": {"max_depth": 5}, "producers": ["p" * 80]})
    addresses = (
        *("overview/", "queue/", f"queue/{'q' * 60}/change/", "worker/", "event/", "job/"),
        *(f"worker/{'w' * 80}/change/", f"queue/action/configure/?key={'q' * 60}"),
        *(
            "worker/ended/change/",
            f"job/{claimed.id}/change/",
            "job/gone/change/",
            "deadletterjob/",
            "bulkoperation/",
        ),
        *(
            "bulkoperation/create/retry/?q=is:dead",
            "auditentry/?by=all",
            f"job/enqueue/?type={'t' * 60}",
        ),
        *("job/enqueue/?type=testapp.add", f"job/enqueue/?copy={claimed.id}", "job/enqueue/"),
    )
    # One test, because to start a browser takes longer than to look at all pages.
    for address in addresses:
        page.goto(at(address))
        # Only style sheets depend on these: a page need not be loaded for each of them.
        for width, scheme in ((1280, "light"), (390, "dark")):
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme=scheme)
            widths = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
            assert widths[0] == width
            assert widths[1] <= width, f"{address} at {width} pixels, {scheme}"
        cut = page.evaluate(CUT_TABLES)
        assert cut == [], f"{address}: columns outside of the screen of a telephone"


def test_other_pages_and_actions_are_behind_more_by_mouse_and_by_keyboard(page: Any) -> None:
    job = in_state("discarded", retry=hourly(1, on_exhaustion="dead_letter"))
    page.goto(f"{ADMIN}job/{job.pk}/change/")
    pages, actions = page.locator(".ojs-navigation summary"), page.locator(".ojs-buttons summary")
    events = page.get_by_role("link", name="Events", exact=True)
    again = page.get_by_role("link", name="Run again…")
    counts(page.locator(".ojs-more[open]"), 0)
    pages.click()
    counts(page.locator(".ojs-more[open]"), 1)
    shows(page.locator(".ojs-navigation .ojs-more ul"), "Events")
    # One list at a time.
    actions.click()
    counts(page.locator(".ojs-navigation .ojs-more[open]"), 0)
    assert again.is_visible()
    page.keyboard.press("Escape")
    counts(page.locator(".ojs-more[open]"), 0)
    assert actions.evaluate("each => each === document.activeElement")
    page.keyboard.press("Enter")
    follow(page, again)
    shows(page.locator("#content"), "what it did the first time")
    pages.click()
    follow(page, events.last)
    shows(pages, "Events")
