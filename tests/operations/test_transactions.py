"""A job is stored if and only if the caller's transaction commits, on whichever alias jobs are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

import django_ojs as ojs
from django_ojs.operations import ack, fetch
from django_ojs.operations import push as pushing
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import DuplicateJob, WrongDatabase
from tests.factories import HOUR, EnvelopeFactory, active, age, jobs, push, read
from tests.operations.routers import PATH
from tests.testapp.jobs import add
from tests.testapp.models import Thing

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class Rollback(Exception):
    """What an application raises."""


@pytest.fixture(params=["default", "other"])
def alias(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the alias that holds the jobs."""
    routers = [PATH] if request.param == "other" else []
    with override_settings(DATABASE_ROUTERS=routers):
        yield request.param


def stored() -> list[Any]:
    return [job.args[0] for job in jobs().order_by("id")]


def things(alias: str) -> list[str]:
    return list(Thing.objects.using(alias).values_list("name", flat=True))


def enqueue(name: str, how: str = "one") -> None:
    if how == "one":
        ojs.enqueue("test.job", [name])
    elif how == "after commit":
        ojs.enqueue_after_commit("test.job", [name])
    else:
        ojs.enqueue_batch([ojs.request("test.job", [name])])


WAYS = pytest.mark.parametrize("how", ["one", "batch", "after commit"])


@WAYS
def test_a_job_commits_with_the_rows_of_its_transaction(alias: str, how: str) -> None:
    with transaction.atomic(using=alias):
        Thing.objects.using(alias).create(name="row")
        enqueue("job", how)
    assert (things(alias), stored()) == (["row"], ["job"])


@WAYS
def test_a_job_vanishes_with_the_rows_of_its_transaction(alias: str, how: str) -> None:
    with suppress(Rollback), transaction.atomic(using=alias):
        Thing.objects.using(alias).create(name="row")
        enqueue("job", how)
        assert stored() == ["job"]
        raise Rollback
    assert (things(alias), stored()) == ([], [])


@WAYS
def test_a_savepoint_that_is_rolled_back_takes_only_its_own_jobs(alias: str, how: str) -> None:
    with transaction.atomic(using=alias):
        enqueue("outer", how)
        with suppress(Rollback), transaction.atomic(using=alias):
            enqueue("lost", how)
            raise Rollback
        with transaction.atomic(using=alias):
            enqueue("inner", how)
    assert sorted(stored()) == ["inner", "outer"]


def test_the_outer_rollback_takes_released_savepoints_too(alias: str) -> None:
    with suppress(Rollback), transaction.atomic(using=alias):
        with transaction.atomic(using=alias):
            enqueue("inner")
        raise Rollback
    assert stored() == []


@WAYS
def test_a_durable_block_holds_jobs_like_any_other(alias: str, how: str) -> None:
    with transaction.atomic(using=alias, durable=True):
        enqueue("kept", how)
    with suppress(Rollback), transaction.atomic(using=alias, durable=True):
        enqueue("lost", how)
        raise Rollback
    assert stored() == ["kept"]


def test_without_a_transaction_a_job_is_there_at_once(alias: str) -> None:
    enqueue("job")
    assert stored() == ["job"]
    assert connections[alias].in_atomic_block is False


def test_no_worker_sees_a_job_before_its_transaction_commits(alias: str) -> None:
    other_session = connections[alias].copy()
    try:
        with transaction.atomic(using=alias):
            enqueue("job")
            with other_session.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM ojs_job")
                assert cursor.fetchone() == (0,)
        with other_session.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM ojs_job")
            assert cursor.fetchone() == (1,)
    finally:
        other_session.close()


def test_a_rejected_duplicate_leaves_the_callers_transaction_usable(alias: str) -> None:
    first = push(args=["first"])
    with transaction.atomic(using=alias):
        with pytest.raises(DuplicateJob):
            pushing.push(EnvelopeFactory(id=first.pk))
        with pytest.raises(DuplicateJob):
            pushing.push_batch([EnvelopeFactory(args=["lost"]), EnvelopeFactory(id=first.pk)])
        Thing.objects.using(alias).create(name="row")
        enqueue("second")
    assert (stored(), things(alias)) == (["first", "second"], ["row"])


