"""Limit keys over HTTP: their state, and overrides of their limits (ojs-rate-limiting §10)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import override_settings
from django.utils import timezone

from django_ojs.extensions.limits import claims_by_key, limit_journal
from django_ojs.extensions.limits.models import LimitCheck, LimitKey
from django_ojs.operations import fail, keyset
from django_ojs.spec.failure import Failure
from django_ojs.spec.times import format_timestamp
from tests.cases import together
from tests.factories import MINUTE, push
from tests.http.api import Api, make_key

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def add(key: str = "stripe", number: int = 1, **policy: Any) -> None:
    for _ in range(number):
        push(queue="pay", rate_limit={"key": key, **policy})


def claimed(count: int = 50) -> list[str]:
    return [job["id"] for job in Api().fetch("pay", count=count)]


def open_due() -> None:
    LimitCheck.primary.filter(due_at__lte=timezone.now()).update(due_at=timezone.now() - MINUTE)
    limit_journal.open_due()


@pytest.mark.requirement("RL-005")
def test_the_state_of_a_key() -> None:
    api = Api()
    for key in ("stripe", "a b", "x" * 256):
        api.get(f"rate-limits/{key}").error(*((404, "not_found") if key == "stripe" else BAD))
    rates = {name: {"limit": 5, "period": "PT1H"} for name in ("rate", "throttle")}
    add(number=3, concurrency=2, rate=rates["rate"])
    add("other", concurrency=7, throttle=rates["throttle"])
    first, *_ = claimed()
    found = api.get("rate-limits/stripe").ok()
    resets_at = found["rate"].pop("window_resets_at")
    assert format_timestamp(timezone.now() + HOUR * 0.9) < resets_at
    assert found == {
        "key": "stripe",
        "concurrency": {"limit": 2, "active": 2, "available": 0},
        "rate": {"limit": 5, "period": "PT1H", "current_count": 2},
        "waiting_count": 1,
        "paused": False,
        "override": None,
    }
    listed = api.get("rate-limits?per_page=1").ok()
    assert listed["pagination"] == {"total": 2, "page": 1, "per_page": 1}
    (other,) = listed["items"]
    assert (other["key"], other["waiting_count"]) == ("other", 0)
    assert other["throttle"]["next_allowed_at"] > format_timestamp(timezone.now() + MINUTE)
    assert [each["key"] for each in api.get("rate-limits?page=2&per_page=1").ok()["items"]] == [
        "stripe"
    ]
    fail.fail(
        api.info(first)["id"],
        Failure.parse({"type": "E", "rate_limit_until": format_timestamp(timezone.now() + HOUR)}),
    )
    found = api.get("rate-limits/stripe").ok()
    assert (found["paused"], found["paused_until"] > resets_at) == (True, False)


@pytest.mark.both
@pytest.mark.requirement("RL-R004")
def test_an_override_wins_over_the_limits_of_the_jobs_until_it_ends() -> None:
    api = Api()
    add(number=6, concurrency=1)
    assert len(claimed()) == 1
    # More than each job was enqueued with; the held jobs are opened.
    assert api.put("rate-limits/stripe", {"concurrency": 3}).ok()["override"] == {"concurrency": 3}
    open_due()
    assert len(claimed()) == 2
    # The service is down.
    ends_at = format_timestamp(timezone.now() + HOUR)
    down = {"concurrency": 0, "expires_at": ends_at, "rate": None}
    found = api.put("rate-limits/stripe", down).ok()
    assert found["override"] == {"concurrency": 0, "expires_at": ends_at}
    assert found["concurrency"] == {"limit": 0, "active": 3, "available": 0}
    add(number=1, concurrency=50)
    open_due()
    assert claimed() == []
    assert claims_by_key.prune() == 0
    # Later it is over, and the limits of the jobs hold.
    LimitKey.primary.update(
        override_until=F("override_until") - 2 * HOUR, expires_at=F("expires_at") - 2 * HOUR
    )
    LimitCheck.primary.update(due_at=F("due_at") - 2 * HOUR)
    assert api.get("rate-limits/stripe").ok()["override"] is None
    assert len(claimed()) == 1
    LimitKey.primary.update(limited_since=None)
    assert claims_by_key.prune() == 1


def test_an_override_that_ends_early_leaves_no_check_for_its_end() -> None:
    add(number=3, concurrency=1, rate={"limit": 1, "period": "PT1H"})
    claimed()
    of_the_rate = LimitCheck.primary.count()
    api = Api()
    for until in (HOUR * 24, HOUR * 48):
        at = format_timestamp(timezone.now() + until)
        api.put("rate-limits/stripe", {"concurrency": 2, "expires_at": at}).ok()
    api.delete("rate-limits/stripe").ok()
    open_due()
    assert LimitCheck.primary.count() == of_the_rate == 1


@pytest.mark.requirement("RL-R004")
def test_an_override_is_removed() -> None:
    api = Api()
    add(number=4, concurrency=1)
    for end in (
        lambda: api.delete("rate-limits/stripe").ok() == {"deleted": True, "key": "stripe"},
        lambda: api.put("rate-limits/stripe", {"concurrency": None}).ok()["override"] is None,
        lambda: api.put("rate-limits/stripe", {}).ok()["override"] is None,
    ):
        api.put("rate-limits/stripe", {"rate": {"limit": 9, "period": "PT1H"}, "concurrency": 0})
        assert claimed() == []
        assert end()
        open_due()
        (running,) = claimed()
        api.post("workers/ack", {"job_id": running}).ok()
    api.delete("rate-limits/stripe").error(404, "not_found")
    # Before its first job, a key can have limits too.
    assert api.put("rate-limits/later", {"concurrency": 0}).ok()["waiting_count"] == 0
    add("later")
    assert api.get("rate-limits/later").ok()["waiting_count"] == 1
    assert api.fetch("pay", count=50)[0]["rate_limit"]["key"] == "stripe"


BAD = (400, "invalid_request")


@together(
    ("body", "field", "cure"),
    [
        ({"concurrency": -1}, "concurrency", "integer from 0"),
        ({"concurency": 1}, "concurency", "Did you mean concurrency?"),
        ({"rate": {"limit": 1}}, "rate.period", "PT1M"),
        ({"throttle": 5}, "throttle", "object"),
        ({"on_limit": "drop"}, "on_limit", "The names are concurrency"),
        ({"expires_at": "2030-01-01T00:00:00Z"}, "expires_at", "needs a limit"),
        ({"concurrency": 1, "expires_at": "2020-01-01T00:00:00Z"}, "expires_at", "in the future"),
        ({"concurrency": 1, "expires_at": "soon"}, "expires_at", "RFC 3339"),
    ],
    undo=True,
)
def test_an_override_that_cannot_hold_is_rejected(body: Any, field: str, cure: str) -> None:
    rejection = Api().put("rate-limits/stripe", body).error(*BAD, field=field)
    assert cure in rejection["message"]
    assert not LimitKey.primary.exists()


def test_more_keys_and_jobs_than_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyset, "COUNT_LIMIT", 2)
    for key in ("a", "b", "c"):
        add(key)
    found = Api().get("rate-limits").ok()
    assert [each["key"] for each in found["items"]] == ["a", "b"]
    assert found["pagination"] | {"total": 2, "total_capped": True} == found["pagination"]


@override_settings(OJS={})
def test_a_key_for_one_queue_shares_no_limit_with_jobs_of_another() -> None:
    # Its worker could pause the key, and its jobs could take the places of the others.
    Api(make_key("producer")).push(
        type="a", queue="theirs", rate_limit={"key": "carrier", "concurrency": 5}
    )
    kept = Api(make_key("producer", queues=("mine",)))
    for key in ("carrier", "queue:theirs"):
        job = {"type": "a", "args": [], "queue": "mine"}
        job["rate_limit"] = {"key": key, "concurrency": 5}
        cron = {"name": "c", "cron": "* * * * *", **job}
        for path, body in (("jobs", job), ("jobs/batch", {"jobs": [job]})):
            error = kept.post(path, body).error(403, "PERMISSION_DENIED", field="rate_limit.key")
            assert "rate_limit.key must be left out" in error["message"]
        assert kept.post("cron", cron).status == 403
    kept.push(type="a", queue="mine", rate_limit={"concurrency": 5})
    kept.push(type="a", queue="mine", rate_limit={"key": "queue:mine", "concurrency": 5})
