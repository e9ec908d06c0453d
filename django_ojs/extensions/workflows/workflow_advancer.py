"""Advance the workflows whose jobs this worker has ended, beside the thread that stores outcomes.

That thread must not wait, because outcomes that are not stored are lost with the process.
"""

import threading
import time
from collections.abc import Collection, Iterable
from functools import partial
from uuid import UUID

from django.db import connections

from django_ojs.extensions.workflows.operations.advance import TASK, TOGETHER, advance_all
from django_ojs.hooks import run_task
from django_ojs.storage import database

#: How long the thread rests after a round with few workflows, as a multiple of the time of the
#: round, and the longest rest in seconds.
REST = 2.0
LONGEST_REST = 0.1
#: Seconds that the end of a process waits for this thread.
CLOSE_TIMEOUT = 2.0


class WorkflowAdvancer:
    """A thread that starts with the first workflow. Maintenance advances what it leaves undone.

    It takes all workflows together that arrived while it worked.
    """

    def __init__(self) -> None:
        self._waiting: dict[UUID, None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def add(self, workflow_ids: Iterable[UUID | None]) -> None:
        """Advance these workflows soon; None stands for a job without one."""
        wanted = [each for each in workflow_ids if each is not None]
        if not wanted:
            return
        with self._changed:
            self._waiting.update(dict.fromkeys(wanted))
            if self._thread is None and not self._closing:
                work = database.passing_by()(self._work)
                self._thread = threading.Thread(target=work, name="ojs-workflows", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Advance the workflows that wait, and end. Return at the latest after CLOSE_TIMEOUT."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT)

    def _rest(self, took: float) -> None:
        """Wait for more ends of jobs, because they cost less together."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, min(took * REST, LONGEST_REST))

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    while not self._waiting and not self._closing:
                        self._changed.wait()
                    if not self._waiting:
                        return
                    some, self._waiting = self._waiting, {}
                began = time.monotonic()
                run_task(TASK, partial(_advance, some))
                if len(some) < TOGETHER:
                    self._rest(time.monotonic() - began)
        finally:
            connections.close_all()


def _advance(workflow_ids: Collection[UUID]) -> int:
    advance_all(workflow_ids)
    return len(workflow_ids)