def test_the_other_operations_roll_back_with_the_caller_too(alias: str) -> None:
    claimed = active()
    lapsed = active()
    age(lapsed.id, HOUR)
    with suppress(Rollback), transaction.atomic(using=alias):
        ack.ack(claimed.id)
        assert rescue.lapse() == 1
        assert fetch.fetch([lapsed.queue]) != []
        raise Rollback
    assert [(read(j.id).state, read(j.id).run) for j in (claimed, lapsed)] == [("active", 1)] * 2


@WAYS
@pytest.mark.parametrize("wrong", ["default", "other"])
def test_inside_a_transaction_of_another_alias_only_an_error_is_honest(
    alias: str, wrong: str, how: str
) -> None:
    if wrong == alias:
        enqueue("fine", how)
        return
    with transaction.atomic(using=wrong):
        with pytest.raises(WrongDatabase) as caught:
            enqueue("job", how)
        # Inside a transaction of the right one as well, the caller has decided.
        with transaction.atomic(using=alias):
            enqueue("both", how)
    assert f"atomic(using='{wrong}')" in str(caught.value)
    assert f"stored in '{alias}'" in str(caught.value)
    assert stored() == ["both"]


@WAYS
def test_the_error_can_be_made_a_warning(alias: str, how: str) -> None:
    wrong = "default" if alias == "other" else "other"
    with override_settings(OJS={"WRONG_DATABASE": "warn"}), transaction.atomic(using=wrong):
        with pytest.warns(RuntimeWarning, match="would not roll back"):
            enqueue("job", how)
        with warnings.catch_warnings(), transaction.atomic(using=alias):
            warnings.simplefilter("error")
            enqueue("quiet", how)
    assert sorted(stored()) == ["job", "quiet"]


def by_enqueue() -> None:
    ojs.enqueue("test.job")


def by_enqueue_after_commit() -> None:
    ojs.enqueue_after_commit("test.job")


def by_enqueue_batch() -> None:
    ojs.enqueue_batch([ojs.request("test.job")])


def by_handler() -> None:
    add.enqueue(1)


def by_handler_with_options() -> None:
    add.options(priority=1).enqueue(1)


def by_handler_after_commit() -> None:
    add.enqueue_after_commit(1)


def by_async_twin() -> None:
    async_to_sync(ojs.aenqueue)("test.job")


def by_async_twin_of_a_handler() -> None:
    async_to_sync(add.aenqueue)(1)


@pytest.mark.parametrize(
    "enqueue_by",
    [
        by_enqueue,
        by_enqueue_after_commit,
        by_enqueue_batch,
        by_handler,
        by_handler_with_options,
        by_handler_after_commit,
        by_async_twin,
        by_async_twin_of_a_handler,
    ],
)
def test_the_warning_points_at_the_line_that_enqueued(enqueue_by: Callable[[], None]) -> None:
    with (
        override_settings(OJS={"WRONG_DATABASE": "warn"}),
        transaction.atomic(using="other"),
        pytest.warns(RuntimeWarning, match="would not roll back") as caught,
    ):
        enqueue_by()
    (warning,) = caught
    line = enqueue_by.__code__.co_firstlineno + 1
    assert (warning.filename, warning.lineno) == (__file__, line)


def order(request: HttpRequest) -> HttpResponse:
    alias = request.GET["alias"]
    Thing.objects.using(alias).create(name="order")
    enqueue("receipt")
    if "fail" in request.GET:
        raise Rollback
    return HttpResponse(str(connections[alias].in_atomic_block))


urlpatterns = [path("order", order)]


@override_settings(ROOT_URLCONF=__name__)
@pytest.mark.parametrize("fails", [False, True])
def test_a_view_under_atomic_requests_keeps_or_loses_both(
    alias: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections[alias].settings_dict, "ATOMIC_REQUESTS", True)
    client = Client(raise_request_exception=False)
    response = client.get("/order", {"alias": alias} | ({"fail": "1"} if fails else {}))
    assert response.status_code == (500 if fails else 200)
    assert fails or response.content == b"True"
    assert (things(alias), stored()) == (([], []) if fails else (["order"], ["receipt"]))
