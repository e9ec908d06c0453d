"""A search is typed with suggestions, by keyboard and by mouse, and saved under a name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.test_accessibility import violations
from tests.browser.test_journeys import ADMIN, body, counts, follow, shows
from tests.factories import in_state, push

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_search_is_typed_with_suggestions_and_saved(page: Any) -> None:
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
    page.get_by_text("Saved searches").click()
    page.get_by_label("Save this search as").fill("Failed mail")
    follow(page, page.get_by_role("button", name="Save"))
    page.goto(f"{ADMIN}job/")
    page.get_by_text("Saved searches").click()
    assert violations(page) == []
    follow(page, page.get_by_role("link", name="Failed mail"))
    assert box.input_value() == "state:discarded queue:email"
