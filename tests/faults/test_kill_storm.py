"""Promises 2 and 3: whichever process is killed, no job is lost, and each rerun has a reason."""

from __future__ import annotations

import os

import pytest

from tests.databases import ALIASES, KIND
from tests.faults import ledger
from tests.faults.conftest import FULL, Report
from tests.faults.site import DRAIN, Site, until
from tests.worker.processes import Tree
from tests.worker.waiting import BOUND

JOBS = int(os.environ.get("OJS_FAULTS_JOBS") or (10_000 if FULL else 400))
KILLS = int(os.environ.get("OJS_FAULTS_KILLS") or (50 if FULL else 3))
#: The whole storm, at the longest: a supervisor waits up to 15 s before it replaces a child again
#: that dies young.
LONGEST = BOUND + KILLS * 16 + JOBS / 20

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.slow,
    pytest.mark.timeout(LONGEST + 900),
]


class Crew:
    """Two workers of two processes each, to kill and to replace."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._trees = [self._start(), self._start()]
        for tree in self._trees:
            tree.ready(2)

    def _start(self) -> Tree:
        # Where the end of no session shows a dead machine, three missed beats show it.
        beat = 5 if KIND == "postgresql" else 2
        return self._site.start(
            *("--processes", "2", "--threads", "4"), ojs={"HEARTBEAT_INTERVAL": beat}
        )

    def kill_one(self) -> str:
        """Kill a child, a supervisor or a whole tree. Replace a process that has no supervisor."""
        index = self._site.dice.randrange(len(self._trees))
        tree = self._trees[index]
        children = tree.children()
        what = self._site.dice.choice(["child", "child", "supervisor", "tree"])
        if what == "child" and children:
            self._site.kill(tree, self._site.dice.choice(children))
            return what
        if what == "supervisor":
            self._site.kill(tree, tree.pid)
        else:
            self._site.kill_tree(tree)
        self._trees[index] = self._start()
        return what


def test_promises_2_and_3_a_kill_storm_loses_nothing_and_explains_what_ran_twice(
    site: Site, report: Report, seed: int
) -> None:
    report(f"seed {seed}, {JOBS} jobs, {KILLS} kills")
    crew = Crew(site)
    # About half of the slots are busy at any time: a kill hits some jobs.
    site.enqueue(JOBS, milliseconds=40, pause=0.004)
    killed: list[str] = []
    for number in range(1, KILLS + 1):
        # At a random moment, while there is still work for all the kills to come.
        due = JOBS * (number - site.dice.random()) / (KILLS + 1)
        until(lambda due=due: ledger.count("done") >= due, within=30)  # type: ignore[misc]  # mypy has no inference for a default
        killed.append(crew.kill_one())
    site.enqueued(LONGEST)
    site.drained(DRAIN + KILLS * 2)
    verdict = site.verdict()
    kinds = ", ".join(f"{killed.count(kind)} {kind}" for kind in sorted(set(killed)))
    report(f"{verdict.line} (killed: {kinds})")
    verdict.good()
    assert site.stored_with_their_rows() == set(site.known("acknowledged"))
    site.completed_once()
