"""First come, first served, whatever the ids that clients make; and enqueue middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.operations import fetch
from django_ojs.operations import push as pushing
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import InvalidRequest, JobNotFound
from django_ojs.spec.ids import uuid7
from tests.factories import envelope, ids_against_time, jobs, push, read

pytestmark = pytest.mark.django_db
HERE = "tests.operations.test_push_order"

Next = Callable[[Envelope], Envelope | None]


def stamp(job: Envelope, proceed: Next) -> Envelope | None:
    job.meta["stamped"] = True
    return proceed(job)


def drop_unwanted(job: Envelope, proceed: Next) -> Envelope | None:
    return None if job.args == ["unwanted"] else proceed(job)


def spoil_priority(job: Envelope, proceed: Next) -> Envelope | None:
    job.priority = 1_000
    return proceed(job)


def change_id(job: Envelope, proceed: Next) -> Envelope | None:
    job.id = uuid7()
    return proceed(job)


def reject(job: Envelope, proceed: Next) -> Envelope | None:
    raise InvalidRequest("not today")


def using(*names: str) -> Any:
    paths = [f"{HERE}.{name}" for name in names]
    return override_settings(OJS={"ENQUEUE_MIDDLEWARE": paths})


def test_jobs_that_were_pushed_one_by_one_are_fetched_in_that_order() -> None:
    ids = ids_against_time(20)
    for key in ids:
        push(id=key, queue="fifo")
    assert [job.id for job in fetch.fetch(["fifo"], count=20)] == ids


@pytest.mark.parametrize("together", [True, False])
def test_a_batch_is_fetched_in_its_order_whatever_its_ids(together: bool) -> None:
    ids = ids_against_time(1_000)
    pushing.push_batch([envelope(id=key, queue="fifo") for key in ids])
    if together:
        fetched = fetch.fetch(["fifo"], count=1_000)
    else:
        fetched = [fetch.fetch(["fifo"])[0] for _ in range(50)]
    assert [job.id for job in fetched] == ids[: len(fetched)]


def test_a_batch_comes_after_what_was_pushed_before_it_and_before_what_came_later() -> None:
    ids = ids_against_time(32)
    push(id=ids[0], queue="fifo")
    pushing.push_batch([envelope(id=key, queue="fifo") for key in ids[1:31]])
    push(id=ids[31], queue="fifo")
    assert [job.id for job in fetch.fetch(["fifo"], count=100)] == ids


def test_must_8_enqueue_middleware_runs_before_the_job_is_stored() -> None:
    with using("stamp"):
        job = push()
    assert read(job.pk).meta == {"stamped": True}


def test_a_dropped_job_says_so_and_is_not_stored() -> None:
    with using("drop_unwanted"):
        unwanted = envelope(args=["unwanted"])
        dropped = pushing.push(unwanted)
        batch = pushing.push_batch([envelope(args=["a"]), envelope(args=["unwanted"]), envelope()])
    assert (dropped.id, dropped.outcome, dropped.state) == (unwanted.id, "dropped", None)
    with pytest.raises(JobNotFound):
        dropped.job()
    assert [job.outcome for job in batch] == ["stored", "dropped", "stored"]
    assert [job.job().args for job in (batch[0], batch[2])] == [["a"], []]
    assert jobs().count() == 2


def test_a_batch_of_which_all_was_dropped_stores_nothing() -> None:
    with using("drop_unwanted"):
        dropped = envelope(args=["unwanted"])
        found = pushing.push_batch([dropped, envelope(args=["unwanted"])])
    assert [job.outcome for job in found] == ["dropped", "dropped"]
    assert not jobs().exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [("spoil_priority", "priority"), ("change_id", "id must not be changed"), ("reject", "today")],
)
def test_what_a_middleware_makes_of_a_job_is_checked_again(name: str, message: str) -> None:
    with using(name), pytest.raises(InvalidRequest, match=message):
        push()
    with using(name), pytest.raises(InvalidRequest, match=message) as caught:
        pushing.push_batch([envelope(), envelope()])
    assert caught.value.details["index"] == 0
    assert not jobs().exists()
