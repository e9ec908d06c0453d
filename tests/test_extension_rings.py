"""The rings of extensions round an enqueue, and round stored jobs that wait again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created

import django_ojs as ojs
from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.extension import Around, Batch, Extension, Hooks, Readmission
from django_ojs.extensions.backpressure.extension import BackpressureExtension
from django_ojs.extensions.backpressure.operations import rejection_counts
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.outbox import extension as outbox
from django_ojs.extensions.outbox.extension import OutboxExtension
from django_ojs.extensions.statistics.extension import StatisticsExtension
from django_ojs.extensions.tenants.extension import TenantsExtension
from django_ojs.hooks import Registry
from django_ojs.models import Queue
from django_ojs.operations import push as pushing
from django_ojs.operations import queues
from django_ojs.operations.activate import activate
from django_ojs.operations.delete import delete
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.push import PushOptions
from django_ojs.operations.retry import retry
from django_ojs.spec.errors import PayloadTooLarge, QueueFull
from django_ojs.spec.full_policy import FullPolicy
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.worker.executor import Executor
from django_ojs.worker.in_flight import Run
from tests import factories as make
from tests.http.api import Api
from tests.test_extension import Other, broken, installed
from tests.worker.parts import Outcome as RunOutcome
from tests.worker.parts import Outcomes, run_of

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "ringed"
#: The ring of the INSERT is asked, whether a queue has a configuration or not.
EXACT = PushOptions(generated_ids=True, checks_bound=True)


def add(tenant: str | None = None, options: PushOptions = EXACT, **values: Any) -> EnqueuedJob:
    meta = {} if tenant is None else {"tenant_id": tenant}
    return pushing.push(make.EnvelopeFactory(queue=NAME, meta=meta, **values), options)


def full(queue: str = NAME) -> QueueFull:
    return QueueFull.at(queue, depth=1, bound=1, strategy="reject")


def stored() -> int:
    return make.jobs().filter(queue=NAME, state="available").count()


def noting(name: str, called: list[str]) -> Around:
    def hook(subject: Any, go_on: Callable[[], Any]) -> Any:
        called.append(f"{name} before")
        result = go_on()
        called.append(f"{name} after")
        return result

    return hook


def refusing(subject: Any, go_on: Callable[[], Any]) -> Any:
    raise full()


@dataclass
class Places:
    """A condition of its own: so many places for jobs, which it takes before it goes on."""

    free: int
    refused: list[QueueFull] = field(default_factory=list)

    def around(self, batch: Batch, insert: Callable[[], Any]) -> Any:
        number = len(batch.jobs)
        if self.free < number:
            error = QueueFull.at(NAME, depth=number, bound=self.free, strategy="reject")
            error.details["by"] = "places"
            raise error
        self.free -= number
        rows = None
        try:
            rows = insert()
        finally:
            if rows is None:
                self.free += number
        return rows

    def note(self, error: QueueFull, jobs: Sequence[Any]) -> None:
        self.refused.append(error)

    def extension(self, number: int) -> Extension:
        return Other(Hooks(around_insert=self.around, rejected=self.note), "places", number)


def advisory_locks() -> int:
    """How many locks of queues and tenants this session holds."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])


# --- the order --------------------------------------------------------------------------------


def test_the_hooks_of_a_ring_are_around_each_other_in_the_order_of_their_numbers() -> None:
    called: list[str] = []
    rings = [
        Other(Hooks(**dict.fromkeys(RINGS, noting(name, called))), name, number)
        for name, number in (("inner", 42), ("outer", 40), ("middle", 41))
    ]
    pending = make.push(queue=NAME, pending=True)
    steps: list[Callable[[], Any]] = [
        lambda: add(options=EXACT),
        lambda: activate(pending.pk),
        lambda: add(options=PushOptions(generated_ids=True, notes=(FullPolicy(),))),
    ]
    order = ["outer before", "middle before", "inner before"]
    order += ["inner after", "middle after", "outer after"]
    with installed(*rings):
        for step in steps:
            called.clear()
            step()
            assert called == order


