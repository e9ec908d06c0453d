"""Write the progress that a handler reports, without holding up its job or its worker."""

import threading
from collections.abc import Callable

from django.db import connections

from django_ojs.operations import progress
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.progress import Report
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.claims import Claimed
from django_ojs.storage.transitions import Claim

#: A report that takes longer is left to itself.
PATIENCE = 5.0


def report(job: Claimed, reported: Report) -> bool:
    """Write a report of a run. Return whether the job is still this run's."""
    claim = Claim(worker_id=job.worker_id, run=job.run)
    held = True

    def write() -> None:
        nonlocal held
        try:
            held = progress.report(job.id, reported, claim=claim).state == State.ACTIVE
        except (Conflict, JobNotFound):
            held = False

    link = database.connection()
    if link.in_atomic_block and link.features.has_select_for_update:
        # Inside the handler's transaction nobody would see it before the end, and its lock on the
        # job would hold up the beats of the whole worker.
        _aside(write)
    else:
        write()
    return held


def _aside(write: Callable[[], None]) -> None:
    failed: list[Exception] = []

    def run() -> None:
        try:
            write()
        except Exception as error:
            failed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, name="ojs-progress", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if failed:
        raise failed[0]
