"""Writers on all three nodes of a Galera cluster: what one node has locked, another does not see.

By hand, as no CI has MariaDB: tests/README.md has the command.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test import override_settings

from django_ojs.contrib.mariadb.row_locks import RowLocks
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob, CronRun
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.workflows.models import Workflow, WorkflowStep
from django_ojs.management.commands import ojs_worker
from django_ojs.models import Job
from django_ojs.operations import ack, beat, fetch, queues
from django_ojs.operations import push as pushing
from django_ojs.spec.states import State
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import database
from django_ojs.storage.figures import counts
from tests import factories, galera_cluster
from tests.factories import GENERATED, WORKER, own_connections, push, silence
from tests.faults.conftest import FULL, Report
from tests.faults.galera_site import NAME, empty, migrated_cluster, on
from tests.galera_cluster import Cluster, Node
from tests.operations.cron.scenes import make_due, register
from tests.operations.workflows import scenes
from tests.worker.waiting import BOUND, eventually

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.storm,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(galera_cluster.missing()), reason=str(galera_cluster.missing())),
]

JOBS = 3_000 if FULL else 300
ONCE = UniquePolicy(period=timedelta(hours=1), on_conflict="ignore")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with migrated_cluster() as made:
        yield made


@pytest.fixture
def galera(nodes: Cluster, transactional_db: None) -> Iterator[Cluster]:
    """Let the test's own statements run on the first node."""
    empty(nodes.nodes[0])
    with on(nodes.nodes[0]):
        yield nodes


def unique(node: int) -> None:
    push(queue="unique", type="test.once", unique=ONCE)


def bounded(node: int) -> None:
    push(queue="bounded")


def of_a_tenant(node: int) -> None:
    push(queue="of-a-tenant", meta={"tenant_id": "acme"})


def limited(node: int) -> None:
    # Of another queue on each node: it is not the same row.
    assert len(fetch.fetch([f"limited-{node}"], due=False)) == 1


def claimed(node: int) -> None:
    assert len(fetch.fetch(["claimed"], due=False)) == 1


def subject(node: int) -> None:
    assert database.dialect().lock_subject(connection, "a subject", wait=False)


TENANT_BOUND = {"tenant_limits": {"max_queue_depth": 1}}
#: What is done on both nodes, and the state of the one job of which that is left.
ACTS = {
    unique: "available",
    bounded: "available",
    of_a_tenant: "available",
    limited: "active",
    claimed: "active",
    subject: None,
}


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_of_two_nodes_that_do_what_one_may_do_the_first_to_commit_does_it(
    galera: Cluster, act: Callable[[int], None]
) -> None:
    queues.configure("bounded", {"backpressure": {"max_depth": 1}})
    queues.configure("of-a-tenant", TENANT_BOUND)
    jobs = [push(queue=f"limited-{n}", rate_limit={"key": "a", "concurrency": 1}) for n in (0, 1)]
    jobs.append(push(queue="claimed"))
    galera.wait_until_equal()

    def both() -> None:
        with transaction.atomic():
            act(0)
            with on(galera.nodes[1]), transaction.atomic():
                act(1)

    with pytest.raises(OperationalError) as caught:
        both()
    assert caught.value.args[0] == 1213
    assert database.dialect().is_contention_error(caught.value)
    # The first node ends its transaction before it has what the second one committed.
    galera.wait_until_equal()
    new = Job.primary.exclude(pk__in=[job.pk for job in jobs])
    states = [*new.values_list("state", flat=True)]
    states += Job.primary.filter(state="active").values_list("state", flat=True)
    assert states == [state for state in [ACTS[act]] if state]


