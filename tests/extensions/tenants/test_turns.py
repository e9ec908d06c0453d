"""Turns between the tenants of one queue (ojs-fair-scheduling §9)."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any, cast

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs.extensions.tenants import tenant_turns
from django_ojs.extensions.tenants.tenant_statements import statements
from django_ojs.models import Job
from django_ojs.operations import ack, fetch, queues
from django_ojs.operations.workers import rescue
from django_ojs.spec.isolation import ISOLATED_AFTER, Isolation
from django_ojs.storage import in_memory_state
from django_ojs.storage.claimed_job import Claimed
from tests.factories import WORKER, jobs_of_key, push_many
from tests.threads import at_once

pytestmark = pytest.mark.django_db

NAME = "shared"


def fair(**fields: Any) -> None:
    queues.configure(NAME, {"tenant_fairness": {"enabled": True, **fields}})


def add(tenant: str | None, number: int = 1, **values: Any) -> list[Any]:
    meta = {} if tenant is None else {"tenant_id": tenant}
    return push_many(number, **{"queue": NAME, "meta": meta, **values})


def claim(count: int = 1, **values: Any) -> list[Claimed]:
    return fetch.fetch([NAME], count=count, worker_id=WORKER, **values)


def tenants(claimed: list[Claimed]) -> str:
    """The tenants of jobs in the order of the claim, each a letter; `_` for a job without one."""
    return "".join(str(job.meta.get("tenant_id", "_")) for job in claimed)


def one_by_one(number: int) -> str:
    return "".join(tenants(claim()) for _ in range(number))


def begin_with(tenant: str, priority: int = 0) -> None:
    tenant_turns.positions.of(NAME)[priority] = tenant_turns.TurnPosition(after=tenant)


@pytest.mark.requirement("FS-R005")
@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_tenants_take_turns_whatever_number_of_jobs_each_has(count: int) -> None:
    fair()
    add("a", 200)
    add("b", 5)
    add(None, 5)
    found = "".join(tenants(claim(count)) for _ in range(40 // count + 1))
    # As long as each of them has jobs, no tenant has two in a row.
    assert set(found[:3]) == {"a", "b", "_"}
    assert found[:15] == found[:3] * 5
    assert set(found[15:]) == {"a"}
    # A tenant that comes later is next, or the one after it.
    add("c", 2)
    assert "c" in tenants(claim(2))


def test_the_jobs_of_a_tenant_stay_in_their_order() -> None:
    fair()
    first, *_ = [*add("a", 3), *add("b", 3)]
    found = [job for _ in range(6) for job in claim()]
    for tenant in "ab":
        mine = [job.enqueued_at for job in found if job.meta["tenant_id"] == tenant]
        assert mine == sorted(mine)
    assert first.id in {job.id for job in found[:2]}


@pytest.mark.parametrize("count", [1, 4, 5, 10])
def test_a_weight_is_the_number_of_jobs_in_a_turn(count: int) -> None:
    fair(weights={"b": 3}, default_weight=1)
    for tenant in "abc":
        add(tenant, 40)
    begin_with("c")
    found = "".join(tenants(claim(count)) for _ in range(20 // count))
    assert found == "abbbc" * 4


def test_a_higher_priority_goes_first_whosever_it_is() -> None:
    fair()
    add("a", 2)
    add("b", 2)
    add("a", 3, priority=5)
    add("b", 1, priority=5)
    add("c", 1, priority=9)
    begin_with("b")
    begin_with("a", priority=5)
    assert tenants(claim(20)) == "cbaaaabab"


def test_a_higher_priority_takes_no_turn_from_the_lower_ones() -> None:
    fair()
    for tenant in "abc":
        add(tenant, 4)
    found = ""
    for _ in range(9):
        add("a", priority=5)
        found += tenants(claim())[0] + tenants(claim())[0]
    assert found[::2] == "a" * 9
    assert set(found[1:7:2]) == set("abc")
    assert found[1::2] == found[1:7:2] * 3


def test_the_last_jobs_of_a_higher_priority_take_no_turn_from_the_lower_one() -> None:
    fair()
    add("a", 2, priority=5)
    add("b", 5, priority=5)
    add("c", 1)
    add("d", 9)
    begin_with("b", priority=5)
    begin_with("z")
    # It is the turn of "c", though it has fewer jobs than the claim was ready to take of it.
    assert tenants(claim(10)) == "ababbbbcdd"


def test_threads_may_claim_while_another_one_finds_a_new_priority() -> None:
    fair()
    add("a")
    add("b")
    positions = tenant_turns.positions.of(NAME)

    class Position:
        """Adds a priority while it is read, as another thread may."""

        tenant, taken = None, 0

        @property
        def after(self) -> str:
            positions[len(positions)] = tenant_turns.TurnPosition()
            return "a"

        def served(self, tenant: str, weight: int) -> tenant_turns.TurnPosition:
            return tenant_turns.TurnPosition(after=tenant)

    positions[0] = cast("tenant_turns.TurnPosition", Position())
    assert tenants(claim(2)) == "ba"


def test_a_paused_queue_is_not_searched_tenant_by_tenant() -> None:
    def of_tenants(captured: CaptureQueriesContext) -> int:
        # Not the others: once the configuration that the process remembers is too old, there are
        # more of them.
        return sum(statements().marked in query["sql"] for query in captured)

    fair()
    for n in range(120):
        add(f"t{n}", priority=n % 3)
    claim()
    # Both begin with the same tenant: one that begins near the last goes round, by one query more.
    begin_with("")
    with CaptureQueriesContext(connection) as resumed:
        assert len(claim(due=False)) == 1
    queues.pause(NAME)
    begin_with("")
    with CaptureQueriesContext(connection) as paused:
        assert claim(due=False) == []
    assert 1 <= of_tenants(paused) <= of_tenants(resumed)


def test_a_process_begins_at_a_random_tenant() -> None:
    fair()
    for tenant in "abcdefgh":
        add(tenant, 30)
    begun = set()
    for _ in range(60):
        in_memory_state.reset()
        begun.add(tenants(claim()))
    assert len(begun) > 1


def test_what_cannot_be_claimed_takes_no_turn() -> None:
    fair()
    for tenant in "abcdefghijklmnopqrstuvwxyz":
        add(tenant)
    left = add("z", 3)
    Job.objects.filter(queue=NAME).exclude(pk__in=[job.id for job in left]).update(
        # Not now: the clock of SQLite has milliseconds.
        expires_at=timezone.now() - timedelta(seconds=1)
    )
    begin_with("")
    assert tenants(claim(due=False)) == "z"
    queues.pause(NAME)
    assert claim(5, due=False) == []
    queues.resume(NAME)
    assert tenants(claim(5, due=False)) == "zz"


def test_jobs_of_before_the_option_and_of_after_it_are_claimed() -> None:
    add("a", 3)
    add("b", 3)
    fair()
    found = one_by_one(4)
    assert found[:2] == found[2:]
    # Of a process that did not know of the option yet.
    Job.objects.filter(state="available").update(marks=0)
    add("c")
    assert tenants(claim(10))[0] == "c"
    assert claim() == []
    queues.configure(NAME, {"tenant_fairness": {"enabled": False}})
    add("a", 2)
    add("b", 2)
    assert one_by_one(4) == "aabb"
    assert not Job.objects.filter(queue=NAME, state="available").exists()


def test_the_settings_and_the_default_policy_may_have_it(settings: Any) -> None:
    settings.OJS = settings.OJS | {"QUEUES": {NAME: {"tenant_fairness": {"enabled": True}}}}
    add("a", 3)
    add("b", 3)
    assert set(one_by_one(2)) == {"a", "b"}
    settings.OJS = settings.OJS | {"QUEUES": {}}
    assert one_by_one(4) == "aabb"
    queues.configure_default({"tenant_fairness": {"enabled": True}})
    add("a", 3)
    add("b", 3)
    assert set(one_by_one(2)) == {"a", "b"}


def test_a_limit_by_key_holds_and_a_job_that_it_holds_takes_no_turn() -> None:
    fair()
    policy = {"key": "gateway", "concurrency": 1}
    add("a", 300, rate_limit=policy)
    add("b", 1, rate_limit=policy)
    add("b", 3)
    begin_with("b")
    assert tenants(claim()) == "a"
    # All others of the key are held, of whichever tenant.
    assert one_by_one(3) == "bbb"
    assert claim() == []
    add("a")
    assert tenants(claim(5)) == "a"
    (running,) = jobs_of_key("gateway").filter(state="active")
    ack.ack(running.pk)
    assert len(claim(5)) == 1
    assert jobs_of_key("gateway").filter(state="active").count() == 1


def test_a_limit_of_the_queue_holds() -> None:
    fair()
    queues.configure(NAME, {"concurrency": 3})
    add("a", 10)
    add("b", 10)
    assert Counter(tenants(claim(10))) in (Counter("aab"), Counter("abb"))
    assert claim(10) == []


def test_jobs_that_must_run_alone_are_claimed_alone() -> None:
    fair()
    add("a", 2)
    alone = add("b")[0]
    Job.objects.filter(pk=alone.id).update(lost_with_others=ISOLATED_AFTER)
    assert tenants(claim(5, isolation=Isolation.SHARED)) == "aa"
    assert [job.id for job in claim(5, isolation=Isolation.ALONE)] == [alone.id]


def test_a_claim_ends_at_its_bytes() -> None:
    fair()
    for tenant in "ab":
        add(tenant, 5, args=["x" * 1000])
    found = claim(10, max_bytes=3500)
    assert len(found) == 3
    assert all(first != second for first, second in pairwise(tenants(found)))


@pytest.mark.django_db(transaction=True)
def test_a_tenant_that_crashed_workers_have_claimed_has_its_turn_again() -> None:
    fair()
    add("a", 10)
    add("b", 10)
    claim(6)
    rescue.rescue([WORKER])
    in_memory_state.reset()
    assert Counter(one_by_one(4)) == Counter("aabb")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_claims_at_once_take_each_job_once_and_find_all() -> None:
    fair()
    for n in range(30):
        add(f"t{n}", 1 + n % 7, priority=n % 3)
    total = Job.objects.count()
    workers = 8 if connection.vendor == "postgresql" else 3

    def run(number: int) -> list[Any]:
        found: list[Any] = []
        while Job.objects.filter(state="available").exists():
            found += [job.id for job in claim(1 + number % 4)]
        return found

    found = at_once([partial(run, number) for number in range(workers)])
    claimed = Counter(job for mine in found for job in mine)
    assert len(claimed) == total
    assert set(claimed.values()) == {1}


def rows_read(plan: dict[str, Any]) -> int:
    """Return how many rows the scans of a plan read."""
    own = 0
    if "Index Name" in plan:
        read = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        own = plan["Actual Loops"] * read
    return own + sum(rows_read(each) for each in plan.get("Plans", []))


def scans_of_jobs(plan: dict[str, Any]) -> int:
    """Return how many scans of the table of jobs a plan has."""
    own = plan.get("Relation Name") == "ojs_job"
    return own + sum(scans_of_jobs(each) for each in plan.get("Plans", []))


@pytest.mark.skipif(connection.vendor == "sqlite", reason="the statements name the index there")
@pytest.mark.statements
def test_a_claim_reads_no_more_of_a_large_tenant_than_it_takes() -> None:
    fair()
    for n in range(20):
        add(f"A{n:02}")
    add("a", 3000)
    files = statements().files
    in_turn = "EXPLAIN (ANALYZE, FORMAT JSON) " + files.text("tenants_in_turn")
    for start in ("", "A05", "a"):
        values = {"queue": NAME, "starts": json.dumps({"0": start}), "limit": 100}
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE ojs_job")
            cursor.execute(in_turn, values)
            ((((plan,),),)) = cursor.fetchall()
            assert 21 <= rows_read(plan["Plan"]) < 100
            # The server looks at all indexes for each: planning takes longer than execution.
            assert scans_of_jobs(plan["Plan"]) == 2
    begin_with("A19")
    turn = {"priorities": [0, 0], "tenants": ["a", "A00"], "skip": [0, 0], "numbers": [1, 1]}
    with connection.cursor() as cursor:
        statement = files.text("turn_jobs").format(isolation="", condition="")
        values = {"queue": NAME, "limit": 2, **turn}
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement, values)
        ((((plan,),),)) = cursor.fetchall()
        assert rows_read(plan["Plan"]) < 10
