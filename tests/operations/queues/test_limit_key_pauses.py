"""A handler whose service rejects calls pauses the key of its job (ojs-rate-limiting §9.1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

import django_ojs as ojs
from django_ojs.extensions.limits import claims_by_key, findings, limit_journal, limit_keys
from django_ojs.extensions.limits.models import HELD, LimitCheck, LimitKey
from django_ojs.models import Job
from django_ojs.operations import fail
from django_ojs.reports.not_running import why_not_running
from django_ojs.spec.failure import Failure
from django_ojs.spec.times import format_timestamp
from tests import factories
from tests.factories import MINUTE, age_all, claim_limited, hourly, jobs, push
from tests.http.api import Api
from tests.other_session import Other, until_one_waits
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db


def add(key: str | None = "acme", **values: Any) -> Any:
    policy = {"rate_limit": {"key": key, "concurrency": 3}} if key else {}
    return push(queue="carrier", **policy, **values)


def rejected(**values: Any) -> Failure:
    return Failure.from_exception(ojs.RateLimitExceeded("429", **values))


def time_passes(by: timedelta) -> None:
    age_all(by)
    LimitKey.primary.update(paused_until=F("paused_until") - by, expires_at=F("expires_at") - by)
    LimitCheck.primary.update(due_at=F("due_at") - by)


@pytest.mark.requirement("RL-R003")
def test_a_handler_pauses_the_key_of_its_job_and_no_other_key() -> None:
    add()
    (running,) = claim_limited()
    waiting, elsewhere = add(), add("bravo")
    job = fail.fail(running.id, rejected(retry_after=90))
    assert (job.state, job.spent, job.error["type"]) == ("retryable", 0, "RateLimitExceeded")
    assert MINUTE < job.due_at - timezone.now() < MINUTE * 2
    assert [each.id for each in claim_limited()] == [elsewhere.pk]
    assert claim_limited() == []
    factories.WorkerFactory(queues=("carrier",))
    said = why_not_running(jobs().get(pk=waiting.pk))
    assert said is not None
    assert "paused" in said.sentence
    # What is kept of a key survives until its pause is over, however late its rates.
    time_passes(MINUTE)
    assert claim_limited() == []
    assert claims_by_key.prune() == 0
    time_passes(MINUTE)
    assert {each.id for each in claim_limited()} == {running.id, waiting.pk}
    time_passes(MINUTE * 2)
    LimitKey.primary.update(limited_since=None)
    assert claims_by_key.prune() == 1


def test_paused_keys_that_are_not_named_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_MOST_PAUSED", 2)
    monkeypatch.setattr(findings, "_MOST_NAMED", 1)
    for key in "abc":
        add(key)
    limit_keys.pause("abc", timedelta(hours=1))
    kinds = [(each.kind, each.text.rpartition(" ")[2]) for each in findings.found()]
    # Two keys are read, and one of them is named.
    assert [kind for kind, _ in kinds] == ["limit_key_paused", "limit_keys_paused"]
    assert kinds[1][1] == "2."
    # A key without jobs is not named; one that was not read may have some.
    Job.objects.all().delete()
    kinds = [(each.kind, each.text.rpartition(" ")[2]) for each in findings.found()]
    assert kinds == [("limit_keys_paused", "1.")]


def test_the_maintenance_opens_the_jobs_of_a_pause_that_is_over() -> None:
    add(), add()
    running, other = claim_limited()
    add()
    fail.fail(running.id, rejected(retry_after=90))
    fail.requeue(other.id, rejected(retry_after=30))
    assert claim_limited() == []
    assert limit_journal.open_due() == 0
    assert jobs().filter(hold=HELD).count() == 2
    time_passes(MINUTE)
    limit_journal.open_due()
    # The earlier time did not shorten the pause.
    assert jobs().filter(hold=HELD).count() == 2
    time_passes(MINUTE)
    assert limit_journal.open_due() == 1
    assert not jobs().filter(hold=HELD).exists()


def test_without_a_key_a_job_waits_alone() -> None:
    other = (add(None), add(None))
    first, second = claim_limited()
    assert fail.fail(first.id, rejected(retry_after=60)).spent == 0
    fail.requeue(second.id)
    assert [job.id for job in claim_limited()] == [second.id]
    assert {first.id, second.id} == {job.pk for job in other}
    assert not LimitKey.primary.exists()


@pytest.mark.requirement("RL-R003")
def test_a_worker_over_http_pauses_a_key() -> None:
    add(), add(), add()
    api = Api()
    running = api.fetch("carrier", count=1)[0]["id"]
    error: dict[str, Any] = {"type": "RateLimitExceeded", "message": "429"}
    for wrong in ("soon", 12, "2030-01-31T09:30:00"):
        body = {"job_id": running, "error": {**error, "rate_limit_until": wrong}}
        api.post("workers/nack", body).error(400, "invalid_request", field="error.rate_limit_until")
    # A year is too long for a mistake.
    error["rate_limit_until"] = format_timestamp(timezone.now() + timedelta(days=365))
    answer = api.post("workers/nack", {"job_id": running, "error": error}).ok()
    assert answer["state"] == "retryable"
    assert api.fetch("carrier", count=5) == []
    pause = LimitKey.primary.get().paused_until - timezone.now()  # type: ignore[operator]  # it is set
    assert timedelta(hours=23) < pause < timedelta(hours=25)


def test_a_time_in_the_past_is_an_ordinary_failure() -> None:
    add(retry=hourly(1))
    (running,) = claim_limited()
    past = Failure.parse({"type": "E", "rate_limit_until": "2020-01-01T00:00:00Z"})
    assert fail.fail(running.id, past).state == "discarded"
    assert not LimitKey.primary.exists()


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one transaction writes at a time there")
@pytest.mark.django_db(transaction=True)
@pytest.mark.statements
def test_of_two_pauses_at_the_same_time_the_longer_one_holds() -> None:
    add()
    add()
    first, second = claim_limited()
    with Other() as other:
        with transaction.atomic():
            fail.fail(first.id, rejected(retry_after=timedelta(hours=20)))
            later = other.do(lambda: fail.fail(second.id, rejected(retry_after=60)))
            until_one_waits(later)
        later.result(BOUND)
    row = LimitKey.primary.get(pk="acme")
    assert row.paused_until is not None
    assert row.paused_until > timezone.now() + timedelta(hours=19)
