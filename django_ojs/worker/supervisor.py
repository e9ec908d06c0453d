"""The supervisor: forks the worker processes, forwards signals, replaces processes that die.

The jobs of a dead process become available again.
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
from django_ojs.storage import background_writer
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.job_log import number_of_jobs
from django_ojs.worker.process import Exit, WorkerProcess
from django_ojs.worker.signal_handlers import signal_handlers

logger = logging.getLogger("django_ojs.worker")

SIGNALS = {
    signal.SIGTERM: Directive.TERMINATE,
    signal.SIGINT: Directive.TERMINATE,
    signal.SIGTSTP: Directive.QUIET,
    signal.SIGCONT: Directive.RUNNING,
}

#: Seconds between two rounds of the supervisor's loop.
TICK = 0.1

#: A process that dies within this many seconds probably cannot run here at all: its replacement
#: starts after a delay, which doubles each time up to the limit.
EARLY_EXIT = 5.0
MAX_RESTART_DELAY = 15.0


@dataclass(kw_only=True, slots=True)
class Child:
    pid: int
    worker_id: str
    started: float


class Supervisor:
    """Keeps `config.processes` worker processes running until a signal or a directive stops it.

    It holds no database connection while it forks: a child would share it.
    """

    def __init__(
        self, config: WorkerConfig, code_changed: Callable[[], bool] | None = None
    ) -> None:
        self._config = config
        self._code_changed = code_changed
        self._children: dict[int, Child] = {}
        self._wanted = config.processes
        self._stopping = False
        self._reload = False
        self._received: list[signal.Signals] = []
        self._restart_delay = 0.0
        self._next_start = 0.0

    def run(self) -> bool:
        """Supervise until stopped. Return whether to start again because the code changed."""
        with signal_handlers(dict.fromkeys(SIGNALS, self._receive)):
            try:
                return self._supervise()
            finally:
                for child in self._children.values():
                    self._kill(child, signal.SIGTERM)

    def _supervise(self) -> bool:
        while True:
            self._forward_signals()
            self._reap()
            if self._stopping and not self._children:
                return self._reload
            if not self._stopping:
                self._start_missing()
                if self._code_changed is not None and self._code_changed():
                    logger.info("Code changed: the worker restarts.")
                    self._reload = True
                    self._received.append(signal.SIGTERM)
            time.sleep(TICK)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))

    def _forward_signals(self) -> None:
        while self._received:
            number = self._received.pop(0)
            if SIGNALS[number] is Directive.TERMINATE:
                self._stopping = True
                number = signal.SIGTERM
            for child in self._children.values():
                self._kill(child, number)

    def _kill(self, child: Child, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # It has ended, and will be reaped.
            os.kill(child.pid, number)

    def _start_missing(self) -> None:
        while len(self._children) < self._wanted and time.monotonic() >= self._next_start:
            child = self._fork()
            self._children[child.pid] = child

    def _fork(self) -> Child:
        worker_id = f"worker_{ids.uuid7()}"
        sys.stdout.flush()
        sys.stderr.flush()
        # Blocked until the child has its own handlers: the inherited ones would store a signal in
        # the child's copy of this object, where it would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            _run_child(self._config, worker_id, parent)
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
            # Stopped by a signal or a directive: it is not replaced.
            self._wanted -= 1
            self._stopping = self._stopping or not self._wanted
            self._rescue(child)  # Outcomes that it could not store any more.
            return
        if code == Exit.REPLACE:
            logger.info("%s is replaced.", child.worker_id)
        else:
            reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            logger.error(
                "%s (pid %d) died: %s. Its jobs become available again.",
                child.worker_id,
                child.pid,
                reason,
            )
        self._rescue(child)
        if time.monotonic() - child.started < EARLY_EXIT and code != Exit.REPLACE:
            self._restart_delay = min(MAX_RESTART_DELAY, self._restart_delay * 2 or 0.5)
            self._next_start = time.monotonic() + self._restart_delay
        else:
            self._restart_delay = 0.0

    def _rescue(self, child: Child) -> None:
        try:
            count = rescue.rescue([child.worker_id])
            if count:
                logger.info("Available again: %s of %s.", number_of_jobs(count), child.worker_id)
        except Error:
            logger.warning(
                "The jobs of %s could not be made available now; another worker will do it.",
                child.worker_id,
            )
        finally:
            # Also for this: no thread of this process runs while it forks.
            background_writer.close_all()
            connections.close_all()


def _run_child(config: WorkerConfig, worker_id: str, parent: int) -> None:
    code = 1
    try:
        # A terminal's Ctrl-C reaches the whole process group; the supervisor forwards it, once.
        os.setpgid(0, 0)
        code = run_process(WorkerProcess(config, worker_id=worker_id, parent=parent))
    except BaseException:
        logger.exception("The worker process ended by an unexpected error.")
    finally:
        background_writer.close_all()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: it would wait for threads that do not end, and run the exit handlers that
        # the parent registered for itself.
        os._exit(code)


def _on_signal(
    process: WorkerProcess, directive: Directive, number: int, frame: FrameType | None
) -> None:
    process.on_signal(directive)


def run_process(process: WorkerProcess) -> int:
    """Run a worker in this process, with its own signal handlers. Return its exit code."""
    with signal_handlers(
        {number: partial(_on_signal, process, directive) for number, directive in SIGNALS.items()}
    ):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return int(process.run())
