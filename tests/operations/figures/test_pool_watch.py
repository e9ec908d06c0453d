"""What maintenance tells of pools: queues that are not served, and no free worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_ojs.models import Event
from django_ojs.operations import ack, queues
from django_ojs.operations.beat import Registration
from django_ojs.operations.events import log
from django_ojs.operations.figures import pool_watch
from django_ojs.operations.figures.pool_watch import PoolWatch
from django_ojs.spec.times import parse_duration
from tests.factories import MINUTE, active, age, push, push_many, worker
from tests.http.api import Api

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _pools(settings: Any) -> None:
    pool = {"queues": ["images", "videos"], "concurrency": 3}
    settings.OJS = {**settings.OJS, "POOLS": {"gpu": pool}}


def told(watch: PoolWatch) -> list[Event]:
    last = Event.primary.order_by("-id").values_list("id", flat=True).first() or 0
    number = watch.check()
    found = list(Event.primary.filter(id__gt=last).order_by("id"))
    assert len(found) == number
    return found


@pytest.fixture
def a_minute_later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let a minute pass for the watch."""

    def pass_by() -> None:
        later = pool_watch.monotonic() + pool_watch.QUIET
        monkeypatch.setattr(pool_watch, "monotonic", lambda: later)

    return pass_by


def start() -> None:
    registration = Registration(queues=("images", "videos"), pool="gpu", concurrency=2)
    worker("w-1", registration=registration)


@pytest.mark.requirement("FS-R007")
def test_a_queue_that_is_not_served_is_an_event_once_until_it_is(
    a_minute_later: Callable[[], None],
) -> None:
    watch, began = PoolWatch(), time.monotonic()
    waiting, *_ = push_many(3, queue="images")
    age(waiting.pk, 2 * MINUTE)
    assert told(watch) == []  # Without a worker, the finding of the overview says so.
    start()
    queues.pause("images")
    assert told(watch) == []
    queues.resume("images")
    (event,) = told(watch)
    assert (event.type, event.subject, event.queue) == (
        "scheduling.queue_starved",
        "images",
        "images",
    )
    # The time of the test counts as well, in whole seconds.
    waited = parse_duration(event.data.pop("duration"), "duration")
    assert 2 * MINUTE <= waited <= 2 * MINUTE + timedelta(seconds=time.monotonic() - began)
    assert event.data == {"queue": "images", "available_count": 3}
    assert told(watch) == []
    running = active(queue="videos", worker_id="w-1")
    push(queue="videos")
    assert told(watch) == []  # That one is served.
    ack.ack(running.id)
    claimed = active(queue="images", priority=100)
    assert told(watch) == []
    ack.ack(claimed.id)
    a_minute_later()
    assert [each.subject for each in told(watch)] == ["images"]
    log.settle()
    found = Api().get("events?types=scheduling.*").ok()["events"]
    assert [each["source"].rpartition("/")[2] for each in found] == ["scheduler"] * 2


@pytest.mark.requirement("FS-R008")
def test_a_pool_without_a_free_place_is_an_event_while_jobs_wait(
    a_minute_later: Callable[[], None],
) -> None:
    watch = PoolWatch()
    start()
    running = [active(queue="images", worker_id="w-1") for _ in range(2)]
    assert told(watch) == []
    push_many(2, queue="videos")
    (event,) = told(watch)
    assert (event.type, event.subject, event.queue) == ("scheduling.pool_overloaded", "gpu", "")
    assert event.data == {"pool": "gpu", "active_jobs": 2, "waiting_jobs": 2}
    assert told(watch) == []
    ack.ack(running[0].id)
    assert told(watch) == []
    active(queue="images", worker_id="w-1")
    assert told(watch) == []  # It changes from look to look.
    ack.ack(running[1].id)
    a_minute_later()
    assert told(watch) == []
    active(queue="images", worker_id="w-1")
    assert [each.subject for each in told(watch)] == ["gpu"]


@pytest.mark.requirement("FS-R009")
def test_the_use_of_pools_is_a_metric(settings: Any) -> None:
    start()
    active(queue="images", worker_id="w-1")
    text = Api().get("/ojs/metrics").raw.content.decode()
    assert 'ojs_scheduling_pool_utilization{pool="gpu"} 0.5' in text
    assert 'ojs_scheduling_dispatch_ratio{queue="images"} 0.0' in text
    settings.OJS = {**settings.OJS, "POOLS": {}}
    assert "ojs_scheduling" not in Api().get("/ojs/metrics").raw.content.decode()


def test_without_pools_nothing_is_read(settings: Any, django_assert_num_queries: Any) -> None:
    settings.OJS = {**settings.OJS, "POOLS": {}}
    with django_assert_num_queries(0):
        assert PoolWatch().check() == 0
