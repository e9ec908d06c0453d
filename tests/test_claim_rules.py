"""Rules of claims: which jobs start where several extensions have a say, alone and together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.claim_rules import ClaimRule, MayStart, RuledClaim, SetAside
from django_ojs.extension import Extension, Hooks
from django_ojs.extensions.limits.extension import KeyLimitsExtension
from django_ojs.extensions.limits.limit_journal import RULE as LIMITS_BY_KEY
from django_ojs.extensions.limits.models import OPEN
from django_ojs.hooks import registry
from django_ojs.models import Job, Queue
from django_ojs.operations import ack, fetch, queues
from django_ojs.reports import not_running, queue_overview
from django_ojs.reports.health_queries import failed_extensions
from django_ojs.spec import hold, ids, json
from django_ojs.storage import queue_configs, ruled_claims
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.rows import Candidate, ClaimRequest
from django_ojs.storage.next_starts import next_starts
from tests.cases import together
from tests.factories import WORKER, jobs, jobs_of_key, push, push_many
from tests.test_extension import installed

pytestmark = pytest.mark.django_db

QUEUE = "ruled"
NUMBER = 40


@dataclass
class Rule(ClaimRule):
    """A rule of another package: it rejects the jobs of which `rejects` is true."""

    rejects: Callable[[Job], bool] = lambda job: False
    room: int | None = None
    set_aside: SetAside = SetAside.NO
    calls: list[str] = field(default_factory=list)
    taken: list[Any] = field(default_factory=list)

    def begin(self, request: ClaimRequest) -> RuledClaim:
        self.calls.append(f"begin {request.limit}")
        return Part(self)


class Part(RuledClaim):
    decides = True

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.room = rule.room
        self._rejected: list[Any] = []

    def read(self, candidates: Sequence[Candidate]) -> None:
        self.rule.taken.clear()
        self._jobs = Job.primary.in_bulk([each.id for each in candidates])

    def may_start(self, job: Candidate) -> MayStart:
        return MayStart.NO if self.rule.rejects(self._jobs[job.id]) else MayStart.YES

    def take(self, job: Candidate) -> None:
        self.rule.taken.append(job.id)

    def reject(self, job: Candidate) -> SetAside:
        self.rule.calls.append("reject")
        if self.rule.set_aside is SetAside.YES:
            self._rejected.append(job.id)
        return self.rule.set_aside

    def set_aside(self) -> int:
        jobs().filter(pk__in=self._rejected).update(queue="aside")
        self._rejected.clear()
        return 0

    def started(self, jobs: Sequence[Claimed]) -> None:
        self.rule.calls.append(f"started {len(jobs)}")


@dataclass
class Ruling(Extension):
    """An extension with this rule."""

    rule: ClaimRule
    name: str = "ruling"
    number: int = NUMBER

    def hooks(self) -> Hooks:
        return Hooks(claim_rule=self.rule)


@pytest.fixture
def rule() -> Iterator[Rule]:
    rule = Rule()
    with installed(Ruling(rule)):
        queue_configs.add_rules([QUEUE], 1 << NUMBER)
        yield rule


def claim(count: int = 100, queue: str = QUEUE) -> list[Claimed]:
    return fetch.fetch([queue], count=count, worker_id=WORKER, due=False)


def is_low(job: Job) -> bool:
    return job.priority < 0


def rules(name: str = QUEUE) -> int:
    return Queue.primary.get(pk=name).rules


# --- one rule ---------------------------------------------------------------------------------


def test_a_job_that_a_rule_rejects_stays_where_it_is_and_those_behind_it_start(rule: Rule) -> None:
    rule.rejects = lambda job: job.priority == 0
    stays, starts = push(queue=QUEUE), push(queue=QUEUE, priority=-1)
    assert [job.id for job in claim(1)] == [starts.pk]
    assert jobs().get(state="available").pk == stays.pk
    assert rule.taken == [starts.pk]
    rule.rejects = lambda job: False
    assert [job.id for job in claim(1)] == [stays.pk]


def test_a_job_behind_many_that_stay_starts(rule: Rule) -> None:
    rule.rejects = lambda job: job.priority == 0
    push_many(ruled_claims.CANDIDATES_AT_ONCE - 1, queue=QUEUE)
    starts = push(queue=QUEUE, priority=-1)
    assert [job.id for job in claim(1)] == [starts.pk]


def test_a_job_behind_ever_so_many_that_are_set_aside_starts(rule: Rule) -> None:
    rule.rejects, rule.set_aside = lambda job: job.priority == 0, SetAside.YES
    push_many(3 * ruled_claims.CANDIDATES_AT_ONCE, queue=QUEUE)
    starts = push(queue=QUEUE, priority=-1)
    assert [job.id for job in claim(1)] == [starts.pk]
    assert jobs().filter(queue=QUEUE, state="available").count() == 0


def test_a_rule_may_leave_room_for_some_jobs(rule: Rule) -> None:
    push_many(5, queue=QUEUE)
    rule.room = 2
    assert len(claim(5)) == 2
    rule.room = 0
    assert claim(5) == []
    assert rule.calls == ["begin 5", "started 2", "begin 5"]


def test_a_job_that_is_too_large_is_not_counted(rule: Rule) -> None:
    push_many(3, queue=QUEUE, args=["x" * 1000])
    found = fetch.fetch([QUEUE], count=3, worker_id=WORKER, max_bytes=2500, due=False)
    assert rule.taken == [job.id for job in found]
    assert len(found) == 2


def raises(*_: Any) -> Any:
    raise ValueError("it does not count")


def others(_part: Part, at_most: int, _condition: Any) -> list[Candidate]:
    return [Candidate(job.pk, 0, job.hold) for job in jobs().exclude(queue=QUEUE)[:at_most]]


@together(
    "of, name, wrong",
    [
        (Rule, "begin", raises),
        (Rule, "begin", lambda *_: None),
        (Part, "candidates", raises),
        (Part, "candidates", lambda *_: None),
        (Part, "candidates", others),
        (Part, "in_order", raises),
        (Part, "read", raises),
        (Part, "may_start", raises),
        (Part, "may_start", lambda *_: True),
        (Part, "take", raises),
        (Part, "reject", raises),
        (Part, "set_aside", raises),
        (Part, "set_aside", lambda *_: None),
        (Part, "started", raises),
    ],
    undo=True,
)
def test_a_rule_that_fails_stops_no_other_queue_and_is_named(
    of: type, name: str, wrong: Any, rule: Rule, monkeypatch: Any, caplog: Any
) -> None:
    job, other = push(queue=QUEUE), push(queue="other")
    if name == "reject":
        rule.rejects = lambda _: True
    with monkeypatch.context() as patch:
        patch.setattr(of, name, wrong)
        caplog.clear()
        found = fetch.fetch([QUEUE, "other"], count=2, worker_id=WORKER, due=False)
    assert [each.id for each in found] == [other.pk]
    assert jobs().get(pk=job.pk).state == "available"
    said = f"failed in a claim of the queue {QUEUE}"
    assert f"The extension ruling of django_ojs {said}." in caplog.messages
    assert said in failed_extensions()[0].text
    rule.rejects = lambda _: False
    assert [each.id for each in claim()] == [job.pk]


@together("wrong", [raises, lambda *_: None, lambda *_: 1], undo=True)
def test_a_rule_that_cannot_say_which_queues_are_full_stops_only_these_and_is_named(
    wrong: Any, rule: Rule, monkeypatch: Any, caplog: Any
) -> None:
    job, other = push(queue=QUEUE), push(queue="other")
    queue_configs.refresh()
    next_starts.note_full(QUEUE, 0, waits_for_end=True)
    next_starts.note_full("other", 0, waits_for_end=True)
    with monkeypatch.context() as patch:
        patch.setattr(Rule, "full_among", wrong)
        caplog.clear()
        found = fetch.fetch([QUEUE, "other"], count=2, worker_id=WORKER, due=False)
    assert [each.id for each in found] == [other.pk]
    said = f"The extension ruling of django_ojs failed in a claim of the queue {QUEUE}."
    assert caplog.messages == [said]
    assert [each.id for each in claim()] == [job.pk]


def test_a_rule_that_names_a_queue_without_the_rule_stops_only_its_own(
    rule: Rule, monkeypatch: Any
) -> None:
    push(queue=QUEUE), push(queue="other")
    next_starts.note_full(QUEUE, 0, waits_for_end=True)
    monkeypatch.setattr(Rule, "full_among", lambda *_: [QUEUE, "other"])
    found = fetch.fetch([QUEUE, "other"], count=2, worker_id=WORKER, due=False)
    assert [each.queue for each in found] == ["other"]


def test_a_rule_that_cannot_say_what_waits_is_named_and_all_else_is_shown(
    rule: Rule, monkeypatch: Any, caplog: Any
) -> None:
    job = push(queue=QUEUE)
    monkeypatch.setattr(Rule, "waits_for", raises)
    monkeypatch.setattr(Rule, "may_open", raises)
    monkeypatch.setattr(queue_overview, "is_worked", lambda _: True)
    assert not_running.why_not_running(job) is not None
    assert fetch.may_find([QUEUE, "other"])
    assert caplog.messages == [
        "The extension ruling of django_ojs failed to say why a job waits.",
        "The extension ruling of django_ojs failed to say whether jobs may be opened.",
    ]


def test_a_rule_decides_on_the_jobs_that_are_open_to_it_alone_in_the_order_of_the_queue(
    rule: Rule,
) -> None:
    first, second, third, low = (push(queue=QUEUE, priority=-n) for n in range(4))
    jobs().filter(pk__in=[second.pk, low.pk]).update(hold=hold.open_to(NUMBER))
    rule.rejects = lambda job: job.pk == low.pk
    assert [job.id for job in claim(3)] == [first.pk, second.pk, third.pk]
    assert claim() == []


def test_without_the_limits_a_job_of_a_key_is_one_as_any_other(rule: Rule) -> None:
    push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 0})
    jobs().update(hold=hold.FREE)  # As taking the limits out does.
    registry.remove(KeyLimitsExtension())
    try:
        assert len(claim()) == 1
    finally:
        registry.register(KeyLimitsExtension())


# --- a queue that has a rule ------------------------------------------------------------------


def test_no_process_without_the_extension_claims_a_job(
    rule: Rule, caplog: pytest.LogCaptureFixture
) -> None:
    push(queue=QUEUE)
    other = push(queue="plain")
    registry.remove(Ruling(rule))
    with caplog.at_level(logging.ERROR, logger="django_ojs"):
        assert claim() == claim() == []
    (record,) = caplog.records
    assert record.getMessage() == (
        f"No job of the queue {QUEUE} is claimed: it has rules of extensions that are not "
        f"installed here. Their numbers are {NUMBER}."
    )
    assert [job.id for job in claim(queue="plain")] == [other.pk]


@together(
    "config",
    [{"concurrency": 1}, {"rate_limit": {"max_per_second": 1}}, {"tenant_fairness": {}}],
    undo=True,
)
def test_a_queue_has_the_rules_of_its_configuration_as_long_as_it_has_that(config: Any) -> None:
    queues.configure(QUEUE, config)
    assert rules() != 0
    queues.configure(QUEUE, dict.fromkeys(config))
    assert rules() == 0
    queues.create("new", config)
    assert rules("new") != 0


def test_a_queue_keeps_the_rules_of_its_jobs(rule: Rule) -> None:
    push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 1})
    assert len(claim()) == 1
    queues.configure(QUEUE, {"concurrency": 1})
    queues.configure(QUEUE, {"concurrency": None})
    assert rules() == LIMITS_BY_KEY | 1 << NUMBER


def test_a_queue_whose_jobs_move_into_another_gives_it_the_rules_of_its_jobs(rule: Rule) -> None:
    queues.configure(QUEUE, {"concurrency": 5})
    for _ in range(3):
        push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 1})
    (running,) = claim()
    queues.delete(QUEUE, strategy="move", target="target")
    assert rules("target") == LIMITS_BY_KEY | 1 << NUMBER
    ack.ack(running.id)
    assert len(claim(queue="target")) == 1


def test_a_deleted_queue_has_only_the_rules_of_its_jobs() -> None:
    queues.configure(QUEUE, {"concurrency": 5})
    push(queue=QUEUE)
    (running,) = claim()
    queues.delete(QUEUE, strategy="discard")
    ack.ack(running.id)
    assert not Queue.primary.filter(pk=QUEUE).exclude(rules=0).exists()


@pytest.mark.parametrize("name", [QUEUE, "_default"])
def test_the_settings_give_queues_their_rules_too(name: str, settings: Any) -> None:
    push_many(3, queue=QUEUE)
    with override_settings(OJS={**settings.OJS, "QUEUES": {name: {"concurrency": 2}}}):
        assert len(claim()) == 2


@pytest.mark.statements
def test_the_statement_of_a_plain_claim_names_no_subject() -> None:
    push(queue=QUEUE)
    with CaptureQueriesContext(connection) as captured:
        assert len(claim()) == 1
    (statement,) = [each["sql"] for each in captured if "SET state" in each["sql"]]
    for name in ("config", "concurrency", "rate_limit", "tenant", "limit_key"):
        assert name not in statement


# --- several rules ----------------------------------------------------------------------------


@pytest.mark.parametrize("on_limit", ["wait", "reschedule", "drop"])
def test_what_two_rules_reject_is_neither_held_nor_moved_nor_dropped(
    on_limit: str, rule: Rule
) -> None:
    closed = {"key": "acme", "concurrency": 0, "on_limit": on_limit}
    job = push(queue=QUEUE, rate_limit=closed, priority=-1)
    behind = push(queue=QUEUE, priority=-2)
    before = jobs().get(pk=job.pk)
    rule.rejects, rule.set_aside = (lambda job: job.priority == -1), SetAside.YES
    assert [each.id for each in claim(1)] == [behind.pk]
    after = jobs().get(pk=job.pk)
    assert (after.state, after.queue, after.hold, after.due_at) == (
        before.state,
        before.queue,
        before.hold,
        before.due_at,
    )
    assert "reject" not in rule.calls
    # One of them alone does with it what it does.
    rule.rejects = lambda job: False
    assert claim() == []
    ended = jobs().get(pk=job.pk)
    held = ended.hold != after.hold
    assert (ended.state, held) == {
        "wait": ("available", True),
        "reschedule": ("scheduled", False),
        "drop": ("discarded", False),
    }[on_limit]


@pytest.mark.parametrize("on_limit", ["wait", "reschedule", "drop"])
def test_a_queue_at_its_limit_lets_no_key_hold_move_or_drop_a_job(on_limit: str) -> None:
    queues.configure(QUEUE, {"concurrency": 1})
    closed = {"key": "acme", "concurrency": 0, "on_limit": on_limit}
    push(queue=QUEUE, priority=1)
    job = push(queue=QUEUE, rate_limit=closed)
    (running,) = claim()
    assert claim() == []
    waiting = jobs().get(pk=job.pk)
    assert (waiting.state, waiting.hold) == ("available", OPEN)
    ack.ack(running.id)
    assert claim() == []
    ended = jobs().get(pk=job.pk)
    assert (ended.state, ended.hold) != ("available", OPEN)


def test_a_job_that_another_rule_rejects_takes_no_place_of_its_key(rule: Rule) -> None:
    one = {"key": "acme", "concurrency": 1}
    push(queue=QUEUE, rate_limit=one)
    second = push(queue=QUEUE, rate_limit=one, priority=-1)
    rule.rejects = lambda job: job.priority == 0
    assert [job.id for job in claim(1)] == [second.pk]


def test_all_rules_hold_together(rule: Rule) -> None:
    """Ten jobs of each of two tenants: low ones may not start, three run, one of each key."""
    queues.configure(QUEUE, {"concurrency": 3, "tenant_fairness": {"enabled": True}})
    rule.rejects = is_low
    for tenant in "ab":
        meta = {"tenant_id": tenant}
        push_many(5, queue=QUEUE, meta=meta, priority=-1)
        push_many(2, queue=QUEUE, meta=meta, rate_limit={"key": tenant, "concurrency": 1})
        push_many(3, queue=QUEUE, meta=meta)
    found: list[Claimed] = []
    for size in (1, 2, 3):
        found += claim(size)
        assert jobs().filter(state="active").count() == min(3, len(found))
    assert {job.meta["tenant_id"] for job in found[:2]} == {"a", "b"}
    while found:
        ack.ack(found.pop().id)
        found += claim()
        active = jobs().filter(state="active")
        assert active.count() <= 3
        for key in "ab":
            assert jobs_of_key(key).filter(state="active").count() <= 1
    left = jobs().exclude(state="completed")
    assert set(left.values_list("priority", "state")) == {(-1, "available")}
    assert left.count() == 10


def test_rules_begin_by_number_and_are_told_in_reverse() -> None:
    calls: list[str] = []
    outer, inner = Rule(calls=calls, room=3), Rule(calls=calls, room=2)
    push_many(5, queue=QUEUE)
    queue_configs.add_rules([QUEUE], 1 << 41 | 1 << 42)
    with installed(Ruling(inner, "inner", 42), Ruling(outer, "outer", 41)):
        assert len(claim(5)) == 2
    assert calls == ["begin 5", "begin 3", "started 2", "started 2"]


# --- how a queue learns a rule from its jobs ---------------------------------------------------


def test_the_first_claim_after_the_first_limited_job_of_a_queue_takes_it() -> None:
    job = push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 1})
    assert not Queue.primary.filter(rules__gt=0).exists()
    assert [each.id for each in claim()] == [job.pk]
    assert rules() == LIMITS_BY_KEY


def test_a_limited_job_of_a_high_priority_is_claimed_before_plain_ones() -> None:
    push_many(3, queue=QUEUE)
    assert len(claim(1)) == 1
    first = push(queue=QUEUE, priority=5, rate_limit={"key": "acme", "concurrency": 1})
    assert [each.id for each in claim(1)] == [first.pk]


@together("config", [{"concurrency": 9}, {"tenant_fairness": {"enabled": True}}], undo=True)
def test_a_claim_that_applies_another_rule_learns_that_of_the_limits(config: Any) -> None:
    queues.configure(QUEUE, config)
    push(queue=QUEUE, priority=1)
    assert len(claim(1)) == 1
    push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 1})
    push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 1})
    assert len(claim()) == 1
    assert rules() & LIMITS_BY_KEY


@pytest.mark.parametrize("learned", [True, False])
def test_a_job_that_is_open_to_another_rule_starts_in_a_queue_with_limits(
    learned: bool, rule: Rule
) -> None:
    push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 1})
    assert len(claim()) == 1
    if not learned:
        Queue.primary.update(rules=LIMITS_BY_KEY)
        queue_configs.refresh()
    job = push(queue=QUEUE)
    jobs().filter(pk=job.pk).update(hold=NUMBER)
    assert [each.id for each in claim()] == [job.pk]
    assert rules() == LIMITS_BY_KEY | 1 << NUMBER


def test_a_process_that_knows_no_limits_claims_no_job_of_such_a_queue_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An old worker beside a new producer."""
    push(queue=QUEUE)
    push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 1})
    known = KeyLimitsExtension()
    registry.remove(known)
    try:
        with caplog.at_level(logging.ERROR, logger="django_ojs"):
            assert claim() == []
    finally:
        registry.register(known)
    assert "rules of extensions that are not installed here. Their numbers are 14." in caplog.text
    assert len(claim()) == 2


