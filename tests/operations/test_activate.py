"""ACTIVATE, ojs-core §6.3: a pending job may run."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now

from django_ojs.operations import activate, fetch, promotion
from tests.factories import HOUR, MINUTE, age, in_state, jobs, push, read

pytestmark = pytest.mark.django_db


def test_a_pending_job_becomes_available_and_its_activation_is_noted() -> None:
    job = in_state("pending")
    age(job.pk, HOUR)
    activated = activate.activate(job.pk)
    assert activated.state == "available"
    recent = Now() - MINUTE
    noted = {"activated_at__gt": recent, "enqueued_at__gt": recent, "created_at__lt": recent}
    assert jobs().filter(pk=job.pk, **noted).exists()
    assert "activated_at" in read(job.pk).envelope()


def test_until_then_no_worker_gets_it_however_long_it_waits() -> None:
    job = push(queue="a", pending=True, scheduled_at=HOUR)
    age(job.pk, 48 * HOUR)
    assert promotion.promote() == 0
    assert fetch.fetch(["a"]) == []
    activate.activate(job.pk)
    assert [got.id for got in fetch.fetch(["a"])] == [job.pk]


def test_it_queues_up_behind_those_who_were_available_before() -> None:
    first = push(queue="a", pending=True)
    second = push(queue="a")
    age([first.pk, second.pk], 1)
    activate.activate(first.pk)
    assert [job.id for job in fetch.fetch(["a"], count=2)] == [second.pk, first.pk]
