"""A FETCH is bounded in bytes: it claims no more jobs than fit, and at least one."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.operations.fetch import fetch
from django_ojs.spec.states import State
from tests.factories import in_state, jobs, push
from tests.http.api import Api

pytestmark = pytest.mark.django_db

MIB = 2**20


@pytest.fixture(autouse=True)
def _four_mebibytes(settings: Any) -> None:
    settings.OJS = settings.OJS | {"MAX_FETCH_BYTES": 4 * MIB}


def large(queue: str, *mebibytes: float, **values: Any) -> list[str]:
    return [str(push(queue=queue, args=["x" * int(size * MIB)], **values).pk) for size in mebibytes]


def claimed(*queues: str, count: int = 1000, **values: Any) -> list[str]:
    return [str(job.id) for job in fetch(queues, count=count, **values)]


def active() -> int:
    return jobs().filter(state=State.ACTIVE).count()


def test_it_claims_what_fits_and_the_rest_stays_available() -> None:
    wanted = large("q", *[1.5] * 5)
    assert claimed("q") == wanted[:2]
    assert active() == 2
    assert claimed("q") == wanted[2:4]
    assert claimed("q") == wanted[4:]
    assert claimed("q") == []


def test_a_job_over_the_limit_is_claimed_alone() -> None:
    wanted = large("q", 6, 0.1, 5)
    assert [claimed("q"), claimed("q"), claimed("q")] == [wanted[:1], wanted[1:2], wanted[2:]]


def test_a_smaller_job_does_not_overtake_one_that_did_not_fit() -> None:
    wanted = large("q", 3, 3, 0.1)
    assert [claimed("q"), claimed("q")] == [wanted[:1], wanted[1:]]


def test_priority_decides_which_jobs_fit() -> None:
    low = large("q", 1.5, 1.5)
    high = large("q", 1.5, 1.5, priority=5)
    assert [claimed("q"), claimed("q")] == [high, low]


def test_queues_share_the_limit_and_keep_their_order() -> None:
    first, second, third = large("a", 3), large("b", 3), large("c", 0.1)
    order = ("a", "b", "c")
    assert claimed(*order) == first
    assert claimed(*order) == second
    assert claimed(*order) == third


def test_small_jobs_of_several_queues_come_together() -> None:
    first, second = large("a", 0.5, 0.5), large("b", 0.5)
    assert claimed("a", "b") == first + second


@pytest.mark.statements
def test_the_limit_costs_no_query() -> None:
    large("q", 1.5, 1.5, 1.5)
    with CaptureQueriesContext(connection) as captured:
        assert len(claimed("q", due=False)) == 2
    statements = [each["sql"] for each in captured if "SAVEPOINT" not in each["sql"]]
    assert len(statements) == 1


def test_a_response_over_http_is_as_small_and_goes_on() -> None:
    wanted = large("q", *[1.5] * 5)
    api = Api()
    seen: list[str] = []
    while True:
        response = api.post("workers/fetch", {"queues": ["q"], "count": 1000})
        found = [job["id"] for job in response.ok()["jobs"]]
        assert len(response.raw.content) < 5 * MIB
        assert active() == len(seen) + len(found), "what is claimed is sent"
        if not found:
            break
        seen += found
    assert seen == wanted


def test_a_page_of_dead_letters_ends_early_and_its_cursor_goes_on() -> None:
    wanted = [
        str(in_state("discarded", queue=f"q{size}", args=["x" * int(size * MIB)]).pk)
        for size in (1.5, 1.5, 1.5, 6, 0.1)
    ][::-1]
    api, pages, query = Api(), [], ""
    while True:
        response = api.get(f"dead-letter?limit=10{query}")
        body = response.ok()
        assert len(response.raw.content) < 7 * MIB
        pages.append([job["id"] for job in body["jobs"]])
        if not body["pagination"]["has_more"]:
            break
        query = f"&cursor={body['pagination']['next_cursor']}"
    assert pages == [wanted[:1], wanted[1:2], wanted[2:4], wanted[4:]]
