"""First come, first served, whatever the ids that clients make; and enqueue middleware."""

from __future__ import annotations

import pytest

from django_ojs.operations import fetch
from django_ojs.operations import push as pushing
from tests.factories import EnvelopeFactory, ids_against_time, in_line, push

pytestmark = pytest.mark.django_db


def test_jobs_that_were_pushed_one_by_one_are_fetched_in_that_order() -> None:
    ids = ids_against_time(20)
    for key in ids:
        push(id=key, queue="fifo")
    assert [job.id for job in fetch.fetch(["fifo"], count=20)] == ids


@pytest.mark.parametrize("together", [True, False])
def test_a_batch_is_fetched_in_its_order_whatever_its_ids(together: bool) -> None:
    ids = ids_against_time(1_000)
    pushing.push_batch([EnvelopeFactory(id=key, queue="fifo") for key in ids])
    if together:
        fetched = fetch.fetch(["fifo"], count=1_000)
    else:
        fetched = [fetch.fetch(["fifo"])[0] for _ in range(50)]
    assert [job.id for job in fetched] == ids[: len(fetched)]


def test_a_batch_comes_after_what_was_pushed_before_it_and_before_what_came_later() -> None:
    ids = ids_against_time(32)
    push(id=ids[0], queue="fifo")
    in_line(pushing.push_batch([EnvelopeFactory(id=key, queue="fifo") for key in ids[1:31]]))
    push(id=ids[31], queue="fifo")
    assert [job.id for job in fetch.fetch(["fifo"], count=100)] == ids
