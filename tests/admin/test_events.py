"""Events, newest first: filters and keyset pagination."""

from __future__ import annotations

import re

import pytest

from django_ojs.extensions.events import admin as page
from tests.admin.test_pages import BASE
from tests.admin.users import root
from tests.model_factories import EventFactory

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LIST = f"{BASE}event/"


def rows(text: str) -> int:
    return text.count("<time") - 1  # The page's own.


def test_filters_are_by_type_and_by_subject() -> None:
    EventFactory.create_batch(3)
    EventFactory.create_batch(2, type="queue.resumed", subject="beta")
    client = root()
    assert rows(client.get(LIST, {"type": "queue.resumed"}).content.decode()) == 2
    assert rows(client.get(LIST, {"subject": "alpha"}).content.decode()) == 3
    empty = client.get(LIST, {"subject": "alpha", "type": "queue.resumed"}).content.decode()
    assert "No event like this is recorded" in empty
    assert (
        "No event like this is recorded" in client.get(LIST, {"type": "no.such"}).content.decode()
    )


def test_a_rare_type_is_looked_for_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    EventFactory(type="queue.resumed")
    EventFactory.create_batch(30)
    monkeypatch.setattr(page, "SCAN_LIMIT", 10)
    client, address, pages = root(), f"{LIST}?type=queue.resumed", 0
    while rows(text := client.get(address).content.decode()) == 0:
        assert "among those searched" in text
        (older,) = re.findall(r'href="(\?[^"]*after=[^"]*)"', text)
        address, pages = LIST + older.replace("&amp;", "&"), pages + 1
    assert rows(text) == 1
    assert pages >= 2


def test_the_types_are_in_groups_and_a_group_is_a_filter() -> None:
    EventFactory.create_batch(2, type="queue.resumed")
    EventFactory()
    EventFactory.create_batch(4, type="worker.started")
    page = root().get(LIST, {"type": "queue."}).content.decode()
    assert rows(page) == 3
    assert '<optgroup label="queue.*"><option value="queue." selected>' in page
