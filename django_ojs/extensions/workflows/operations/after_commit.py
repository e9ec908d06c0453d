"""Advance workflows at the end of the requests that end their jobs.

Requests that end jobs at the same time do not each advance their workflow: one of them does it for
all that wait, because several workflows in one transaction cost little more than one.
"""

import threading
from queue import Empty, SimpleQueue
from typing import Final
from uuid import UUID

from django_ojs.extensions.workflows.operations.advance import TOGETHER, advance_all
from django_ojs.storage import database, in_memory_state

#: How often one request takes workflows that wait. The next request, a FETCH or the maintenance
#: advances the rest.
ROUNDS: Final = 2


class WaitingWorkflows:
    """The workflows that wait in this process to be advanced."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._waiting: SimpleQueue[UUID] = SimpleQueue()
        self._turn = threading.Lock()

    def advance(self, workflow_id: UUID) -> None:
        """Advance a workflow, or leave it to the thread that is advancing others."""
        self._waiting.put(workflow_id)
        for _ in range(ROUNDS):
            # A thread that finds the lock held has put its workflow into the queue before. The
            # thread with the lock looks again after releasing the lock, and so takes this workflow,
            # unless that was its last round.
            if self._waiting.empty() or not self._turn.acquire(blocking=False):
                return
            try:
                advance_all(self._take())
            finally:
                self._turn.release()

    def _take(self) -> list[UUID]:
        taken: dict[UUID, None] = {}
        try:
            while len(taken) < TOGETHER:
                taken[self._waiting.get_nowait()] = None
        except Empty:
            pass
        return list(taken)


waiting: Final = in_memory_state.register(WaitingWorkflows())


def advance_after_commit(workflow_id: UUID | None) -> None:
    """Advance the workflow of a job that has ended, if it has one, once the transaction commits.

    If that fails, the maintenance does it.
    """
    if workflow_id is not None:
        database.after_commit(lambda: waiting.advance(workflow_id))
