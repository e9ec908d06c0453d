"""The supervisor: forks the worker processes, forwards signals, replaces processes that die.

The jobs of a dead process become available again. Jobs that may have killed several processes run
alone, each in a process of its own, so that no other job is lost with them.
"""

import fcntl
import gc
import logging
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType

from django.conf import settings as django_settings
from django.db import Error, connections

from django_ojs import formatting, hooks
from django_ojs.models.worker import Directive
from django_ojs.operations.workers import rescue
from django_ojs.spec import ids
from django_ojs.spec.isolation import Isolation
from django_ojs.storage import background_writer, database
from django_ojs.worker import end_callbacks
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.health import HealthFile
from django_ojs.worker.job_log import number_of_jobs
from django_ojs.worker.lifecycle import StopRequests
from django_ojs.worker.process import Exit, WorkerProcess
from django_ojs.worker.process_status import MAX_ISOLATED, ProcessStatus
from django_ojs.worker.sibling_claims import SiblingClaims
from django_ojs.worker.signal_handlers import default_in_forks, signal_handlers
from django_ojs.worker.wakes import WakePipe

logger = logging.getLogger("django_ojs.worker")

SIGNALS = {
    signal.SIGTERM: Directive.TERMINATE,
    signal.SIGINT: Directive.TERMINATE,
    signal.SIGTSTP: Directive.QUIET,
    signal.SIGCONT: Directive.RUNNING,
}

#: The most seconds between two rounds of the supervisor's loop. A signal, the end of a process, or
#: news from one begins a round at once.
TICK = 1.0

#: A process that dies within this many seconds, before it ran a job, probably cannot run here at
#: all: its replacement starts after a delay, which doubles each time up to the limit.
EARLY_EXIT = 5.0
MAX_RESTART_DELAY = 15.0

#: Seconds after the grace period in which a process must end: it stores the last outcomes.
END_TIMEOUT = 10.0

#: Seconds in which the jobs of an ended process are made available; fewer while the worker stops.
RESCUE_TIMEOUT = 20.0
RESCUE_TIMEOUT_AT_END = 5.0

#: The most seconds between two rounds that count as silence of a process: if more pass, the
#: machine was suspended or too busy, and the process could not run either.
MAX_ROUND = 1.0


@dataclass(kw_only=True, slots=True)
class Child:
    pid: int
    worker_id: str
    started: float
    status: ProcessStatus
    runs_alone: bool
    pulses: int = 0
    #: Seconds since it last showed that it runs Python code.
    silence: float = 0.0
    #: A signal or a debugger has stopped it. It does not count as silent then.
    is_stopped: bool = False
    is_stall_logged: bool = False


