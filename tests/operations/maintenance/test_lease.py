"""The lease on work that one worker does for all."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from django_ojs.models import Lease
from django_ojs.operations.maintenance import lease
from tests.factories import HOUR, MINUTE, age_lease

pytestmark = pytest.mark.django_db


@pytest.fixture
def an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of two seconds, which may go by on a busy machine."""
    monkeypatch.setattr(lease, "TERM", HOUR)


@pytest.mark.usefixtures("an_hour")
def test_the_first_to_ask_has_it_and_the_next_one_not() -> None:
    assert [lease.take("a"), lease.take("b"), lease.take("a")] == [True, False, True]
    assert Lease.objects.get().holder == "a"
    assert str(Lease.objects.get()) == lease.MAINTENANCE


@pytest.mark.requirement("CRON-23")
def test_it_lasts_two_seconds_from_the_last_time_it_was_taken(
    request: pytest.FixtureRequest,
) -> None:
    assert lease.TERM.total_seconds() == 2
    request.getfixturevalue("an_hour")
    lease.take("a")
    age_lease(lease.MAINTENANCE, HOUR / 2)
    lease.take("a")
    assert Lease.objects.filter(until__range=(Now() + 55 * MINUTE, Now() + 65 * MINUTE)).exists()


@pytest.mark.requirement("CRON-22", "CRON-S05")
def test_it_passes_on_when_its_holder_did_not_come_back() -> None:
    lease.take("a")
    age_lease(lease.MAINTENANCE, MINUTE)
    assert [lease.take("b"), lease.take("a")] == [True, False]


@pytest.mark.usefixtures("an_hour")
def test_to_ask_while_another_has_it_is_one_statement_that_writes_nothing() -> None:
    lease.take("a")
    with CaptureQueriesContext(connection) as queries:
        assert not lease.take("b")
    assert [query["sql"].partition(" ")[0] for query in queries] == ["SELECT"]


def test_only_its_holder_renews_it(request: pytest.FixtureRequest) -> None:
    assert not lease.renew("a")
    lease.take("a")
    request.getfixturevalue("an_hour")
    assert not lease.renew("b")
    assert lease.renew("a")
    assert Lease.objects.filter(holder="a", until__gt=Now() + 55 * MINUTE).exists()


def test_it_does_not_outlast_a_clock_that_is_set_back() -> None:
    lease.take("a")
    age_lease(lease.MAINTENANCE, -MINUTE)  # The holder is dead, and the clock a minute behind.
    assert lease.take("b") is True


def test_given_back_it_is_free_at_once() -> None:
    lease.take("a")
    lease.give("a")
    assert lease.take("b") is True


@pytest.mark.usefixtures("an_hour")
def test_nobody_gives_back_what_another_holds() -> None:
    lease.take("a")
    lease.give("b")
    assert lease.take("b") is False


def test_there_is_one_for_each_name() -> None:
    assert lease.take("a", "one") is True
    assert lease.take("b", "two") is True
    lease.give("a", "one")
    assert Lease.objects.get().name == "two"
