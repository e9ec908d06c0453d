"""The scene of a test: its workers and enqueuers, what was done to them, and what came of it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import OperationalError, connection
from django.db.models import QuerySet

from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.spec.states import TERMINAL
from tests import fork_server
from tests.factories import connected_to
from tests.faults import ledger
from tests.faults.checker import Fault, Verdict, check
from tests.testapp.models import Thing
from tests.worker.processes import ROOT, Tree
from tests.worker.waiting import BOUND, eventually

#: The default. With less, a busy machine (or SQLite's one lock) keeps a live worker silent for
#: three beats now and then, and its jobs run again: rightly, and for no fault of the test's.
BEAT = 5
#: A killed process may go on for a moment after the call returns.
_DYING = 0.25
#: What a kill storm needs at the longest to run what is left.
DRAIN = BOUND
#: The name of an enqueuer in the sessions of PostgreSQL.
_ENQUEUER = "ojs-enqueuer"


def _is_committing() -> bool:
    """Whether the server executes a statement of an enqueuer."""
    if connection.vendor != "postgresql":
        return False
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND state <> 'idle'",
                [_ENQUEUER],
            )
            return cursor.fetchone() is not None
    except OperationalError:
        connection.close()  # A fault has hit it.
        return True


class Site:
    """Starts processes and ends them, and only them; keeps the history for the checker."""

    def __init__(self, environment: Mapping[str, str], folder: Path, seed: int) -> None:
        # Without coverage, whose files a kill cuts in two: the worker's own tests measure it.
        self.environment = {k: v for k, v in environment.items() if not k.startswith("COVERAGE_")}
        self.folder = folder
        self.dice = random.Random(seed)
        self.faults: list[Fault] = []
        self.trees: list[Tree] = []
        self.enqueuers: list[subprocess.Popen[bytes]] = []
        self.variables: dict[str, str] = {}

    @property
    def jobs(self) -> QuerySet[Job]:
        """All jobs."""
        return Job.objects.all()

    def start(
        self,
        *arguments: str,
        ojs: Mapping[str, Any] | None = None,
        sabotage: Mapping[str, Any] | None = None,
        **variables: str,
    ) -> Tree:
        """Start a worker: a supervisor and its children."""
        tree = Tree(
            {**self.environment, **self.variables, **variables},
            self.folder / f"worker-{len(self.trees)}.log",
            *arguments,
            ojs={"HEARTBEAT_INTERVAL": BEAT, **(ojs or {})},
            DJANGO_SETTINGS_MODULE="tests.faults.settings",
            OJS_FAULTS_SABOTAGE=json.dumps(sabotage or {}),
        )
        self.trees.append(tree)
        return tree

    def enqueue(self, jobs: int, **options: Any) -> subprocess.Popen[bytes]:
        """Start a process that enqueues so many jobs; see `enqueuer`."""
        number = len(self.enqueuers)
        given = {"seed": self.dice.randrange(2**32), **options}
        with (self.folder / f"enqueuer-{number}.err").open("wb") as errors:
            process = fork_server.popen(
                [
                    *(sys.executable, "-m", "tests.faults.enqueuer"),
                    str(self.folder / f"enqueuer-{number}.log"),
                    f"--jobs={jobs}",
                    *(f"--{name}={value}" for name, value in given.items()),
                ],
                cwd=ROOT,
                env={
                    **self.environment,
                    "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
                    "PGAPPNAME": _ENQUEUER,
                    **self.variables,
                },
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        self.enqueuers.append(process)
        return process

    @contextmanager
    def with_jobs_on(
        self, server: Mapping[str, Any], settings: str = "tests.faults.settings"
    ) -> Iterator[None]:
        """Have the jobs on a server of their own; the ledger stays on the suite's."""
        self.variables["OJS_FAULTS_DATABASE"] = json.dumps(server)
        environment = {**self.environment, **self.variables, "DJANGO_SETTINGS_MODULE": settings}
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        fork_server.run(command, cwd=ROOT, env=environment, check=True, timeout=BOUND)
        # This process as well looks there.
        with connected_to(server):
            try:
                yield
            finally:
                self.close()

    def kill(self, tree: Tree, pid: int) -> float:
        """Kill a process of a tree, if it is still one. Return when."""
        began = time.monotonic()
        if pid not in tree.members():
            return began
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if pid == tree.pid:
            tree.process.wait(BOUND)
        self.faults.append(
            Fault(kind="kill", pid=pid, began=began, ended=time.monotonic() + _DYING)
        )
        return began

    def kill_tree(self, tree: Tree) -> None:
        """Kill a supervisor and all its children, as a machine that goes down does."""
        for pid in [tree.pid, *tree.children()]:
            self.kill(tree, pid)

    @contextmanager
    def trouble(self, kind: str, after: float = 0.0) -> Iterator[None]:
        """Note a fault that hits every process while it lasts, and for some time after."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.faults.append(Fault(kind=kind, began=began, ended=time.monotonic() + after))

    def known(self, what: str) -> list[str]:
        """Return what the enqueuers have written down: attempted, acknowledged, rolled-back."""
        found = []
        for log in sorted(self.folder.glob("enqueuer-*.log")):
            words = (line.split(" ", 1) for line in log.read_text().splitlines())
            found += [rest for word, rest in words if word == what]
        return found

    def enqueued(self, within: float = DRAIN) -> None:
        """Wait until the enqueuers are done."""
        for number, process in enumerate(self.enqueuers):
            code = process.wait(within)
            errors = (self.folder / f"enqueuer-{number}.err").read_text()
            assert code in (0, -signal.SIGKILL), errors
        # The server may still commit what it had received from a process that was killed.
        eventually(lambda: not _is_committing(), "the server has ended their transactions")

    def drained(self, within: float = DRAIN) -> None:
        """Wait until every job is in a final state."""
        unfinished = self.jobs.exclude(state__in=TERMINAL)
        eventually(
            lambda: not unfinished.exists(), "every job is finished", within=within, pause=0.1
        )

    def verdict(self, stored: Iterable[UUID] = ()) -> Verdict:
        """Judge what happened so far. `stored`: jobs that were enqueued by no enqueuer."""
        keys = [str(key) for key in stored]
        # A handler that failed runs again by its retry policy; that is not a duplicate to explain.
        ended = Attempt.objects.filter(outcome__in=[AttemptOutcome.LAPSED, AttemptOutcome.FAILED])
        return check(
            attempted=[*self.known("attempted"), *keys],
            acknowledged=[*self.known("acknowledged"), *keys],
            rolled_back=self.known("rolled-back"),
            starts=ledger.starts(),
            done=ledger.done(),
            faults=[
                *self.faults,
                *(Fault(kind=a.outcome, job=str(a.job_id), run=a.run) for a in ended),
            ],
        )

    def stored_with_their_rows(self) -> set[str]:
        """Return the stored jobs, after seeing that each has the row it was committed with."""
        stored = {str(key) for key in self.jobs.values_list("pk", flat=True)}
        orders = Thing.objects.filter(name__startswith="order ")
        assert {name.split()[1] for name in orders.values_list("name", flat=True)} == stored
        return stored

    def completed_once(self) -> None:
        """See that all jobs are completed, and that atomic ones took effect exactly once."""
        states = set(self.jobs.values_list("state", flat=True))
        assert states <= {"completed"}, states
        effects = Thing.objects.filter(name__startswith="effect ")
        happened = sorted(name.split()[1] for name in effects.values_list("name", flat=True))
        atomic = self.jobs.filter(type="faults.atomic").values_list("pk", flat=True)
        assert happened == sorted(map(str, atomic))

    def logs(self) -> str:
        """Return what all workers have written."""
        return "\n".join(tree.log for tree in self.trees)

    def close(self) -> None:
        """End all that was started."""
        for process in self.enqueuers:
            if process.poll() is None:
                process.kill()
                process.wait(BOUND)
        for tree in self.trees:
            tree.kill()
        for tree in self.trees[-4:]:
            noted = [line for line in tree.log.splitlines() if " completed in " not in line]
            print(
                f"--- worker {tree.pid}, exit code {tree.process.returncode}",
                *noted[-40:],
                sep="\n",
            )


def until(condition: Callable[[], bool], within: float = BOUND, pause: float = 0.02) -> bool:
    """Wait for a condition. Return whether it came true."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True