class Supervisor:
    """Keeps `config.processes` worker processes running until a signal or a directive stops it.

    It holds no database connection while it forks: a child would share it.
    """

    def __init__(
        self, config: WorkerConfig, code_changed: Callable[[], bool] | None = None
    ) -> None:
        self._config = replace(config, isolation=Isolation.SHARED)
        self._code_changed = code_changed
        self._children: dict[int, Child] = {}
        self._claims = SiblingClaims()
        #: How many processes there are to be, without those that run one job alone.
        self._wanted = config.processes
        self._isolated_waiting = 0
        self._isolated_delay = 0.0
        self._next_isolated = 0.0
        self._restart_delay = 0.0
        self._next_start = 0.0
        self._stall_timeout = config.stall_timeout.total_seconds()
        self._quiet = False
        self._stopping = False
        self._stop_requests = StopRequests()
        self._kill_at = float("inf")
        self._reload = False
        self._received: list[signal.Signals] = []
        self._wake = WakePipe()
        self._checked_at = time.monotonic()
        self._health = HealthFile(config.health_file) if config.health_file else None

    def run(self) -> bool:
        """Supervise until stopped. Return whether to start again because the code changed."""
        handlers = {**dict.fromkeys(SIGNALS, self._receive), signal.SIGCHLD: _begin_round}
        try:
            with signal_handlers(handlers), self._wake.woken_by_signals():
                # Modules that extensions need for their steps are imported here, so that the
                # children need not import them.
                hooks.registry.brought("due_steps")
                gc.collect()  # Children keep for good what exists when they begin.
                try:
                    return self._supervise()
                finally:
                    for child in self._children.values():
                        self._kill(child, signal.SIGTERM)
                    if self._health is not None:
                        self._health.remove()
        finally:
            self._wake.close()

    def _supervise(self) -> bool:
        while True:
            self._forward_signals()
            self._reap()
            self._check_children()
            if self._stopping and not self._children:
                return self._reload
            if not self._stopping:
                self._start_missing()
                if self._code_changed is not None and self._code_changed():
                    logger.info("Code changed: the worker restarts.")
                    self._reload = True
                    self._received.append(signal.SIGTERM)
            if self._health is not None:
                with suppress(OSError):  # The probe then fails.
                    self._health.write(is_ready=self._is_ready())
            self._wake.wait(self._pause())

    def _pause(self) -> float:
        """Return the seconds until the next round has something to do."""
        if self._received:
            return 0.0
        until_start = self._next_start - time.monotonic()
        return min(TICK, until_start) if until_start > 0 else TICK

    def _is_ready(self) -> bool:
        if self._stopping:
            return False
        ready = sum(
            child.status.is_ready and not (child.runs_alone or child.status.is_leaving)
            for child in self._children.values()
        )
        return 0 < self._wanted <= ready

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))

    def _forward_signals(self) -> None:
        while self._received:
            number = self._received.pop(0)
            if SIGNALS[number] is Directive.TERMINATE:
                self._stop()
                number = signal.SIGTERM
            else:
                self._quiet = SIGNALS[number] is Directive.QUIET
            for child in self._children.values():
                self._kill(child, number)

    def _stop(self) -> None:
        grace = self._config.grace.total_seconds()
        if self._stop_requests.is_second():
            grace = 0.0
            for child in self._children.values():
                child.status.stop_at_once()
        self._stopping = True
        self._kill_at = min(self._kill_at, time.monotonic() + grace + END_TIMEOUT)

    def _kill(self, child: Child, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # It has ended, and will be reaped.
            os.kill(child.pid, number)

    def _start_missing(self) -> None:
        children = self._children.values()
        alone = sum(child.runs_alone for child in children)
        leaving = sum(child.status.is_leaving and not child.runs_alone for child in children)
        # New processes run beside those that leave, which may have jobs for hours. In all, there
        # are at most twice the configured processes.
        wanted = self._wanted + min(leaving, self._config.processes)
        for _ in range(wanted - (len(children) - alone)):
            if time.monotonic() >= self._next_start:
                self._fork(self._config)
        if time.monotonic() < self._next_isolated:
            self._isolated_waiting = 0
        for _ in range(min(self._isolated_waiting, MAX_ISOLATED - alone)):
            # The process runs one job, and no second one after it, because the first may have
            # damaged the process.
            one = replace(
                self._config,
                isolation=Isolation.ALONE,
                threads=1,
                most_threads=0,
                once=True,
                max_jobs=1,
                max_rss_mb=None,
            )
            self._fork(one)
        self._isolated_waiting = 0

    def _fork(self, config: WorkerConfig) -> None:
        worker_id = f"worker_{ids.uuid7()}"
        status = ProcessStatus(self._wake.wake)
        runs_alone = config.isolation is Isolation.ALONE
        siblings = SiblingClaims() if runs_alone else self._claims
        _flush()
        # The signals are blocked until the child has its own handlers. The inherited ones would
        # store a signal in the child's copy of this object, where it would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            # The machine has no memory or no process IDs left. The other processes continue.
            status.close()
            self._start_later()
            logger.error(
                "A worker process could not be started (%s); it is tried again in %.1f s.",
                error.strerror,
                self._restart_delay,
            )
            return
        else:
            if not pid:
                _run_child(config, worker_id, parent, status, siblings)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._children[pid] = child = Child(
            pid=pid,
            worker_id=worker_id,
            started=time.monotonic(),
            status=status,
            runs_alone=runs_alone,
        )
        if self._quiet:
            self._kill(child, signal.SIGTSTP)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                return
            child = self._children.get(pid)
            if child is None:
                continue
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                child.is_stopped = os.WIFSTOPPED(status)
                continue
            del self._children[pid]
            self._ended(child, os.waitstatus_to_exitcode(status))
            child.status.close()

    def _check_children(self) -> None:
        now = time.monotonic()
        passed, self._checked_at = min(now - self._checked_at, MAX_ROUND), now
        for child in self._children.values():
            self._note_isolated(child)
            pulses = child.status.pulses
            if pulses != child.pulses or child.is_stopped:
                child.pulses, child.silence = pulses, 0.0
            else:
                child.silence += passed
                if 0 < self._stall_timeout <= child.silence:
                    self._end_stalled(child)
            if now >= self._kill_at:
                # The process may wait for a database that does not answer, which no signal ends.
                logger.error(
                    "%s (pid %d) has not ended within the grace period, and is killed.",
                    child.worker_id,
                    child.pid,
                )
                self._kill(child, signal.SIGKILL)

    def _note_isolated(self, child: Child) -> None:
        self._isolated_waiting = max(self._isolated_waiting, child.status.take_isolated())

    def _end_stalled(self, child: Child) -> None:
        # A developer's debugger may have stopped the threads of the process, and not the process.
        kills = self._stopping or not django_settings.DEBUG
        if not child.is_stall_logged:
            child.is_stall_logged = True
            logger.error(
                "%s (pid %d) has run no Python code for %.0f s: a handler keeps the GIL, probably "
                "in a C extension or a regular expression (jobs: %s). It cannot send heartbeats or "
                "stop.%s Run such code in a subprocess, or raise STALL_TIMEOUT.",
                child.worker_id,
                child.pid,
                child.silence,
                ", ".join(sorted(str(key) for key, _ in child.status.running() or ())) or "none",
                " It is killed." if kills else " It is not killed while DEBUG is on.",
            )
        if kills:
            self._kill(child, signal.SIGKILL)

    def _ended(self, child: Child, code: int) -> None:
        if child.runs_alone and code in (Exit.OK, Exit.REPLACE):
            # If it got no job, a limit of the queue may keep the jobs that wait.
            has_run = child.status.has_run
            self._isolated_delay = 0.0 if has_run else _longer(self._isolated_delay)
            self._next_isolated = time.monotonic() + self._isolated_delay
            self._note_isolated(child)
            self._rescue(child)  # There may be outcomes that it could not store any more.
            return
        if code == Exit.OK and not child.status.is_leaving:
            # A directive stopped it, so it is not replaced.
            self._wanted -= 1
            if not self._wanted:
                self._received.append(signal.SIGTERM)
            self._rescue(child)
            return
        has_ended_well = code in (Exit.OK, Exit.REPLACE)
        if has_ended_well:
            if not self._stopping:
                logger.info("%s has ended, and is replaced.", child.worker_id)
        else:
            ended = formatting.exit_code(code)
            logger.error(
                "%s (pid %d) died: %s. Its jobs become available again.",
                child.worker_id,
                child.pid,
                ended,
            )
        self._rescue(child, None if has_ended_well else code)
        if child.runs_alone:
            return  # If its job runs again, the other processes find it.
        is_early = time.monotonic() - child.started < EARLY_EXIT and not child.status.has_run
        # Otherwise, if something outside stops each new process, one would start after another.
        if is_early and code != Exit.REPLACE:
            self._start_later()
        else:
            self._restart_delay = 0.0

    def _start_later(self) -> None:
        self._restart_delay = _longer(self._restart_delay)
        self._next_start = time.monotonic() + self._restart_delay

    def _rescue(self, child: Child, code: int | None = None) -> None:
        # This runs in a thread, because the database may not answer.
        thread = threading.Thread(target=self._rescue_now, args=(child, code), daemon=True)
        thread.start()
        if self._stopping:
            # All rescues together take at most this long after the last process was killed.
            left = self._kill_at + RESCUE_TIMEOUT_AT_END - time.monotonic()
            thread.join(max(0.0, min(left, RESCUE_TIMEOUT_AT_END)))
            return
        thread.join(RESCUE_TIMEOUT)
        # The thread must end, because no thread may run while a process is forked.
        while thread.is_alive():
            for link in database.watched():
                database.end(link)
            thread.join(0.1)

    def _rescue_now(self, child: Child, code: int | None) -> None:
        try:
            started = child.status.running()
            if started is not None:
                rescue.give_back_all_but(started, worker_id=child.worker_id)
            count = rescue.rescue([child.worker_id], exit_code=code)
            if count:
                logger.info("Available again: %s of %s.", number_of_jobs(count), child.worker_id)
        except Error:
            logger.warning(
                "The jobs of %s could not be made available now; another worker will do it.",
                child.worker_id,
            )
        finally:
            # The threads of the writers end too, because no thread may run while a process is
            # forked.
            background_writer.close_all()
            connections.close_all()


def _longer(delay: float) -> float:
    return min(MAX_RESTART_DELAY, delay * 2 or 0.5)


def _begin_round(number: int, frame: FrameType | None) -> None:
    """Do nothing. A signal that has a handler ends the wait of the supervisor."""


def _run_child(
    config: WorkerConfig,
    worker_id: str,
    parent: int,
    status: ProcessStatus,
    siblings: SiblingClaims,
) -> None:
    code = 1
    try:
        # The supervisor's own handlers would interrupt jobs that start processes.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # What the supervisor has loaded lives as long as this process. Garbage collections would
        # walk through it again and again, and copy the memory that both share.
        gc.freeze()
        threading.excepthook = _end_process
        status.start_pulse()
        _leave_terminal()
        code = run_process(
            WorkerProcess(
                config,
                worker_id=worker_id,
                parent=parent,
                status=status,
                siblings=siblings,
            )
        )
    except BaseException:
        logger.exception("The worker process ended by an unexpected error.")
    finally:
        try:
            background_writer.close_all()
            end_callbacks.run()
            logging.shutdown()
            _flush()
        finally:
            # `sys.exit` is not used: it would wait for threads that do not end, and run the exit
            # handlers that the parent registered for itself. After an error above, this copy of
            # the supervisor would go on, and stop the processes of its parent.
            os._exit(code)


def _flush() -> None:
    """Write what was printed, if possible.

    The disk may be full, or the reader of a pipe may have ended.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _leave_terminal() -> None:
    """Leave the terminal to the supervisor.

    Ctrl-C reaches the whole process group of a terminal, but the supervisor forwards it itself,
    once. Code that reads from the terminal, such as `breakpoint()` or `input()` in a handler, would
    stop this process for ever. Such code finds the end of the file instead.
    """
    os.setpgid(0, 0)
    with suppress(OSError), open("/dev/tty", "rb", buffering=0) as terminal:
        fcntl.ioctl(terminal, termios.TIOCNOTTY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing != 0:
        os.dup2(nothing, 0)
        os.close(nothing)


def _end_process(args: threading.ExceptHookArgs) -> None:
    """End the process when one of the worker's own threads died, so that its jobs are rescued.

    Otherwise, the others would for ever extend leases of jobs whose outcomes no thread stores.
    """
    if args.thread is None or not args.thread.name.startswith("ojs-"):
        threading.__excepthook__(args)
        return
    try:
        logger.critical(
            "The thread %s ended by an unexpected error; so does its process.",
            args.thread.name,
            exc_info=args.exc_value,
        )
    finally:
        os._exit(1)


def _on_signal(
    process: WorkerProcess, directive: Directive, number: int, frame: FrameType | None
) -> None:
    process.on_signal(directive)


def run_process(process: WorkerProcess) -> int:
    """Run a worker in this process, with its own signal handlers. Return its exit code."""
    handlers = {
        number: partial(_on_signal, process, directive) for number, directive in SIGNALS.items()
    }
    with signal_handlers(handlers), default_in_forks(SIGNALS):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return int(process.run())