@pytest.mark.parametrize("queue", ["bounded", "of-a-tenant"])
def test_who_loses_the_lock_of_a_queue_to_another_node_finds_no_full_queue(
    galera: Cluster, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    queues.configure("bounded", {"backpressure": {"max_depth": 10}})
    queues.configure("of-a-tenant", {"tenant_limits": {"max_queue_depth": 10}})
    galera.wait_until_equal()
    lock_slots, lost = RowLocks._lock_slots, list[bool]()

    def losing(self: RowLocks, *args: Any) -> dict[int, bool]:
        found = lock_slots(self, *args)
        if not lost:
            lost.append(True)
            with on(galera.nodes[1]):
                push(queue=queue)
            galera.wait_until_equal()
        return found

    monkeypatch.setattr(RowLocks, "_lock_slots", losing)
    push(queue=queue)
    assert Job.primary.filter(queue=queue).count() == 2


def conflicts(galera: Cluster) -> int:
    """Return how many transactions the cluster has ended because another node was first."""
    names = ("local_cert_failures", "local_bf_aborts")
    return sum(int(node.status(name)) for node in galera.nodes for name in names)


def on_all_nodes(galera: Cluster, act: Callable[[int], None]) -> None:
    """Do something in two threads of each node at once, and raise what any of them raises.

    The others may wait for what that one had: their next statement fails too.
    """
    workers = 2 * len(galera.nodes)
    start = threading.Barrier(workers)
    failed, errors = threading.Event(), list[BaseException]()

    def unless_failed(execute: Any, *statement: Any) -> Any:
        if failed.is_set():
            raise RuntimeError("another thread has failed, or was too slow")
        return execute(*statement)

    def run(number: int) -> None:
        with own_connections(), on(galera.nodes[number % len(galera.nodes)]):
            start.wait(BOUND)
            try:
                with connection.execute_wrapper(unless_failed):
                    act(number)
            except BaseException as error:
                errors.append(error)
                failed.set()
                raise

    galera.wait_until_equal()
    with ThreadPoolExecutor(workers) as pool:
        wait([pool.submit(run, n) for n in range(workers)], BOUND, FIRST_EXCEPTION)
        failed.set()
    if errors:
        raise errors[0]
    galera.wait_until_equal()


@contextmanager
def tables_closed_all_the_time(galera: Cluster) -> Iterator[None]:
    """Let each node open its tables anew, and read triggers that take a while, all the time."""
    ended = threading.Event()
    first = galera.nodes[0]

    def close_tables(node: Node) -> None:
        while not ended.wait(0.005):
            node.query("FLUSH LOCAL TABLES")

    first.query(
        "CREATE TRIGGER ojs_job_long BEFORE DELETE ON ojs_job FOR EACH ROW"
        f" BEGIN {'SET @a = 1 + 2;' * 3_000} END",
        NAME,
    )
    with ThreadPoolExecutor(len(galera.nodes)) as pool:
        closing = [pool.submit(close_tables, node) for node in galera.nodes]
        try:
            yield
        finally:
            ended.set()
    for each in closing:
        each.result()
    first.query("DROP TRIGGER ojs_job_long", NAME)


@pytest.mark.parametrize("opens_tables", [False, True])
def test_workers_on_all_nodes_claim_and_end_each_job_once(
    galera: Cluster, report: Report, caplog: pytest.LogCaptureFixture, *, opens_tables: bool
) -> None:
    """They take the same jobs again and again: no node sees the locks of another one.

    A node that reads triggers for a transaction that loses takes its end for a syntax error.
    """
    before = conflicts(galera)
    keys = [
        job.id
        for _ in range(JOBS // 60)
        for job in pushing.push_batch(
            factories.EnvelopeFactory.create_batch(60, queue="busy"), GENERATED
        )
    ]
    claimed: Counter[object] = Counter()
    ended: Counter[object] = Counter()

    def work(number: int) -> None:
        name = f"worker-{number}"
        while jobs := fetch.fetch(["busy"], count=7, worker_id=name, due=False):
            claimed.update(job.id for job in jobs)
            ended.update(ack.ack_batch(name, [(job.id, job.run, None) for job in jobs]))

    began = time.monotonic()
    with tables_closed_all_the_time(galera) if opens_tables else nullcontext():
        on_all_nodes(galera, work)
    seconds = time.monotonic() - began
    report(
        f"{len(keys)} jobs in {seconds:.1f} s, {conflicts(galera) - before} conflicts; "
        f"triggers were read in part {caplog.text.count('read triggers in part')} times"
    )
    assert claimed == ended == Counter(keys)
    for node in galera.nodes:
        with on(node):
            left = Job.primary.exclude(state=State.COMPLETED)
            assert not left.exists()
            assert counts.by_queue(["busy"])["busy"][State.COMPLETED] == len(keys)


def test_a_node_that_is_behind_takes_no_worker_for_dead(galera: Cluster) -> None:
    """As one does that copies its data to a node that joins."""
    factories.WorkerFactory(id=WORKER)
    silence(WORKER)
    behind = galera.nodes[1]

    def dead() -> list[object]:
        with own_connections(), on(behind):
            return list(database.dialect().dead_workers(connection))

    with factories.steady():
        galera.wait_until_equal()
        with on(behind), connection.cursor() as cursor, ThreadPoolExecutor(1) as pool:
            assert [key for key, _ in database.dialect().dead_workers(connection)] == [WORKER]
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            with on(galera.nodes[0]):
                beat.beat(WORKER)
            found = pool.submit(dead)
            with suppress(TimeoutError):
                found.result(0.5)  # Who reads what is there has its answer by then.
            cursor.execute("UNLOCK TABLES")
            assert found.result(BOUND) == []


@pytest.mark.parametrize("by_key", [False, True], ids=["of a queue", "by key"])
def test_a_limit_holds_for_the_workers_of_all_nodes(
    galera: Cluster, report: Report, *, by_key: bool
) -> None:
    names = ["limited-0", "limited-1"] if by_key else ["limited"]
    values = {"rate_limit": {"key": "acme", "concurrency": 3}} if by_key else {}
    if not by_key:
        queues.configure("limited", {"concurrency": 3})
    wanted = Counter(push(queue=name, **values).pk for name in names for _ in range(JOBS // 6))
    held, ended, lock = 0, Counter[object](), threading.Lock()
    most: list[int] = []
    lost: list[int] = []

    def work(number: int) -> None:
        nonlocal held
        name, order = f"worker-{number}", names[:: 1 if number % 2 else -1]
        while len(ended) < len(wanted):
            try:
                jobs = fetch.fetch(order, count=2, worker_id=name, due=by_key)
            except OperationalError as error:
                # It has lost each time for seconds. A worker tries again at its next poll.
                if error.args[0] != 1213:
                    raise
                lost.append(number)
                continue
            with lock:
                held += len(jobs)
                most.append(held)
            time.sleep(0.01 if jobs else 0.05)  # They run, or the worker polls.
            with lock:
                held -= len(jobs)
            ended.update(ack.ack_batch(name, [(job.id, job.run, None) for job in jobs]))

    before, began = conflicts(galera), time.monotonic()
    on_all_nodes(galera, work)
    seconds = time.monotonic() - began
    report(
        f"{len(wanted)} jobs in {seconds:.1f} s, {conflicts(galera) - before} conflicts; "
        f"{len(lost)} claims were given up"
    )
    assert ended == wanted
    assert max(most) <= 3


def test_workflows_whose_jobs_end_on_all_nodes_take_each_step_once(galera: Cluster) -> None:
    """The last jobs of a group end at once on several nodes, each of which counts them."""
    group = scenes.group(*(scenes.job("test.step") for _ in range(4)))
    shape = scenes.chain(scenes.job("test.step"), group, scenes.job("test.step"))
    created = {scenes.create(shape).pk for _ in range(JOBS // 15)}
    ended: Counter[object] = Counter()

    def work(number: int) -> None:
        name, running = f"worker-{number}", Workflow.primary.filter(state="running")
        while running.exists():
            for job in fetch.fetch(["default"], count=3, worker_id=name):
                ended.update(ack.ack_batch(name, [(job.id, job.run, None)]))

    on_all_nodes(galera, work)
    assert {(key, "completed") for key in created} == set(
        Workflow.primary.values_list("pk", "state")
    )
    steps = WorkflowStep.primary.filter(type__isnull=False)
    assert set(steps.values_list("state", flat=True)) == {"completed"}
    assert ended == Counter(steps.values_list("pk", flat=True))
    assert len(ended) == 6 * len(created) == Job.primary.count()


def test_each_time_of_a_cron_job_is_fired_by_one_node(galera: Cluster) -> None:
    names = [f"c{n}" for n in range(20)]
    for name in names:
        register(name, "* * * * * *", overlap_policy="allow")
    began = make_due(*names, ago=timedelta(seconds=10))

    def fire(number: int) -> None:
        while cron.fire_due(5):
            pass

    on_all_nodes(galera, fire)
    times = Counter(CronRun.primary.values_list("name", "scheduled_at"))
    assert set(times.values()) == {1}
    by_name = Counter(name for name, _ in times)
    assert Counter(job.meta["cron_name"] for job in Job.primary.all()) == by_name
    for row in CronJob.primary.all():
        assert row.due_at is not None
        assert row.run_count == by_name[row.name] > 0
        assert row.run_count + row.missed_count == (row.due_at - began).total_seconds()


def test_readers_on_all_nodes_see_each_event_in_the_same_order(galera: Cluster) -> None:
    """Each of them may be the one that gives the next events their positions."""
    seen: list[list[str]] = []

    def publish_and_read(number: int) -> None:
        found: list[str] = []
        cursor = "0"
        for _ in range(JOBS // 10):
            push(queue="events")
            page = log.read(after=cursor, limit=1000)
            cursor = page.cursor
            found += [event["id"] for event in page.events]
        barrier.wait(BOUND)
        while page := log.read(after=cursor, limit=1000):
            cursor = page.cursor
            found += [event["id"] for event in page.events]
            if not page.events and len(found) == Event.primary.count():
                break
        seen.append(found)

    barrier = threading.Barrier(2 * len(galera.nodes))
    with override_settings(OJS={"KEEP_EVENTS": ["*"]}):
        on_all_nodes(galera, publish_and_read)
    order = list(Event.primary.order_by("position").values_list("position", flat=True))
    assert len(order) == len(set(order)) >= 6 * (JOBS // 10)
    assert all(found == seen[0] for found in seen)
    assert len(seen[0]) == len(set(seen[0])) == len(order)


def test_a_worker_notices_within_seconds_that_the_machine_of_its_node_is_off(
    galera: Cluster,
) -> None:
    with ojs_worker._kept_connections(), on(galera.nodes[1]):
        connection.ensure_connection()
        with socket.socket(fileno=os.dup(connection.connection.fileno())) as link:
            assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000
            assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 4


def test_a_node_without_a_majority_is_an_unavailable_database(galera: Cluster) -> None:
    cut_off, *others = galera.nodes

    def cut_off_at_its_commit() -> None:
        with transaction.atomic():
            push(queue="cut-off")
            for node in others:
                node.freeze()

    def cut_off_before() -> None:
        eventually(lambda: cut_off.status("cluster_status") == "non-Primary", "it is alone")
        push(queue="cut-off")

    galera.wait_until_equal()
    codes = []
    try:
        for act in (cut_off_at_its_commit, cut_off_before):
            with pytest.raises(OperationalError) as caught:
                act()
            assert database.is_unavailable(caught.value)
            codes.append(caught.value.args[0])
    finally:
        for node in others:
            node.thaw()
    # The first COMMIT waits for the others, unless this machine is so slow that they are missed.
    assert codes in ([1180, 1047], [1047, 1047])
    for node in galera.nodes:
        galera.wait(node)
    connection.close()
    push(queue="cut-off")
    # Whether the first one is stored was not known.
    assert Job.primary.count() in (1, 2)
