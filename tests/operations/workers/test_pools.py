"""Pools of workers: queues that are theirs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.models import Worker
from django_ojs.operations import fetch, queues
from django_ojs.operations.workers import registry
from django_ojs.reports import findings, queue_overview
from django_ojs.reports.not_running import why_not_running
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.storage.claimed_job import Claimed
from tests.factories import WorkerFactory, jobs, push

GPU = {"POOLS": {"gpu": {"queues": ["images"], "exclusive": True}, "rest": {"queues": ["mail"]}}}


def fetched(queues: Sequence[str], count: int = 100, **values: Any) -> list[Claimed]:
    return fetch.fetch(queues, count=count, **values)


@pytest.mark.requirement("FS-R006")
@override_settings(OJS=GPU)
@pytest.mark.django_db
def test_only_the_workers_of_the_pool_get_its_jobs() -> None:
    push(queue="images")
    push(queue="mail")
    for pool in ("", "rest"):
        assert fetched(["images"], pool=pool) == []
    assert [job.queue for job in fetched(["images", "mail"], pool="")] == ["mail"]
    assert [job.queue for job in fetched(["images", "mail"], pool="gpu")] == ["images"]


@pytest.mark.django_db
def test_a_queue_that_is_not_exclusive_is_for_all() -> None:
    push(queue="images")
    with override_settings(OJS={"POOLS": {"gpu": {"queues": ["images"]}}}):
        assert len(fetched(["images"], pool="rest")) == 1


@pytest.mark.django_db
def test_a_job_that_must_run_alone_starts_no_process_that_would_not_get_it() -> None:
    push(queue="images")
    push(queue="mail")
    jobs().update(lost_with_others=ISOLATED_AFTER)
    with override_settings(OJS=GPU):
        assert fetch.isolated_waiting(None, limit=9) == 1
        assert fetch.isolated_waiting(None, limit=9, pool="gpu") == 2
        assert fetch.isolated_waiting(["images"], limit=9) == 0
        assert fetch.isolated_waiting(["images"], limit=9, pool="gpu") == 1
    assert fetch.isolated_waiting(None, limit=9) == 2


@override_settings(OJS=GPU)
@pytest.mark.django_db
def test_a_job_without_a_worker_of_its_pool_says_so() -> None:
    job = push(queue="images")
    WorkerFactory(id="w", queues=("images", "mail"), pool="")
    assert queue_overview.listeners().by_queue == {"mail": 1}
    reason = why_not_running(job)
    assert reason is not None
    assert reason.sentence == (
        "Only workers of the pool gpu get jobs of the queue images, and none is running. Start "
        "one: manage.py ojs_worker --pool gpu."
    )
    status = queues.get("images")
    (row,) = queue_overview.overview([status], flows={}, oldest={}, listens={})
    (finding,) = findings.of_queue(row, is_stopped=False)
    assert (finding.kind, finding.command) == ("queue_unworked", "ojs_worker --pool gpu")
    WorkerFactory(id="everywhere", queues=("*",), pool="")
    assert not queue_overview.is_worked("images")
    assert queue_overview.is_worked("anything")
    WorkerFactory(id="g", queues=("images",), pool="gpu")
    assert queue_overview.is_worked("images")
    assert [each.worker.pk for each in registry.listening("images", limit=9).workers] == ["g"]
    found = registry.listening("mail", limit=9).workers
    assert {each.worker.pk for each in found} == {"w", "everywhere"}


@pytest.mark.django_db
def test_a_worker_of_all_queues_counts_among_those_that_could_run_a_type() -> None:
    WorkerFactory(id="w", queues=("*",), pool="")
    with override_settings(OJS=GPU):
        assert registry.workers_of_type("thumbnail", ["mail"]).unknown == ["w"]
        assert registry.workers_of_type("thumbnail", ["images"]).unknown == []


@pytest.mark.django_db
def test_the_row_of_a_worker_knows_its_pool() -> None:
    WorkerFactory(id="w", queues=("a",), pool="small")
    assert Worker.objects.get(pk="w").pool == "small"
    WorkerFactory(id="w")
    assert Worker.objects.get(pk="w").pool == "small"
