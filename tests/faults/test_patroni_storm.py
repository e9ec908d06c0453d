"""What a cluster of Patroni meets: no acknowledged job is lost, and workers go on by themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import pytest
from django.db import connection

from django_ojs.models import Attempt
from django_ojs.models.attempt import AttemptOutcome
from tests import patroni_cluster
from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.checker import Start, Verdict
from tests.faults.conftest import FULL, Report
from tests.faults.patroni_site import BEAT, DEAD, Way, all_resume, migrated_cluster, two_ways
from tests.faults.site import Site
from tests.patroni_cluster import TTL, Cluster, Node
from tests.worker.waiting import BOUND, eventually

#: Play these faults only, by parts of their names: "frozen,etcd".
ONLY = [part for part in os.environ.get("OJS_FAULTS_ONLY", "").split(",") if part]
#: Seconds after a commit of a fresh client within which a job is to run; see `LIMIT`.
GOAL = 1.5
#: What a busy machine may add before it is a failure. What was found by this was ten times as long.
SLACK = 10.0
#: How long a frozen leader waits for workers that do not notice it.
GIVE_UP = 45.0
#: How long commits hang: longer than workers may be silent.
HANG = 15.0

LIMIT = BOUND * 6

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.storm,
    pytest.mark.sized,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.timeout(2 * LIMIT),
    # Text, which is evaluated if a test is to run: it starts an interpreter.
    pytest.mark.skipif("patroni_cluster.missing()", reason=f"needs {patroni_cluster.PACKAGES}"),
]

STRICT = {"synchronous_mode": True, "synchronous_mode_strict": True}
LOADS = ["busy", "idle"] if FULL else ["busy"]
#: What the small size plays.
SHORT = ("leader killed", "leader frozen past its TTL", "switch-over")


class Storm:
    """Plays faults, and measures what the clients had of each."""

    def __init__(
        self, site: Site, made: Cluster, ways: list[Way], report: Report, *, strict: bool
    ) -> None:
        self.site, self.cluster, self.ways = site, made, ways
        self._report = report
        self._strict = strict
        #: What is to be mended.
        self.wrong: list[str] = []
        #: Acknowledged while a fault was played; and while no replica received anything.
        self.at_risk: set[str] = set()
        self.tail: set[str] = set()
        self._played: list[tuple[float, float]] = []
        self.faults: dict[str, Callable[[], None]] = {
            "leader killed": self._kill_leader,
            "leader frozen past its TTL": self._freeze_leader,
            "switch-over": self.cluster.switch_over,
            "postmaster killed": self._kill_postmaster,
            "leader frozen for less than its TTL": self._freeze_shortly,
            "etcd away": self._etcd_away,
            "etcd away, with failsafe_mode": self._etcd_away_with_failsafe,
            "one replica away": self._one_replica_away,
            "both replicas away": self._both_replicas_away,
        }
        if not strict:
            self.faults["leader killed"] = self._kill_leader_with_a_tail

    def play(self, name: str) -> None:
        """Play a fault, and wait until all is as before."""
        safe = self._replicated()
        began = time.monotonic()
        self.faults[name]()
        self.cluster.settled()
        all_resume(self.ways)
        ended = time.monotonic()
        self._played.append((began, ended))
        connection.close()
        self.at_risk |= self._acknowledged() - safe
        dead = began + DEAD if "frozen" in name else began
        for way in self.ways:
            self._judge(name, way, began, ended, dead)

    def _judge(self, name: str, way: Way, began: float, ended: float, dead: float) -> None:
        down, up = way.outage(began, ended)
        wait = way.longest_wait(began, ended, dead)
        # Neither can know it before, and a server takes writes a moment before a client has come.
        told = [down + DEAD + GOAL, up - GOAL]
        false = {
            who: sum(is_ready for at, is_ready, _ in said if told[0] < at < told[1])
            for who, said in (("worker", way.probe.worker), ("site", way.probe.site))
        }
        slowest = max((took for at, _, took in way.probe.site if began < at < ended), default=0.0)
        self._report(
            f"{name}, by {way.name}: a fresh client committed nothing for {up - down:.1f} s; the "
            f"next job {wait:.1f} s later; ready without reason: worker {false['worker']}, site "
            f"{false['site']}; /ready took {slowest:.1f} s at most"
        )
        what = f"{name}, by {way.name}"
        if wait > GOAL + SLACK:
            self.wrong.append(f"{what}: no job for {wait:.1f} s after a commit")
        self.wrong += [f"{what}: the {who} said ready" for who, times in false.items() if times]
        if slowest > GOAL + SLACK / 2:
            self.wrong.append(f"{what}: /ready took {slowest:.1f} s")
        if not way.has_resumed(began):
            self.wrong.append(f"{what}: the workers did not go on")

    def was_at_risk(self, start: Start) -> bool:
        """Whether a run began while a fault was played."""
        return any(began - 1 < start.at < ended for began, ended in self._played)

    def end(self) -> tuple[Verdict, int]:
        """Stop the clients, let all jobs end, and judge what happened.

        With the number of jobs that ran again though their worker lived and their run had not
        failed.
        """
        for way in self.ways:
            assert set(way.tree.children()) >= way.processes, "a worker process has ended"
            way.close()
        for process in self.site.enqueuers:
            process.kill()
        connection.close()
        self.site.enqueued()
        self.site.drained()
        failures = Attempt.objects.filter(outcome=AttemptOutcome.FAILED)
        failed = {(str(job), run) for job, run in failures.values_list("job_id", "run")}
        starts = sorted(ledger.starts(), key=lambda start: (start.job, start.at))
        repeated = sum(
            first.job == second.job and (first.job, first.run) not in failed
            for first, second in pairwise(starts)
        )
        return self.site.verdict(), repeated

    def _acknowledged(self) -> set[str]:
        return set(self.site.known("acknowledged"))

    def _replicated(self) -> set[str]:
        """Return what was acknowledged, once both replicas have it."""
        found = self._acknowledged()
        with self.cluster.leader().session() as link:
            written = link.execute("SELECT pg_current_wal_lsn()").fetchone()
            assert written is not None
            query = "SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= %s"
            eventually(
                lambda: link.execute(query, written).fetchone() == (2,), "the replicas have all"
            )
        return found

    def _another_leads(self, former: Node) -> None:
        others = [node for node in self.cluster.nodes if node is not former]
        eventually(
            lambda: any(node.is_leader for node in others), "a replica takes over", pause=0.1
        )

    def _kill_leader(self) -> None:
        leader = self.cluster.leader()
        leader.kill()
        self._another_leads(leader)
        all_resume(self.ways, GIVE_UP)
        leader.start()

    def _kill_leader_with_a_tail(self) -> None:
        """Kill the leader when it has acknowledged jobs that no replica received."""
        leader = self.cluster.leader()
        with leader.silent_to_replicas():
            before = self._acknowledged()
            eventually(lambda: len(self._acknowledged()) > len(before) + 20, "there is a tail")
            leader.kill()
            self.tail |= self._acknowledged() - before
        self._another_leads(leader)
        all_resume(self.ways, GIVE_UP)
        leader.start()

    def _freeze_leader(self) -> None:
        leader = self.cluster.leader()
        leader.freeze()
        self._another_leads(leader)
        all_resume(self.ways, GIVE_UP)
        leader.thaw()

    def _freeze_shortly(self) -> None:
        leader = self.cluster.leader()
        leader.freeze()
        time.sleep(DEAD + BEAT / 4)
        leader.thaw()

    def _kill_postmaster(self) -> None:
        self.cluster.leader().postmaster().kill()
        all_resume(self.ways, GIVE_UP)

    def _etcd_away(self) -> None:
        self.cluster.etcd.freeze()
        nobody = "no node leads, because none can renew its lock"
        eventually(lambda: not any(node.is_leader for node in self.cluster.nodes), nobody)
        self.cluster.etcd.thaw()

    def _etcd_away_with_failsafe(self) -> None:
        self.cluster.configure(failsafe_mode=True)
        leader = self.cluster.leader()
        self.cluster.etcd.freeze()
        time.sleep(1.5 * TTL)
        all_resume(self.ways, GIVE_UP)
        assert leader.is_leader
        self.cluster.etcd.thaw()
        self.cluster.configure(failsafe_mode=False)

    def _one_replica_away(self) -> None:
        replica, *_ = self.cluster.replicas()
        replica.kill()
        all_resume(self.ways, GIVE_UP)
        replica.start()

    def _both_replicas_away(self) -> None:
        replicas = self.cluster.replicas()
        for replica in replicas:
            replica.kill()
        if self._strict:
            eventually(lambda: all(way.clients.waiting > 4 for way in self.ways), "commits hang")
            time.sleep(HANG)
        else:
            all_resume(self.ways, GIVE_UP)
        for replica in replicas:
            replica.start()


@contextmanager
def storm(site: Site, report: Report, *, strict: bool, busy: bool) -> Iterator[Storm]:
    """Start a cluster and its clients, and end all."""
    with ExitStack() as stack:
        made = stack.enter_context(migrated_cluster(site, **(STRICT if strict else {})))
        try:
            ways = two_ways(site, made, stack, busy=busy)
            all_resume(ways)
            yield Storm(site, made, ways, report, strict=strict)
        except BaseException:
            print(made.logs())
            raise


def names(played: Storm) -> list[str]:
    """Return which faults are played: all, some, or those that were asked for."""
    if ONLY:
        return [name for name in played.faults if any(part in name for part in ONLY)]
    return [name for name in played.faults if FULL or name in SHORT]


@pytest.mark.parametrize("load", LOADS)
def test_with_strict_synchronous_replication_nothing_is_lost_and_nothing_runs_twice(
    site: Site, report: Report, load: str
) -> None:
    with storm(site, report, strict=True, busy=load == "busy") as played:
        for name in names(played):
            played.play(name)
        verdict, repeated = played.end()
        report(f"{load}: {verdict.line}; twice by a living worker: {repeated}")
        verdict.good()
        assert site.stored_with_their_rows() >= set(site.known("acknowledged"))
        site.completed_once()
        assert not repeated
        assert not played.wrong, "\n".join(played.wrong)


@pytest.mark.parametrize("load", LOADS)
def test_with_asynchronous_replication_only_the_tail_is_lost_that_no_replica_had(
    site: Site, report: Report, load: str
) -> None:
    with storm(site, report, strict=False, busy=load == "busy") as played:
        for name in names(played):
            played.play(name)
        verdict, repeated = played.end()
        gone = set(site.known("acknowledged")) - site.stored_with_their_rows()
        report(
            f"{load}: {verdict.line}; twice by a living worker: {repeated}; {len(gone)} are gone, "
            f"{len(played.tail)} of them were acknowledged while no replica received anything"
        )
        assert played.tail <= gone <= played.at_risk
        assert verdict.lost <= gone
        assert not verdict.unexpected
        # Where the completion of a run is gone, so is its claim: the next one has its number.
        assert all(played.was_at_risk(first) for first, _ in verdict.unexplained)
        site.completed_once()
        assert not played.wrong, "\n".join(played.wrong)
