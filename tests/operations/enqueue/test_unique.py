"""Unique jobs, ojs-unique-jobs §5 to §9: every strategy, state and period, one at a time."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import django_ojs as ojs
from django_ojs import handlers, signals
from django_ojs.models import Attempt, Job
from django_ojs.operations import ack, activate, fail, promotion, retry
from django_ojs.operations import push as pushing
from django_ojs.operations.enqueue import unique as operation
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec.envelope import Envelope, parse
from django_ojs.spec.errors import (
    BackendUnavailable,
    Conflict,
    DuplicateJob,
    InvalidRequest,
    UniqueKeyInvalid,
)
from django_ojs.spec.ids import uuid7
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.times import format_timestamp
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import database
from tests.cases import together
from tests.factories import (
    BOOM,
    GENERATED,
    HOUR,
    MINUTE,
    EnvelopeFactory,
    age,
    claim,
    in_state,
    is_duplicate,
    jobs,
    push,
    push_on_road,
    read,
    until_later,
)
from tests.receivers import receiving

pytestmark = pytest.mark.django_db

LIVE = sorted(set(State) - TERMINAL)
STATES = pytest.mark.parametrize("state", sorted(State))
EVERY = sorted(State)
EITHER_ROAD = pytest.mark.usefixtures("either_road")


def policy(on_conflict: Any = "reject", **values: Any) -> UniquePolicy:
    return UniquePolicy(**({"keys": ["type", "args"], "on_conflict": on_conflict} | values))


def again(job: Job, how: UniquePolicy, **values: Any) -> EnqueuedJob:
    """Push what is the same job by its type and arguments."""
    return push_on_road(**({"type": job.type, "args": job.args, "unique": how} | values))


def states_of(*found: Job | EnqueuedJob) -> list[str]:
    return [read(job.id).state for job in found]


# --- What is a duplicate -----------------------------------------------------------------------


@STATES
@EITHER_ROAD
def test_by_default_a_job_that_has_not_ended_is_in_the_way(state: str) -> None:
    job = in_state(state, unique=policy())
    if state in LIVE:
        with pytest.raises(DuplicateJob) as caught:
            again(job, policy())
        assert caught.value.details == {
            "existing_job_id": str(job.id),
            "existing_job_state": state,
            "unique_key": read(job.id).unique_key,
        }
        assert jobs().count() == 1
    else:
        assert again(job, policy()).id != job.id


@STATES
@together("listed", EVERY, undo=True)
@EITHER_ROAD
def test_only_the_states_of_the_new_policy_are_looked_at(state: str, listed: str) -> None:
    job = in_state(state, unique=policy())
    response = again(job, policy("ignore", states=[listed]))
    assert (response.id == job.id) == is_duplicate(response) == (state == listed)


@STATES
@together(("minutes", "duplicate"), [(0, True), (58, True), (60, False), (3_600, False)], undo=True)
@EITHER_ROAD
def test_a_period_runs_from_the_creation_of_the_job_that_exists(
    state: str, minutes: int, duplicate: bool
) -> None:
    job = in_state(state, unique=policy())
    jobs().filter(pk=job.id).update(created_at=job.created_at - timedelta(minutes=minutes))
    until_later()
    found = again(job, policy("ignore", period=60 * MINUTE, states=EVERY))
    assert is_duplicate(found) is duplicate


@EITHER_ROAD
def test_the_period_of_the_new_job_counts_and_not_that_of_the_old_one() -> None:
    job = push(unique=policy(period="PT1S"))
    age(job.id, MINUTE)
    assert again(job, policy("ignore")).id == job.id
    other = push(args=[1], unique=policy())
    age(other.id, MINUTE)
    assert again(other, policy(period="PT1S")).id != other.id


@EITHER_ROAD
def test_an_expired_job_that_nobody_has_moved_yet_has_ended() -> None:
    job = push(expires_at=MINUTE, unique=policy())
    age(job.id, HOUR)
    assert read(job.id).state == "available"
    assert again(job, policy("ignore", states=["discarded"])).id == job.id
    assert again(job, policy()).id != job.id


@pytest.mark.parametrize("state", ["scheduled", "retryable"])
@EITHER_ROAD
def test_a_due_job_that_nobody_has_moved_yet_is_available(state: str) -> None:
    job = in_state(state, unique=policy())
    assert not is_duplicate(again(job, policy("ignore", states=["available"])))
    jobs().exclude(pk=job.id).delete()
    age(job.id, 2 * HOUR)
    assert not is_duplicate(again(job, policy("ignore", states=[state])))
    jobs().exclude(pk=job.id).delete()
    assert again(job, policy("ignore", states=["available"])).id == job.id
    assert again(job, policy("ignore")).id == job.id


@EITHER_ROAD
def test_a_job_without_a_policy_is_in_nobodys_way_and_has_no_key() -> None:
    job = push(args=[1])
    assert read(job.id).unique_key is job.unique_key is None
    other = again(job, policy())
    assert read(other.id).unique_key == other.model().unique_key
    assert again(job, policy("ignore")).id == other.id
    assert not is_duplicate(push_on_road(type=job.type, args=[1]))


@pytest.mark.parametrize(
    ("dimensions", "same"),
    [
        ({"keys": ["type"]}, [True, True, True, False]),
        ({"keys": ["queue"]}, [False, True, True, False]),
        ({"keys": ["args"]}, [True, False, True, False]),
        ({"keys": ["args"], "args_keys": ["a"]}, [True, True, True, False]),
        ({"keys": ["meta"], "meta_keys": ["tenant"]}, [True, True, False, False]),
    ],
)
@EITHER_ROAD
def test_each_dimension_distinguishes_jobs(dimensions: dict[str, Any], same: list[bool]) -> None:
    how = UniquePolicy(**dimensions, on_conflict="ignore")
    values = {"queue": "q", "args": [{"a": 1, "b": 2}], "meta": {"tenant": "x"}, "unique": how}
    push(**values)
    changes: list[dict[str, Any]] = [
        {"queue": "other"},
        {"args": [{"a": 1, "b": 3}]},
        {"meta": {"tenant": "y"}},
        {"type": "test.other"},
    ]
    assert [is_duplicate(push_on_road(**(values | change))) for change in changes] == same


# --- What becomes of it ------------------------------------------------------------------------


@EITHER_ROAD
def test_ignore_returns_the_job_that_is_there_as_it_is_now() -> None:
    job = push(args=[1], tags=["first"], unique=policy())
    claim(job)
    found = again(job, policy("ignore"), tags=["second"], queue="elsewhere")
    assert (found.id, is_duplicate(found), found.state, found.model().tags) == (
        job.id,
        True,
        "active",
        ["first"],
    )
    assert found.model().envelope() == read(job.id).envelope()


@pytest.mark.parametrize("strategy", ["replace", "replace_except_schedule"])
@STATES
@EITHER_ROAD
def test_replace_cancels_what_has_not_ended(state: str, strategy: str) -> None:
    job = in_state(state, args=["old"], unique=policy(keys=["type"]))
    new = push_on_road(args=["new"], unique=policy(strategy, keys=["type"], states=EVERY))
    assert new.id != job.id
    assert not is_duplicate(new)
    assert states_of(job) == ["cancelled" if state in LIVE else state]
    outcomes = list(Attempt.objects.filter(job_id=job.id).values_list("outcome", flat=True))
    assert ("cancelled" in outcomes) == (state == "active")
    assert new.job().args == ["new"]


@EITHER_ROAD
def test_replace_takes_the_job_from_the_worker_that_runs_it() -> None:
    claimed = claim(push(unique=policy()))
    again(read(claimed.id), policy("replace"))
    with pytest.raises(Conflict):
        ack.ack(claimed.id)


@EITHER_ROAD
def test_replace_cancels_all_that_are_in_the_way() -> None:
    first = push(args=[1], unique=policy())
    second = again(first, policy(states=["active"]))
    last = again(first, policy("replace"))
    assert states_of(first, second, last) == ["cancelled", "cancelled", "available"]


@EITHER_ROAD
def test_replace_except_schedule_keeps_the_time_and_takes_the_rest() -> None:
    text = "2199-01-01T14:30:00+02:00"
    how = policy("replace_except_schedule", keys=["type"])
    when = datetime.fromisoformat(text)
    first = push(type="digest", scheduled_at=when, scheduled_at_text=text, unique=how)
    new = push(type="digest", args=["new"], meta={"a": 1}, scheduled_at=2 * HOUR, unique=how)
    assert states_of(first, new) == ["cancelled", "scheduled"]
    assert (new.args, new.meta, new.due_at) == (["new"], {"a": 1}, first.due_at)
    assert new.envelope()["scheduled_at"] == text
    assert new.envelope() == read(new.id).envelope()


@EITHER_ROAD
def test_replace_except_schedule_keeps_a_relative_time_and_needs_none_of_its_own() -> None:
    how = policy("replace_except_schedule", keys=["type"])
    first = push(scheduled_at=HOUR, unique=how)
    new = push(unique=how)
    assert (new.state, new.due_at) == ("scheduled", read(first.id).due_at)
    assert first.due_at is not None
    assert new.envelope()["scheduled_at"] == format_timestamp(first.due_at)


@EITHER_ROAD
def test_replace_takes_its_own_time_and_so_does_the_other_for_what_was_not_scheduled() -> None:
    first = push(scheduled_at=HOUR, unique=policy())
    assert again(first, policy("replace")).state == "available"
    waiting = push(args=["b"], unique=policy())
    new = again(waiting, policy("replace_except_schedule"), scheduled_at=HOUR)
    assert states_of(waiting, new) == ["cancelled", "scheduled"]


# --- It is checked when a job is enqueued, and never again --------------------------------------


def test_neither_promotion_nor_retry_nor_activation_checks_again() -> None:
    narrow = policy(states=["active"])
    first = in_state("scheduled", args=[1], unique=policy())
    others = [in_state(s, args=[1], unique=narrow) for s in ("retryable", "pending", "discarded")]
    age([first.id, others[0].id], 2 * HOUR)
    promotion.promote()
    activate.activate(others[1].id)
    retry.retry(others[2].id)
    assert states_of(first, *others) == ["available"] * 4


def test_a_discarded_job_lets_go_of_its_key() -> None:
    job = push(unique=policy(), retry=ojs.RetryPolicy(max_attempts=1))
    fail.fail(claim(job).id, BOOM)
    assert again(job, policy()).state == "available"


# --- Batches -----------------------------------------------------------------------------------


def batch(*values: dict[str, Any]) -> list[EnqueuedJob]:
    return pushing.push_batch([EnvelopeFactory(**({"type": "test.b"} | v)) for v in values])


def test_a_rejected_job_takes_its_whole_batch_along_and_says_which_it_was() -> None:
    push(type="test.b", args=[2], unique=policy())
    with pytest.raises(DuplicateJob) as caught:
        batch({"args": [1]}, {"args": [1], "unique": policy()}, {"args": [2], "unique": policy()})
    assert caught.value.details["index"] == 2
    assert jobs().count() == 1


def test_the_second_of_two_in_one_batch_is_the_duplicate() -> None:
    with pytest.raises(DuplicateJob) as caught:
        batch({"args": [1], "unique": policy()}, {}, {"args": [1], "unique": policy()})
    assert caught.value.details["index"] == 2
    assert not jobs().exists()


def test_ignore_in_one_batch_gives_the_same_job_twice() -> None:
    how = policy("ignore")
    one = {"args": [1], "unique": how}
    first, plain, second, other = batch(one, {"args": [1]}, one, {"args": [2], "unique": how})
    assert (first.id, is_duplicate(first)) == (second.id, False)
    assert [is_duplicate(job) for job in (plain, second, other)] == [False, True, False]
    assert jobs().count() == 3


def test_replace_in_one_batch_leaves_the_last() -> None:
    how = policy("replace")
    found = batch(*({"args": [1], "unique": how, "tags": [tag]} for tag in "abc"))
    assert [job.state for job in found] == ["cancelled", "cancelled", "available"]
    assert states_of(*found) == [job.state for job in found]


def test_policies_may_differ_within_a_batch() -> None:
    push(type="test.b", args=[1], unique=policy())
    push(type="test.b", args=[2], unique=policy())
    found = batch(
        {"args": [1], "unique": policy("ignore")},
        {"args": [2], "unique": policy("replace", states=["available"])},
        {"args": [3], "unique": policy("reject", period=HOUR)},
    )
    assert [is_duplicate(job) for job in found] == [True, False, False]
    assert sorted(jobs().values_list("state", flat=True)) == ["available"] * 3 + ["cancelled"]


@pytest.mark.parametrize("strategy", ["reject", "replace", "ignore"])
def test_a_taken_id_in_a_batch_is_named_by_its_place_and_undoes_what_was_replaced(
    strategy: str,
) -> None:
    taken = push(type="test.b", args=["taken"])
    first = push(type="test.b", args=[1], unique=policy())
    how = policy(strategy)
    with pytest.raises(DuplicateJob) as caught:
        batch(
            {"args": [1 if strategy != "reject" else 2], "unique": how},
            {"args": [3], "unique": how},
            {"args": [3 if strategy != "reject" else 4], "unique": how},
            {"id": taken.id},
        )
    assert caught.value.details["index"] == 3
    assert states_of(first) == ["available"]
    assert jobs().count() == 2


def test_more_keys_than_a_server_has_room_for_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "MAX_KEYS", 3)
    batch(*({"args": [n % 3], "unique": policy("ignore")} for n in range(6)))
    with pytest.raises(InvalidRequest, match="at most 3 different unique keys"):
        batch(*({"args": [n], "unique": policy("ignore")} for n in range(4)))


@pytest.mark.parametrize("places", [[0], [0, 1], [0, 0, 1]])
def test_duplicates_of_a_batch_are_searched_for_once(places: list[int]) -> None:
    how, other = policy("ignore"), policy("ignore", period=HOUR)
    items = [{"args": [n], "unique": how if n else other} for n in places] * 50
    with CaptureQueriesContext(connection) as few:
        found = batch(*items[: len(places) * 4])
    with CaptureQueriesContext(connection) as many:
        again = batch(*items)
    assert len(many) <= len(few)
    assert [is_duplicate(job) for job in found].count(False) == len(set(places))
    assert all(is_duplicate(job) for job in again)
    first = {n: job.id for n, job in zip(places, found, strict=False)}
    assert [job.id for job in again] == [first[n] for n in places] * 50
    assert jobs().count() == len(set(places))


def test_a_duplicate_is_searched_for_again_when_another_policy_has_replaced_the_job() -> None:
    ignore, replace = policy("ignore"), policy("replace")
    how = [ignore, ignore, ignore, replace, ignore, ignore, replace, ignore]
    found = batch(*({"args": [1], "unique": each} for each in how))
    a, b, c = dict.fromkeys(job.id for job in found)
    assert [job.id for job in found] == [a, a, a, b, b, b, c, c]
    assert sorted(jobs().values_list("state", flat=True)) == ["available", "cancelled", "cancelled"]


def test_jobs_of_a_batch_replace_each_other_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "MAX_ROUNDS", 3)
    batch(*[{"args": [1], "unique": policy("replace")}] * 3)
    with pytest.raises(InvalidRequest, match="replace each other at most 3 times") as caught:
        batch(*[{"args": [1], "unique": policy("replace")}] * 4)
    assert "the last job of each unique key" in str(caught.value.hint)
    assert jobs().count() == 3


@pytest.mark.postgresql
def test_a_server_without_room_for_more_locks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # As twelve thousand keys in one transaction do with the defaults of a server; other sessions of
    # this one would find its table full as well.
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pg_temp.full_table(bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$ "
            "BEGIN RAISE EXCEPTION 'out of shared memory' USING ERRCODE = '53200'; END $$"
        )
    sql = database.dialect().sql
    monkeypatch.setitem(sql, "lock_unique_keys", "SELECT pg_temp.full_table(%s::bigint[])")
    with transaction.atomic():
        with pytest.raises(BackendUnavailable, match="no room for more locks") as caught:
            push(unique=policy("ignore"))
        assert "max_locks_per_transaction" in str(caught.value.hint)
        push()  # The transaction is usable.


def test_a_thousand_different_keys_fit() -> None:
    how = policy("ignore")
    found = batch(*({"args": [n], "unique": how} for n in range(1_000)))
    assert len({job.model().unique_key for job in found}) == 1_000
    assert all(is_duplicate(job) for job in batch({"args": [999], "unique": how}))


# --- Ids, transactions, signals ----------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["reject", "ignore", "replace"])
def test_the_same_id_again_is_a_duplicate_or_the_job_itself(strategy: str) -> None:
    key = uuid7()
    push(id=key, args=[1], unique=policy(), type="test.same")
    if strategy == "ignore":
        found = push_on_road(id=key, args=[1], unique=policy(strategy), type="test.same")
        assert (found.id, is_duplicate(found)) == (key, True)
        return
    with transaction.atomic():
        with pytest.raises(DuplicateJob) as caught:
            push(id=key, args=[1], unique=policy(strategy), type="test.same")
        assert caught.value.details["existing_job_id"] == str(key)
        assert "index" not in caught.value.details
        assert jobs().count() == 1
    assert read(key).state == "available"


def test_a_rejected_policy_stores_nothing_and_leaves_the_transaction_usable() -> None:
    with transaction.atomic():
        job = push(args=[1], unique=policy())
        with pytest.raises(DuplicateJob):
            again(job, policy())
        with pytest.raises(UniqueKeyInvalid):
            push(args=[1], unique=policy(args_keys=["nobody"]))
        other = push(args=[2], unique=policy())
    assert states_of(job, other) == ["available", "available"]


def test_what_a_savepoint_takes_back_does_not_hold_its_key() -> None:
    with transaction.atomic():
        with suppress(KeyError), transaction.atomic():
            push(type="test.t", unique=policy())
            raise KeyError
        assert push(type="test.t", unique=policy()).state == "available"


@pytest.mark.django_db(transaction=True)
def test_signals_and_rollups_are_for_what_was_stored() -> None:
    heard: list[tuple[str, Any]] = []

    def hear(name: str) -> Any:
        def receiver(job: Job, **details: Any) -> None:
            heard.append((name, job.id))

        return receiver

    with (
        receiving(hear("job_enqueued"), signals.job_enqueued),
        receiving(hear("job_cancelled"), signals.job_cancelled),
    ):
        first = push(args=[1], unique=policy())
        again(first, policy("ignore"))
        with pytest.raises(DuplicateJob):
            again(first, policy())
        second = again(first, policy("replace"))
    assert sorted(heard) == sorted(
        [
            ("job_enqueued", first.id),
            ("job_cancelled", first.id),
            ("job_enqueued", second.id),
        ]
    )


@pytest.mark.parametrize("count", [1, 5])
def test_jobs_without_a_policy_cost_one_statement_as_ever(count: int) -> None:
    envelopes = EnvelopeFactory.create_batch(count)
    with CaptureQueriesContext(connection) as queries:
        pushing.push_batch(envelopes, GENERATED)
    assert len(queries) == 1


def _statements(how: UniquePolicy, **values: Any) -> tuple[int, EnqueuedJob | None]:
    """Return the number of statements of an enqueue with a generated id, and its result."""
    wanted = {"type": "test.one", "unique": how} | values
    with CaptureQueriesContext(connection) as queries:
        try:
            job = pushing.push(EnvelopeFactory(**wanted), pushing.PLAIN)
        except DuplicateJob:
            job = None
    return len(queries), job


@pytest.mark.postgresql
@pytest.mark.parametrize("period", [None, "1h"])
def test_a_unique_job_costs_one_statement_and_a_duplicate_two(period: str | None) -> None:
    with override_settings(OJS={}):
        first = _statements(policy(period=period), args=[1])
        assert (first[0], first[1] and first[1].state) == (1, "available")
        assert _statements(policy(period=period), args=[1]) == (2, None)
        count, ignored = _statements(policy("ignore", period=period), args=[1])
        assert count == 2
        assert ignored is not None
        assert ignored.id == first[1].id  # type: ignore[union-attr]  # It was stored, as asserted.
        assert _statements(policy(period=period), args=[2])[0] == 1


def _whole_reads() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'ojs_job'")
        return int(cursor.fetchone()[0])


@pytest.mark.postgresql
def test_a_plan_for_a_small_table_does_not_read_a_large_one_whole() -> None:
    with override_settings(OJS={}):
        push_on_road(args=[0], unique=policy())
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE ojs_job")
        before = _whole_reads()
        for n in range(1, 4):
            assert _statements(policy(), args=[n])[0] == 1
    assert _whole_reads() == before


@pytest.mark.postgresql
def test_a_job_older_than_the_period_is_not_searched_for_again() -> None:
    with override_settings(OJS={}):
        how = policy(period="1h", states=EVERY)
        first = _statements(how)[1]
        assert first is not None
        age(first.id, 2 * HOUR)
        count, second = _statements(how)
        assert (count, second is not None and second.id != first.id) == (1, True)


@pytest.mark.postgresql
def test_one_statement_stores_what_is_in_the_columns_of_any_job() -> None:
    values: dict[str, Any] = {
        "queue": "whole",
        "args": ["ä", {"n": 1}],
        "meta": {"trace": "1"},
        "priority": 7,
        "timeout_ms": 1_000,
        "visibility_timeout_ms": 2_000,
    }
    with override_settings(OJS={}):
        one = pushing.push(EnvelopeFactory(unique=policy(), **values), pushing.PLAIN)
        first = Job.primary.filter(pk=one.id).values().get()
        jobs().delete()
        other = pushing.push(EnvelopeFactory(unique=policy(), **values), pushing.ONE)
    second = Job.primary.filter(pk=other.id).values().get()
    different = {name for name in first if first[name] != second[name]}
    assert first["unique_key"]
    assert different == {"id", "created_at", "enqueued_at"}


# --- From Python -------------------------------------------------------------------------------


def test_the_policy_is_stored_and_returned() -> None:
    job = ojs.enqueue("test.p", [{"a": 1}], unique={"args_keys": ["a"], "period": "1h"})
    assert job is not None
    assert read(job.id).envelope()["unique"] == {
        "keys": ["type", "args"],
        "args_keys": ["a"],
        "period": "PT1H",
        "states": ["scheduled", "available", "pending", "active", "retryable"],
        "on_conflict": "reject",
    }


def test_a_policy_that_is_none_is_rejected_by_name() -> None:
    with pytest.raises(UniqueKeyInvalid, match="unique must be an object"):
        ojs.enqueue("test.p", unique="reject")  # type: ignore[arg-type]  # the point
    with pytest.raises(UniqueKeyInvalid, match="unique must be a unique policy"):
        push(unique={})
    with pytest.raises(UniqueKeyInvalid) as caught:
        ojs.enqueue_batch(
            [ojs.request("test.p"), ojs.request("test.p", unique={"args_keys": ["a"]})]
        )
    assert caught.value.details["index"] == 1


def test_names_of_parameters_are_places_whoever_enqueues() -> None:
    @ojs.job("test.placed", unique={"args_keys": ["user_id"], "on_conflict": "ignore"})
    def placed(context: ojs.JobContext, template: str, user_id: int) -> None: ...

    try:
        first = placed.enqueue("a", 7)
        assert first is not None
        found = [
            placed.enqueue("b", 7),
            placed.enqueue("a", 8),
            ojs.enqueue("test.placed", ["c", 7]),
            placed.options(unique=UniquePolicy(args_keys=["template"])).enqueue("a", 7),
            placed.options(unique=UniquePolicy(args_keys=["1"], on_conflict="ignore")).enqueue(
                "", 8
            ),
        ]
        assert [is_duplicate(job) for job in found] == [True, False, True, False, True]
        assert first.job().envelope()["unique"]["args_keys"] == ["1"]
        # A producer that knows nothing of the handler.
        values = {"type": "test.placed", "args": ["d", 7], "unique": {"args_keys": ["1"]}}
        with pytest.raises(DuplicateJob):
            pushing.push(parse(values))
    finally:
        handlers.registry.remove("test.placed")


def test_a_bad_policy_of_a_handler_is_rejected_where_it_is_declared() -> None:
    with pytest.raises(UniqueKeyInvalid, match=r"unique\.keys may hold"):
        ojs.job("test.bad", unique={"keys": ["argz"]})
    with pytest.raises(UniqueKeyInvalid, match="unique must be an object"):
        ojs.job("test.bad", unique=5)  # type: ignore[arg-type]  # the point


def tenant_of(envelope: Envelope, proceed: Any) -> Any:
    envelope.meta = {"tenant": envelope.tags[0]}
    return proceed(envelope)


def encrypt(envelope: Envelope, proceed: Any) -> Any:
    envelope.args[:] = [str(uuid7())]
    return proceed(envelope)


@pytest.mark.parametrize("path", ["tenant_of", "encrypt"])
def test_the_key_is_of_the_arguments_before_and_of_the_rest_after_the_middleware(path: str) -> None:
    how = policy("ignore", keys=["args", "meta"], meta_keys=["tenant"])
    with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [f"{__name__}.{path}"]}):
        found = [
            push_on_road(type="m", args=[1], tags=[tag], unique=how) for tag in ("a", "b", "a")
        ]
    assert [is_duplicate(job) for job in found] == [False, path == "encrypt", True]
