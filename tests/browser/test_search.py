"""A search is typed with suggestions, and says what it cannot read."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from tests.browser.test_accessibility import violations
from tests.browser.test_journeys import ADMIN, body, counts, follow, shows
from tests.factories import in_state, jobs, push, push_many

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


#: Searches that cannot be read, and what the page says was meant.
UNREADABLE = {
    "colour:red queue:email": "There is no qualifier colour",
    "user2666@example.com": "args.NAME:user2666@example.com",
    "state:failed": "There is no state failed. Did you mean discarded?",
    "HTTP502": "error:HTTP502",
    "tenant_id:acme": "Did you mean meta.tenant_id:acme",
    "queue:emial": "There is no queue emial. Did you mean email?",
    "queue:email state:failed": "Did you mean discarded?",
}


def test_a_search_is_typed_with_suggestions(page: Any) -> None:
    failed = in_state("discarded", queue="email")
    waiting = push(queue="email")
    in_state("discarded", queue="other")
    page.goto(f"{ADMIN}job/")
    box = page.get_by_role("combobox", name="Search jobs")
    options = page.get_by_role("option")
    box.press_sequentially("sta")
    shows(options, "state:")
    assert violations(page) == []
    box.press("ArrowDown")
    assert options.first.get_attribute("aria-selected") == "true"
    box.press("Enter")
    assert box.input_value() == "state:"
    box.press_sequentially("disc")
    counts(options, 1)
    box.press("ArrowDown")
    box.press("Tab")
    assert box.input_value() == "state:discarded "
    box.press_sequentially("queue:em")
    options.first.click()
    assert box.input_value() == "state:discarded queue:email "
    box.press_sequentially("typ")
    counts(options, 1)
    box.press("Escape")
    counts(options, 0)
    for _ in "typ":
        box.press("Backspace")
    with page.expect_navigation():
        box.press("Enter")
    shows(body(page), "1 job")
    listed = page.content()
    assert str(failed.pk) in listed
    assert str(waiting.pk) not in listed


def test_a_search_that_cannot_be_read_finds_nothing_and_a_day_is_one_of_the_page(
    page: Any,
) -> None:
    in_state("discarded", queue="email")
    late, early = push_many(2, queue="email")
    # In Tokyo the second is an hour old on the 18th.
    jobs().filter(pk=late.pk).update(created_at="2099-11-18T16:00Z")
    jobs().filter(pk=early.pk).update(created_at="2099-11-17T16:00Z")
    page.goto(f"{ADMIN}job/")
    box = page.get_by_label("Search jobs")
    counts(page.locator("#ojs-jobs tbody tr"), 3)
    for search, meant in UNREADABLE.items():
        box.fill(search)
        with page.expect_navigation():
            box.press("Enter")
        shows(page.locator(".ojs-search-error"), meant)
        counts(page.locator("#ojs-jobs tbody tr"), 0)
        # Nothing can be done to jobs that were not searched for.
        counts(page.locator("#ojs-jobs .ojs-button"), 0)
    follow(page, page.get_by_role("navigation", name="States").get_by_text("available"))
    assert box.input_value() == "state:available"
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        box.fill("created:2099-11-18")
        with page.expect_navigation():
            box.press("Enter")
        counts(page.locator("#ojs-jobs tbody tr"), 1)
        follow(page, page.locator("#ojs-jobs tbody th a"))
        assert page.url.endswith(f"/job/{early.pk}/change/")
        counts(page.get_by_title("2099-11-18 01:00:00 JST").first, 1)


def test_the_parameters_of_handlers_are_suggested_and_a_search_that_was_meant_is_a_link(
    page: Any,
) -> None:
    push(queue="email", type="testing.send", args=["ann@example.com"])
    page.goto(f"{ADMIN}job/")
    box = page.get_by_role("combobox", name="Search jobs")
    box.press_sequentially("args.templ")
    shows(page.get_by_role("option"), "args.template:")
    page.goto(f"{ADMIN}job/?q=ann@example.com")
    follow(page, page.get_by_role("link", name="args:ann@example.com"))
    shows(body(page), "1 job")