RINGS = ("around_store", "around_insert", "around_admit_again")


def test_a_plain_enqueue_asks_no_ring() -> None:
    called: list[str] = []
    hooks = Hooks(**dict.fromkeys(RINGS, noting("ring", called)))
    with installed(Other(hooks)):
        add(options=PushOptions(generated_ids=True))
        assert called == []
        queues.configure("another", {"backpressure": {"max_depth": 5}})
        add(options=PushOptions(generated_ids=True))
    assert called == ["ring before", "ring after"]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize("number", [0, 40])
def test_the_order_of_registration_changes_nothing(
    order: Sequence[int], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(9)
    known: list[Extension] = [
        TenantsExtension(),
        BackpressureExtension(),
        places.extension(number),
    ]
    registry = Registry()
    registry.register(*(known[index] for index in order))
    monkeypatch.setattr(hooks, "registry", registry)
    limits = {"tenant_limits": {"max_queue_depth": 2}, "backpressure": {"max_depth": 3}}
    queues.configure(NAME, limits)
    for tenant in ("a", "a", "b"):
        add(tenant)
    # Both are full: the tenant is asked first.
    with pytest.raises(QueueFull, match="queue ringed for tenant a is full: 2 of 2"):
        add("a")
    with pytest.raises(QueueFull, match="queue ringed is full: 3 of 3"):
        add("b")
    places.free = 0
    with pytest.raises(QueueFull) as caught:
        add("a")
    assert ("by" in caught.value.details) is (number == 0)
    assert stored() == 3


# --- conditions beside each other -------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 40], ids=["outermost", "innermost"])
@pytest.mark.parametrize("near", [False, True], ids=["far", "near"])
def test_what_one_condition_refuses_the_others_give_back(number: int, near: bool) -> None:
    """Each in turn is the one that is full; the caller's transaction goes on after each."""
    # Near its bound a queue is locked; far from it, the statement admits the job.
    depth = 6 if near else 600
    places = Places(4)
    with installed(places.extension(number)):
        queues.configure(
            NAME,
            {"tenant_limits": {"max_queue_depth": 2}, "backpressure": {"max_depth": depth}},
        )
        with transaction.atomic():
            add("a")
            add("a")
            held = advisory_locks()
            with pytest.raises(QueueFull) as caught:
                add("a")
            assert (caught.value.part, places.free) == (("tenant", "a"), 2)
            places.free = 0
            with pytest.raises(QueueFull) as caught:
                add("b")
            assert (caught.value.details.get("by"), caught.value.part) == ("places", None)
            assert advisory_locks() == held
            places.free = 2
            add("b")
        if near:
            queues.configure(NAME, {"backpressure": {"max_depth": 3}})
            with transaction.atomic():
                held = advisory_locks()
                with pytest.raises(QueueFull) as caught:
                    add("c")
                assert (caught.value.part, caught.value.bound) == (None, 3)
                assert (places.free, advisory_locks()) == (1, held)
                assert stored() == 3
            # The tenant has its two places still.
            queues.configure(NAME, {"backpressure": {"max_depth": 9}})
        places.free = 9
        add("c")
        add("c")
        with pytest.raises(QueueFull, match="for tenant c is full"):
            add("c")
    assert stored() == 5


def test_a_refusal_of_a_third_condition_uses_up_no_room() -> None:
    places = Places(0)
    with installed(places.extension(40)):
        queues.configure(NAME, {"backpressure": {"max_depth": 3}})
        for _ in range(9):
            with pytest.raises(QueueFull):
                add()
        places.free = 9
        for _ in range(3):
            add()
        with pytest.raises(QueueFull, match="is full: 3 of 3"):
            add()
    assert (stored(), places.free) == (3, 6)


@pytest.mark.parametrize("several", [False, True])
def test_an_error_in_the_ring_of_the_insert_leaves_nothing_stored_and_the_transaction_usable(
    several: bool,
) -> None:
    def late(batch: Batch, insert: Callable[[], Any]) -> Any:
        with transaction.atomic():
            assert insert() is not None
            raise full()

    jobs = make.EnvelopeFactory.create_batch(3 if several else 1, queue=NAME)
    with transaction.atomic():
        with installed(Other(Hooks(around_insert=late))), pytest.raises(QueueFull):
            pushing.push_batch(jobs, EXACT)
        assert stored() == 0
        add()
    assert stored() == 1


# --- the ring of an enqueue -------------------------------------------------------------------


@dataclass(frozen=True)
class Again:
    """A note of a test's own: how often to try again."""

    times: int


def test_a_ring_goes_on_again_without_a_second_admission() -> None:
    asked: list[PushOptions] = []
    places = Places(0)

    def around(batch: Batch, store: Callable[[], Any]) -> Any:
        asked.append(batch.options)
        note = batch.options.note(Again)
        assert note is not None
        assert batch.options.note(FullPolicy) is None
        for _ in range(note.times):
            with suppress(QueueFull):
                return store()
            places.free += 1
        return store()

    options = PushOptions(generated_ids=True, checks_bound=True, notes=(Again(2),))
    with installed(Other(Hooks(around_store=around), "again", 41), places.extension(40)):
        job = add(options=options)
    assert (job.outcome, asked, places.free) == (Outcome.STORED, [options], 0)
    # The queue was full once, and in the end it was not.
    assert places.refused == []


def test_the_outermost_ring_sees_jobs_before_the_middleware_and_stores_a_part_of_them() -> None:
    options = PushOptions(batch=True, generated_ids=True)
    kept: list[Any] = []

    def around(batch: Batch, store: Callable[[], Any]) -> Any:
        assert batch.options is options
        first, *rest = batch.jobs
        kept.extend(rest)
        first.meta = {"seen": True}
        batch.jobs = [first]
        return store()

    jobs = [
        make.EnvelopeFactory(queue=NAME),
        make.EnvelopeFactory(queue="not valid", args=[object()]),
    ]
    with installed(Other(Hooks(around_push=around))):
        results = pushing.push_batch(jobs, options)
    assert ([job.id for job in results], kept) == ([jobs[0].id], jobs[1:])
    assert make.jobs().get(queue=NAME).meta == {"seen": True}


def test_what_was_pushed_before_is_not_pushed_again() -> None:
    called: list[str] = []
    with installed(Other(Hooks(around_push=noting("push", called)))):
        add(options=PushOptions(admitted=True))
    assert called == []


def test_python_code_gets_notes_with_which_a_hook_takes_out_what_is_too_large() -> None:
    notes: list[Again] = []

    def note() -> Again:
        notes.append(Again(len(notes)))
        return notes[-1]

    def admit(options: PushOptions, job: Any) -> Any:
        assert options.note(Again) in notes
        return replace(job, args=[len(job.args[0])])

    large = "x" * (settings().limits.envelope_bytes + 1)
    with installed(Other(Hooks(note=note, admit=admit))):
        job = ojs.enqueue("test.job", [large], queue=NAME)
        both = ojs.enqueue_batch([ojs.Request(type="test.job", args=[large])] * 2)
        # What a client sent is stored as it is.
        sent = Api().push(args=["small"])
        with pytest.raises(PayloadTooLarge):
            add(args=[large])
    assert [each.job().args for each in (job, *both)] == [[len(large)]] * 3
    assert sent["args"] == ["small"]
    assert len(notes) == 2


def test_a_job_that_is_too_large_afterwards_too_is_rejected() -> None:
    called: list[str] = []
    hooks = Hooks(
        note=lambda: Again(1),
        admit=lambda options, job: replace(job, args=[job.args[0] * 2]),
        around_store=noting("store", called),
    )
    half = "x" * (settings().limits.envelope_bytes // 2)
    with installed(Other(hooks)), pytest.raises(PayloadTooLarge):
        ojs.enqueue("test.job", [half], queue=NAME)
    assert (called, stored()) == ([], 0)


# --- the ring of a run ------------------------------------------------------------------------


def run_in(function: Callable[..., Any], hook: Around, *, atomic: bool = False) -> RunOutcome:
    """Let a worker run a job in a ring; return what its executor says."""
    outcomes = Outcomes()
    executor = Executor(1, outcomes)
    job = make.active(queue=NAME)
    try:
        with installed(Other(Hooks(around_run=hook))):
            executor.submit([run_of(function, atomic=atomic, job=job)])
            return outcomes.next()
    finally:
        executor.close()


def test_the_ring_of_a_run_is_outside_of_the_transaction_of_an_atomic_handler() -> None:
    open_transactions: list[bool] = []

    def around(run: Run, go_on: Callable[[], Any]) -> Any:
        open_transactions.append(connection.in_atomic_block)
        try:
            return go_on()
        finally:
            open_transactions.append(connection.in_atomic_block)

    outcome = run_in(
        lambda: open_transactions.append(connection.in_atomic_block), around, atomic=True
    )
    assert (outcome.error, outcome.committed) == (None, True)
    assert open_transactions == [False, True, False]


def test_the_ring_of_a_coroutine_awaits_it() -> None:
    called: list[str] = []

    async def handler() -> str:
        called.append("handler")
        return "done"

    def around(run: Run, go_on: Callable[[], Any]) -> Any:
        assert run.context.is_async

        async def awaited() -> Any:
            called.append("before")
            result = await go_on()
            called.append("after")
            return result

        return awaited()

    outcome = run_in(handler, around)
    assert (outcome.result, outcome.error) == ("done", None)
    assert called == ["before", "handler", "after"]


def test_what_a_ring_checks_last_undoes_an_atomic_handler() -> None:
    def around(run: Run, go_on: Callable[[], Any]) -> Any:
        run.finish = broken
        return go_on()

    outcome = run_in(lambda: bool(make.push(queue="undone")), around, atomic=True)
    assert (type(outcome.error), outcome.committed) == (RuntimeError, False)
    assert not make.jobs().filter(queue="undone").exists()


def test_what_is_erased_is_told_in_the_transaction_that_erases_it() -> None:
    seen: list[tuple[list[Any], bool]] = []

    def erased(keys: Any) -> None:
        seen.append((list(keys), make.jobs().filter(pk__in=keys).exists()))

    job = make.in_state("completed")
    with installed(Other(Hooks(erased=erased))):
        delete(job.pk)
    assert seen == [([job.pk], True)]
    other = make.in_state("completed")
    with installed(Other(Hooks(erased=broken))), pytest.raises(RuntimeError, match="broke"):
        delete(other.pk)
    assert make.jobs().filter(pk=other.pk).exists()


def test_what_a_full_queue_diverts_is_told_as_refused_once() -> None:
    places = Places(0)
    note = FullPolicy(outbox=True)
    with installed(places.extension(40)):
        job = add(options=PushOptions(generated_ids=True, checks_bound=True, notes=(note,)))
    assert job.outcome is Outcome.OUTBOX
    assert [error.details["by"] for error in places.refused] == ["places"]


def by_args(on_conflict: str) -> UniquePolicy:
    return UniquePolicy(keys=("type", "args"), on_conflict=on_conflict)


def test_a_unique_job_brings_what_the_same_call_has_stored_and_found() -> None:
    earlier: list[list[EnqueuedJob]] = []

    def around(batch: Batch, insert: Callable[[], Any]) -> Any:
        earlier.append(list(batch.earlier))
        return insert()

    ignore, replace = by_args("ignore"), by_args("replace")
    kept = add(args=["kept"], unique=ignore)
    jobs = [
        make.EnvelopeFactory(queue=NAME, args=[args], unique=policy)
        for args, policy in (
            ("kept", ignore),
            ("replaced", replace),
            ("replaced", replace),
            ("replaced", replace),
        )
    ]
    with installed(Other(Hooks(around_insert=around))):
        results = pushing.push_batch(jobs, PushOptions(generated_ids=True, checks_bound=True))
    found, first, second, third = results
    assert (found.id, found.outcome) == (kept.id, Outcome.DUPLICATE)
    assert (first.state, second.state, third.state) == ("cancelled", "cancelled", "available")
    # Without those that it has replaced again.
    assert [[job.id for job in each] for each in earlier] == [[kept.id]] * 3


# --- who was refused --------------------------------------------------------------------------


def rejected() -> int:
    """How many events of rejections there are, once all are written."""
    rejection_counts.recorder.reset()
    return Event.objects.filter(type="backpressure.rejected").count()


@pytest.mark.parametrize("kind", ["new", "activated", "retried"])
def test_a_refusal_is_told_although_the_caller_rolls_back(kind: str) -> None:
    found: list[tuple[QueueFull, list[Any]]] = []
    acts: dict[str, Callable[[], object]] = {
        "new": add,
        "activated": lambda: activate(pending.pk),
        "retried": lambda: retry(dead.pk),
    }
    pending, dead = make.push(queue=NAME, pending=True), make.in_state("discarded", queue=NAME)
    queues.configure(NAME, {"backpressure": {"max_depth": 1}})
    add()
    other = Other(Hooks(rejected=lambda error, jobs: found.append((error, list(jobs)))))
    with installed(other), suppress(QueueFull), transaction.atomic():
        acts[kind]()
    ((error, jobs),) = found
    assert (error.queue, len(jobs), jobs[0].queue) == (NAME, 1, NAME)
    # A hook adds to the details.
    assert "retry_after" in error.details
    assert rejected() == 1


def test_an_error_of_who_is_told_of_a_refusal_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    last: list[QueueFull] = []

    def broken(*args: object) -> None:
        raise RuntimeError("the extension broke")

    with (
        installed(
            Other(Hooks(rejected=broken, around_insert=refusing), "breaks", 40),
            Other(Hooks(rejected=lambda error, jobs: last.append(error)), "last", 41),
        ),
        pytest.raises(QueueFull) as caught,
    ):
        add()
    assert last == [caught.value]
    assert "The extension breaks of django_ojs failed to note rejected jobs." in caplog.messages


def test_a_queue_that_may_be_full_has_refused_nothing_that_is_tried_again() -> None:
    def busy(batch: Batch, insert: Callable[[], Any]) -> Any:
        raise QueueFull.at(NAME, depth=1, bound=1, strategy="reject", busy=True)

    for is_tried_again in (True, False):
        places = Places(0)
        options = PushOptions(checks_bound=True, is_tried_again=is_tried_again)
        with (
            installed(Other(Hooks(around_insert=busy), "busy", 39), places.extension(40)),
            pytest.raises(QueueFull),
        ):
            add(options=options)
        assert len(places.refused) == (not is_tried_again)


# --- stored jobs that wait again --------------------------------------------------------------


@pytest.fixture
def asked() -> Iterator[list[Readmission]]:
    found: list[Readmission] = []

    def around(readmission: Readmission, change: Callable[[], Any]) -> Any:
        assert connection.in_atomic_block
        found.append(readmission)
        raise full(readmission.queue or NAME)

    with installed(Other(Hooks(around_admit_again=around))):
        yield found


def test_a_ring_refuses_what_waits_again_and_nothing_changes(asked: list[Readmission]) -> None:
    pending, dead = make.push(queue=NAME, pending=True), make.in_state("discarded", queue=NAME)
    with transaction.atomic():
        for act, job in ((activate, pending), (retry, dead)):
            with pytest.raises(QueueFull):
                act(job.pk)
            readmission = asked.pop()
            assert [each.pk for each in readmission.waiting()] == [job.pk]
            assert (readmission.queue, readmission.rejections) == (None, None)
            assert make.read(job.pk).state == job.state


def test_jobs_that_find_no_room_do_not_move(asked: list[Readmission]) -> None:
    job = make.push(queue=NAME)
    with pytest.raises(QueueFull) as caught:
        queues.delete(NAME, strategy="move", target="target")
    assert caught.value.details["jobs_affected"] == 0
    (readmission,) = asked
    assert readmission.queue == "target"
    assert [each.pk for each in readmission.waiting()] == [job.pk]
    assert make.read(job.pk).queue == NAME


def test_pending_jobs_that_move_take_no_room() -> None:
    found: list[tuple[int, int]] = []

    def around(readmission: Readmission, change: Callable[[], Any]) -> Any:
        found.append((len(readmission.jobs), len(readmission.waiting())))
        return change()

    job, pending = make.push(queue=NAME), make.push(queue=NAME, pending=True)
    with installed(Other(Hooks(around_admit_again=around))):
        queues.delete(NAME, strategy="move", target="target")
    assert sorted(found) == [(1, 0), (1, 1)]
    assert {make.read(each.pk).queue for each in (job, pending)} == {"target"}


# --- the configuration of a queue -------------------------------------------------------------


def test_what_configures_and_deletes_a_queue_is_told_in_its_transaction() -> None:
    called: list[tuple[str, str, bool]] = []

    def note(what: str) -> Callable[[str], None]:
        def hook(name: str) -> None:
            called.append((what, name, connection.in_atomic_block))

        return hook

    hooks = Hooks(
        queue_configured=note("configured"),
        after_queue_configured=note("after"),
        queue_deleted=note("deleted"),
    )
    with installed(Other(hooks)):
        queues.create(NAME)
        queues.configure(NAME, {"backpressure": {"max_depth": 1}})
        queues.delete(NAME)
    assert called == [
        ("configured", NAME, True),
        ("configured", NAME, True),
        ("after", NAME, False),
        ("deleted", NAME, True),
    ]


def test_an_error_of_what_is_told_of_a_queue_undoes_its_change() -> None:
    def broken(name: str) -> None:
        raise RuntimeError("the extension broke")

    queues.create(NAME)
    with installed(Other(Hooks(queue_configured=broken, queue_deleted=broken))):
        for act in (
            lambda: queues.create("another"),
            lambda: queues.configure(NAME, {"backpressure": {"max_depth": 1}}),
            lambda: queues.delete(NAME),
        ):
            with pytest.raises(RuntimeError, match="the extension broke"):
                act()
    assert list(Queue.objects.values_list("name", "config")) == [(NAME, {})]


def test_a_site_without_bounds_stores_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.register(StatisticsExtension())
    monkeypatch.setattr(hooks, "registry", registry)
    queues.configure(NAME, {"backpressure": {"max_depth": 1}})
    pending = make.push(queue=NAME, pending=True)
    add()
    add("a", options=PushOptions(checks_bound=True, notes=(FullPolicy(outbox=True),)))
    activate(pending.pk)
    assert stored() == 3


def test_a_database_that_is_added_while_the_site_runs_routes_its_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aliases: dict[str, Any] = {"default": {}}
    monkeypatch.setattr(outbox, "connections", SimpleNamespace(settings=aliases))
    registry = Registry()
    monkeypatch.setattr(outbox, "registry", registry)
    registry.register(OutboxExtension())
    assert registry.around_push is None
    aliases["customer-9"] = {}
    connection_created.send(sender=object, connection=connections["default"])
    assert registry.around_push is not None
