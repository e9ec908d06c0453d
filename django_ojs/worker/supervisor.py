"""The supervisor: forks the worker processes, passes signals on, replaces who dies.

The jobs of the dead go back to their queues.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType

from django.db import Error, connections

from django_ojs.models.worker import Directive
from django_ojs.operations.workers import rescue
from django_ojs.spec import ids
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.process import Exit, WorkerProcess

logger = logging.getLogger("django_ojs.worker")

SIGNALS = {
    signal.SIGTERM: Directive.TERMINATE,
    signal.SIGINT: Directive.TERMINATE,
    signal.SIGTSTP: Directive.QUIET,
    signal.SIGCONT: Directive.RUNNING,
}

TICK = 0.1

#: A process that dies this young died of its environment; its successor waits, longer each time, up
#: to the limit.
YOUNG = 5.0
LONGEST_PAUSE = 15.0


@dataclass(kw_only=True, slots=True)
class Child:
    """One worker process."""

    pid: int
    worker_id: str
    started: float


class Supervisor:
    """Keeps `config.processes` worker processes alive until it is told to stop.

    It holds no database connection while it forks: a child would share it.
    """

    def __init__(self, config: WorkerConfig, changed: Callable[[], bool] | None = None) -> None:
        self._config = config
        self._changed = changed
        self._children: dict[int, Child] = {}
        self._wanted = config.processes
        self._stopping = False
        self._reload = False
        self._received: list[signal.Signals] = []
        self._pause = 0.0
        self._start_at = 0.0

    def run(self) -> bool:
        """Work until told to stop.

        Return whether the code changed and the caller should start again.
        """
        for number in SIGNALS:
            signal.signal(number, self._note)
        try:
            while True:
                self._pass_on()
                self._reap()
                if self._stopping and not self._children:
                    return self._reload
                if not self._stopping:
                    self._fill()
                    if self._changed is not None and self._changed():
                        logger.info("Code changed: the worker starts again.")
                        self._reload = True
                        self._received.append(signal.SIGTERM)
                time.sleep(TICK)
        finally:
            for child in self._children.values():
                self._kill(child, signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))

    def _pass_on(self) -> None:
        while self._received:
            number = self._received.pop(0)
            if SIGNALS[number] is Directive.TERMINATE:
                self._stopping = True
                number = signal.SIGTERM
            for child in self._children.values():
                self._kill(child, number)

    def _kill(self, child: Child, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # It is gone, and will be reaped.
            os.kill(child.pid, number)

    def _fill(self) -> None:
        while len(self._children) < self._wanted and time.monotonic() >= self._start_at:
            child = self._fork()
            self._children[child.pid] = child

    def _fork(self) -> Child:
        worker_id = f"worker_{ids.uuid7()}"
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal that comes before the child has handlers of its own waits for them; the ones it
        # inherits would note it in a copy of this object, and nobody would look.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            _be_a_child(self._config, worker_id, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return Child(pid=pid, worker_id=worker_id, started=time.monotonic())

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, code: int) -> None:
        if code == Exit.OK:
            # Told to end, by a beat if not by us: it is not replaced.
            self._wanted -= 1
            self._stopping = self._stopping or not self._wanted
            self._rescue(child)  # What it could not write any more.
            return
        if code == Exit.REPLACE:
            logger.info("%s is replaced.", child.worker_id)
        else:
            reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            logger.error(
                "%s (pid %d) died: %s. Its jobs go back to their queues.",
                child.worker_id,
                child.pid,
                reason,
            )
        self._rescue(child)
        if time.monotonic() - child.started < YOUNG and code != Exit.REPLACE:
            self._pause = min(LONGEST_PAUSE, self._pause * 2 or 0.5)
            self._start_at = time.monotonic() + self._pause
        else:
            self._pause = 0.0

    def _rescue(self, child: Child) -> None:
        try:
            count = rescue.rescue([child.worker_id])
            if count:
                logger.info("%d jobs of %s are available again.", count, child.worker_id)
        except Error:
            logger.warning(
                "The jobs of %s could not be taken back now; another worker will.", child.worker_id
            )
        finally:
            connections.close_all()


def _be_a_child(config: WorkerConfig, worker_id: str, parent: int) -> None:
    code = 1
    try:
        # A terminal's Ctrl-C reaches the whole group; the supervisor passes it on, once.
        os.setpgid(0, 0)
        code = run_process(WorkerProcess(config, worker_id=worker_id, parent=parent))
    except BaseException:
        logger.exception("The worker process ended by an error of its own.")
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: threads that would not end, and what the parent registered for its own exit,
        # must not run here.
        os._exit(code)


def _signalled(
    process: WorkerProcess, directive: Directive, number: int, frame: FrameType | None
) -> None:
    process.signalled(directive)


def run_process(process: WorkerProcess) -> int:
    """Run a worker process in this one, with its signals. Return its exit code."""
    for number, directive in SIGNALS.items():
        signal.signal(number, partial(_signalled, process, directive))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return int(process.run())
