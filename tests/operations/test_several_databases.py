"""A site whose rows are in several databases has the jobs of each beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import TestCase, override_settings

import django_ojs as ojs
from django_ojs import checks
from django_ojs.models import Job, Rollup
from django_ojs.operations import ack, checkpoint, fetch
from django_ojs.operations.workflows import advance_due
from django_ojs.spec.errors import JobNotFound, QueueFull, WrongDatabase
from django_ojs.spec.states import State
from django_ojs.storage import database, queue_configs
from django_ojs.storage.figures import rollups
from django_ojs.testing import OJSTestMixin
from tests.factories import held
from tests.testapp.jobs import add
from tests.testapp.models import Thing

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

SEVERAL = {"DATABASES": ["default", "other"]}


class Rollback(Exception):
    """What an application raises."""


@pytest.fixture(autouse=True)
def several() -> Iterator[None]:
    with override_settings(OJS=SEVERAL):
        yield


def types(alias: str) -> list[str]:
    return sorted(Job.objects.using(alias).values_list("type", flat=True))


def enqueue_in_all_ways(name: str) -> list[Any]:
    """Enqueue a job alone, one with an id of its own, two in a batch, and two of a workflow."""
    return [
        ojs.enqueue(f"{name}.one"),
        async_to_sync(ojs.aenqueue)(f"{name}.own", [1], id=ojs.new_id(), tags=["x"]),
        *ojs.enqueue_batch([ojs.request(f"{name}.batch", [n]) for n in (1, 2)]),
        ojs.group(ojs.request(f"{name}.step"), ojs.request(f"{name}.step")).enqueue(),
    ]


def all_of(name: str) -> list[str]:
    return sorted(f"{name}.{way}" for way in ("one", "own", "batch", "batch", "step", "step"))


@pytest.mark.parametrize("alias", ["default", "other"])
def test_jobs_commit_and_vanish_with_the_rows_of_their_database(alias: str) -> None:
    another = "other" if alias == "default" else "default"
    with transaction.atomic(using=alias):
        Thing.objects.using(alias).create(name="row")
        stored = enqueue_in_all_ways("kept")
    with suppress(Rollback), transaction.atomic(using=alias):
        Thing.objects.using(alias).create(name="gone")
        enqueue_in_all_ways("gone")
        raise Rollback
    assert types(alias) == all_of("kept")
    assert types(another) == []
    assert [thing.name for thing in Thing.objects.using(alias)] == ["row"]
    # By its id a job is found from anywhere, and its model knows its database.
    for job in stored[:-1]:
        assert ojs.get_job(job.id)._state.db == alias == job.job()._state.db
    assert ojs.get_workflow(stored[-1].id).jobs_total == 2
    ojs.cancel_workflow(stored[-1].id)
    assert ojs.cancel(stored[0].id).state == State.CANCELLED == ojs.get_job(stored[0].id).state
    with database.using(another), pytest.raises(JobNotFound):
        ojs.get_job(stored[1].id)
    with pytest.raises(JobNotFound):
        ojs.get_job(ojs.new_id())


def test_outside_of_a_transaction_jobs_are_stored_at_home_or_where_the_caller_says() -> None:
    ojs.enqueue("at.home")
    with ojs.using("other"):
        ojs.enqueue("over.there")
        with transaction.atomic(using="other"):
            ojs.enqueue("over.there")
    assert (types("default"), types("other")) == (["at.home"], ["over.there"] * 2)
    # A transaction that Django does not know of is one, too.
    Thing.objects.using("other").exists()
    transaction.set_autocommit(False, using="other")
    try:
        ojs.enqueue("rolled.back")
        transaction.rollback(using="other")
    finally:
        transaction.set_autocommit(True, using="other")
    assert (types("default"), types("other")) == (["at.home"], ["over.there"] * 2)
    with pytest.raises(ImproperlyConfigured, match="OJS\\['DATABASES'\\] has: default, other"):
        ojs.using("nowhere").__enter__()


def test_two_transactions_are_an_error_that_says_how_to_choose() -> None:
    with transaction.atomic(using="default"), transaction.atomic(using="other"):
        for enqueue in (
            lambda: ojs.enqueue("test.job"),
            lambda: ojs.enqueue_batch([ojs.request("test.job")] * 2),
            lambda: ojs.chain(ojs.request("test.job")).enqueue(),
        ):
            with pytest.raises(WrongDatabase) as caught:
                enqueue()
            for part in ("using='default'", "using='other'", "with django_ojs.using('other'):"):
                assert part in caught.value.message
        with ojs.using("other"):
            ojs.enqueue("test.job")
    assert (types("default"), types("other")) == ([], ["test.job"])


def test_a_workflow_goes_on_in_its_database_and_figures_are_counted_there() -> None:
    with transaction.atomic(using="other"):
        ojs.chain(ojs.request("chain.first"), ojs.request("chain.second")).enqueue()
    with database.using("other"):
        (first,) = fetch.fetch(["default"], count=5, worker_id="worker_1")
        ack.ack(first.id, claim=held(first))
        advance_due()
    assert types("other") == ["chain.first", "chain.second"]
    assert types("default") == []
    ojs.enqueue("at.home")
    rollups.flush()
    counted = {
        alias: sum(Rollup.objects.using(alias).values_list("enqueued", flat=True))
        for alias in ("default", "other")
    }
    assert counted == {"default": 1, "other": 2}


def test_a_bound_of_the_settings_holds_in_each_database() -> None:
    with override_settings(OJS={**SEVERAL, "QUEUES": {"few": {"backpressure": {"max_depth": 2}}}}):
        queue_configs.changed()
        for alias in ("default", "other"):
            with transaction.atomic(using=alias):
                for _ in range(2):
                    ojs.enqueue("bounded.job", queue="few")
                with pytest.raises(QueueFull):
                    ojs.enqueue("bounded.job", queue="few")
    assert types("default") == types("other") == ["bounded.job"] * 2


def test_a_queue_is_paused_in_each_database() -> None:
    ojs.pause_queue("default")
    for alias in ("default", "other"):
        with ojs.using(alias):
            ojs.enqueue("paused.job")
            assert fetch.fetch(["default"], count=1, worker_id="w") == []
    ojs.resume_queue("default")
    for alias in ("default", "other"):
        with ojs.using(alias):
            assert len(fetch.fetch(["default"], count=1, worker_id="w")) == 1


@override_settings(OJS=SEVERAL)
class InATestCase(OJSTestMixin, TestCase):
    """The transactions of a TestCase are not the caller's."""

    databases = {"default", "other"}

    def test_a_job_is_stored_in_the_database_of_the_inner_transaction(self) -> None:
        ojs.enqueue("at.home")
        with transaction.atomic(using="other"):
            ojs.enqueue("over.there")
        assert (types("default"), types("other")) == (["at.home"], ["over.there"])

    def test_drain_runs_the_jobs_of_all(self) -> None:
        jobs = []
        for alias in ("default", "other"):
            with transaction.atomic(using=alias):
                jobs.append(add.enqueue(1, 2))
        assert self.ojs.drain().completed == 2
        assert [job.job().state for job in jobs] == ["completed"] * 2


