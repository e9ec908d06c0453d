"""Writers on all three nodes of a Galera cluster: what one node has locked, another does not see.

By hand, as no CI has MariaDB: docs/explanation/testing.md has the command.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import OperationalError, connection, transaction

from django_ojs.models import Job
from django_ojs.operations import ack, fetch, queues
from django_ojs.operations import push as pushing
from django_ojs.spec.states import State
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import database
from django_ojs.storage.figures import counts
from tests import galera_cluster
from tests.factories import GENERATED, envelope, own_connections, push
from tests.faults.conftest import FULL, Report
from tests.faults.galera_site import empty, migrated_cluster, on
from tests.galera_cluster import Cluster

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
    assert database.dialect().try_lock_subject(connection, "a subject")


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
    with pytest.raises(OperationalError) as caught, transaction.atomic():
        act(0)
        with on(galera.nodes[1]), transaction.atomic():
            act(1)
    assert caught.value.args[0] == 1213
    assert database.dialect().is_contention_error(caught.value)
    new = Job.primary.exclude(pk__in=[job.pk for job in jobs])
    states = [*new.values_list("state", flat=True)]
    states += Job.primary.filter(state="active").values_list("state", flat=True)
    assert states == [state for state in [ACTS[act]] if state]


def conflicts(galera: Cluster) -> int:
    """Return how many transactions the cluster has ended because another node was first."""
    names = ("local_cert_failures", "local_bf_aborts")
    return sum(int(node.status(name)) for node in galera.nodes for name in names)


def test_workers_on_all_nodes_claim_and_end_each_job_once(galera: Cluster, report: Report) -> None:
    """They take the same jobs again and again: no node sees the locks of another one."""
    workers, before = 2 * len(galera.nodes), conflicts(galera)
    keys = [
        job.id
        for _ in range(JOBS // 60)
        for job in pushing.push_batch([envelope(queue="busy") for _ in range(60)], GENERATED)
    ]
    galera.wait_until_equal()
    start = threading.Barrier(workers)
    claimed: Counter[object] = Counter()
    ended: Counter[object] = Counter()

    def work(number: int) -> None:
        name = f"worker-{number}"
        with own_connections(), on(galera.nodes[number % len(galera.nodes)]):
            start.wait(30)
            while jobs := fetch.fetch(["busy"], count=7, worker_id=name, due=False):
                claimed.update(job.id for job in jobs)
                ended.update(ack.ack_batch(name, [(job.id, job.run, None) for job in jobs]))

    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work, n) for n in range(workers)]:
            future.result(300)
    seconds = time.monotonic() - began
    galera.wait_until_equal()
    report(f"{len(keys)} jobs in {seconds:.1f} s, {conflicts(galera) - before} conflicts")
    assert claimed == ended == Counter(keys)
    for node in galera.nodes:
        with on(node):
            left = Job.primary.exclude(state=State.COMPLETED)
            assert not left.exists()
            assert counts.by_queue(["busy"])["busy"][State.COMPLETED] == len(keys)