def test_a_job_that_was_inserted_without_a_word_of_limits_has_them() -> None:
    """A producer without the extension beside a new worker: it stores the attribute only."""
    source = push(queue="elsewhere", rate_limit={"key": "acme", "concurrency": 1})
    plain = [push(queue=QUEUE) for _ in range(3)]
    columns = [each.column for each in Job._meta.concrete_fields]
    values = {"id": "%s", "queue": "%s", "options": "%s", "hold": "0"}
    chosen = ", ".join(values.get(name, name) for name in columns)
    options = {"rate_limit": source.options["rate_limit"]}
    copy = f"INSERT INTO ojs_job ({', '.join(columns)}) SELECT {chosen} FROM ojs_job WHERE id = %s"
    with connection.cursor() as cursor:
        for _ in range(2):
            given = {"id": _stored_id(ids.uuid7()), "queue": QUEUE, "options": json.dumps(options)}
            order = [given[name] for name in columns if name in given]
            cursor.execute(copy, [*order, _stored_id(source.pk)])
    assert jobs_of_key("acme").filter(queue=QUEUE, hold=OPEN).count() == 2
    assert len(claim()) == len(plain) + 1


def _stored_id(key: Any) -> Any:
    return Job._meta.pk.get_db_prep_value(key, connection)


def test_a_limited_job_locks_no_row_of_its_queue() -> None:
    queues.configure(QUEUE, {"concurrency": 100})
    before = Queue.primary.get(pk=QUEUE)
    with CaptureQueriesContext(connection) as captured:
        push(queue=QUEUE, rate_limit={"key": "acme", "concurrency": 1})
    assert not any("UPDATE" in each["sql"] and "ojs_queue" in each["sql"] for each in captured)
    assert not any("INTO" in each["sql"] and "ojs_queue" in each["sql"] for each in captured)
    assert Queue.primary.get(pk=QUEUE).rules == before.rules