def test_checks_name_what_is_wrong_with_the_aliases() -> None:
    assert checks.check_databases() == []
    for value, problem in (
        (["default", "nowhere"], "'nowhere', which is not in DATABASES"),
        (["default", "other"], "does not go with READ_DATABASE"),
    ):
        given = {"DATABASES": value}
        if "READ" in problem:
            given["READ_DATABASE"] = "other"
        with override_settings(OJS=given):
            (found,) = checks.check_databases()
        assert (found.id, problem in found.msg) == ("django_ojs.E009", True)
    for value in (["default"], [], "default", ["default", "default"], ["default", ""]):
        with override_settings(OJS={"DATABASES": value}):
            problems = checks.check_settings()
        assert [each.id for each in problems] == (["django_ojs.E001"] if value else []), value


@pytest.mark.parametrize("alias", ["default", "other"])
def test_a_result_and_a_job_know_their_database(alias: str) -> None:
    with ojs.using(alias):
        results = [ojs.enqueue("job.one"), *ojs.enqueue_batch([ojs.request("job.two")] * 2)]
    for result in results:
        assert result.job().state == "available"
        assert result.model()._state.db == alias
    with database.using(alias):
        (claimed, *_) = fetch.fetch(["default"], count=9, worker_id=None)
        checkpoint.save(claimed.id, {"page": 7}, claim=held(claimed))
    found = ojs.get_job(claimed.id)
    assert found.checkpoint is not None
    assert found.envelope()["checkpoint"]["state"] == {"page": 7}
