"""Promises 2 and 3 on a Galera cluster: producers and workers on each node, and nodes that die."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import Error, connection

from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.spec.errors import QueueFull
from django_ojs.spec.states import TERMINAL
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage.figures import counts
from tests import galera_cluster
from tests.databases import ALIASES
from tests.factories import own_connections, push
from tests.faults import ledger
from tests.faults.conftest import FULL, Report
from tests.faults.galera_site import empty, migrated_cluster, on, processes_on
from tests.faults.site import Site, until
from tests.galera_cluster import Cluster, Node
from tests.worker.processes import Tree
from tests.worker.waiting import BOUND, eventually

JOBS = int(os.environ.get("OJS_FAULTS_JOBS") or (6_000 if FULL else 600))
#: Of a node each, or it freezes; before it, and meanwhile, a worker is killed.
KILLS = int(os.environ.get("OJS_FAULTS_GALERA_KILLS") or (9 if FULL else 2))
LONGEST = BOUND + KILLS * 120 + JOBS / 5

#: Every job of these queues waits: their producers meet the bound, and each other's keys.
DEPTH, KEYS = 500 if FULL else 60, 40
ONCE = UniquePolicy(keys=["args"], period=timedelta(days=1), on_conflict="ignore")
#: Workers that died with their node count as dead after three beats.
BEAT = 2

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.storm,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.timeout(2 * LONGEST),
    pytest.mark.skipif(bool(galera_cluster.missing()), reason=str(galera_cluster.missing())),
]


@pytest.fixture
def galera(site: Site) -> Iterator[Cluster]:
    with migrated_cluster() as made:
        empty(made.nodes[0])
        with on(made.nodes[0]):
            try:
                yield made
            finally:
                site.close()


class Crew:
    """A worker for each node. Every second one knows the other nodes as well."""

    def __init__(self, site: Site, galera: Cluster) -> None:
        self._site, self._galera = site, galera
        self._trees = [self._start(node) for node in galera.nodes]
        for tree in self._trees:
            eventually(lambda tree=tree: len(tree.children()) == 2, "it has its processes")  # type: ignore[misc]  # no inference for a default

    def _start(self, node: Node) -> Tree:
        # A worker does not start while the only server that it knows is away.
        others = node.has_ended or node.number % 2 == 0
        processes_on(self._site, self._galera, node, others=others)
        return self._site.start(
            *("--queues", "default", "--processes", "2", "--threads", "4"),
            ojs={"HEARTBEAT_INTERVAL": BEAT},
        )

    def kill_one(self) -> None:
        """Kill a process of a worker, or a whole worker, which gets a successor."""
        index = self._site.dice.randrange(len(self._trees))
        tree = self._trees[index]
        children = tree.children()
        if children and self._site.dice.random() < 0.5:
            self._site.kill(tree, self._site.dice.choice(children))
            return
        self._site.kill_tree(tree)
        self._trees[index] = self._start(self._galera.nodes[index])


class Crowd:
    """Producers on each node of a bounded queue, and of jobs with the same few keys."""

    def __init__(self, galera: Cluster) -> None:
        self.stored: list[str] = []
        self.errors: Counter[str] = Counter()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(2 * len(galera.nodes))
        self._ends: list[Future[None]] = [
            self._pool.submit(self._run, node, act)
            for node in galera.nodes
            for act in (self._bounded, self._unique)
        ]

    def _run(self, node: Node, act: object) -> None:
        assert callable(act)
        number = 0
        with own_connections(), on(node):
            while not self._stop.wait(0.02):
                number += 1
                try:
                    act(number)
                except QueueFull:
                    self._stop.wait(0.1)
                except Error as error:
                    # Whether it was stored is not known.
                    self.errors[f"{type(error).__name__} {error.args[0]}"] += 1
                    with suppress(Error):
                        connection.close()

    def _bounded(self, number: int) -> None:
        self.stored.append(str(push(queue="bounded", type="test.bounded").pk))

    def _unique(self, number: int) -> None:
        push(queue="unique", type="test.unique", args=[number % KEYS], unique=ONCE)

    def close(self) -> None:
        self._stop.set()
        for end in self._ends:
            end.result(BOUND)
        self._pool.shutdown()


def test_nodes_die_and_join_again_and_no_job_is_lost_or_without_a_reason_to_run_twice(
    site: Site, galera: Cluster, report: Report, seed: int
) -> None:
    report(f"seed {seed}, {JOBS} jobs, {KILLS} kills of nodes")
    queues.configure("bounded", {"backpressure": {"max_depth": DEPTH}})
    galera.wait_until_equal()
    crew = Crew(site, galera)
    for node in galera.nodes:
        processes_on(site, galera, node)
        site.enqueue(JOBS // len(galera.nodes), milliseconds=40, pause=0.01)
    crowd = Crowd(galera)
    met = Counter[str]()
    try:
        for number in range(1, KILLS + 1):
            due = JOBS * (number - site.dice.random()) / (KILLS + 1)
            until(lambda due=due: ledger.count("done") >= due, within=60)  # type: ignore[misc]  # no inference for a default
            crew.kill_one()
            node = site.dice.choice(galera.nodes)
            # What a worker holds whose node is away runs again when its heartbeats do not come.
            with site.trouble("node", after=10 * BEAT):
                met[disturb(site, galera, node, crew)] += 1
                galera.wait(node)
    finally:
        crowd.close()
    connection.close()
    site.enqueued(LONGEST)
    waiting = site.jobs.filter(queue="default").exclude(state__in=TERMINAL)
    eventually(lambda: not waiting.exists(), "each job is finished", within=LONGEST, pause=0.2)
    report(f"the nodes met {dict(met)}; the producers of the other queues met {dict(crowd.errors)}")
    _is_consistent(galera, crowd)
    site.jobs.exclude(queue="default").delete()
    verdict = site.verdict()
    report(verdict.line)
    verdict.good()
    stored = site.stored_with_their_rows()
    assert set(site.known("acknowledged")) <= stored
    assert not stored & set(site.known("rolled-back"))
    site.completed_once()


def disturb(site: Site, galera: Cluster, node: Node, crew: Crew) -> str:
    """Do something to a node, and a worker, and say what."""
    kind = site.dice.choice(["killed, with changes", "killed, with a copy", "frozen"])
    if kind == "frozen":
        # The others go on without it, and what it had not sent is rejected when it is back.
        node.freeze()
        crew.kill_one()
        other = galera.nodes[node.number % len(galera.nodes)]
        eventually(lambda: other.status("cluster_size") == "2", "the group goes on")
        node.thaw()
        return kind
    node.kill()
    crew.kill_one()
    galera.rejoin(node, by_copy=kind.endswith("copy"))
    return kind


def _is_consistent(galera: Cluster, crowd: Crowd) -> None:
    while counts.fold():
        pass
    galera.wait_until_equal()
    for node in galera.nodes:
        with on(node):
            bounded = set(
                map(str, Job.primary.filter(queue="bounded").values_list("pk", flat=True))
            )
            assert len(bounded) == DEPTH
            assert set(crowd.stored) <= bounded
            keys = Job.primary.filter(queue="unique").values_list("unique_key", flat=True)
            assert Counter(keys).most_common(1)[0][1] == 1
            assert len(keys) == KEYS
            assert not counts.differences()
