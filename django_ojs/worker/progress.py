"""Store the progress that a handler reports, without blocking its job or its worker."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import OperationalError

from django_ojs.hooks import registry
from django_ojs.operations import progress
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.progress import Report
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.transitions import Claim
from django_ojs.worker import outside_transaction

#: Seconds after which a handler no longer waits for its report to be stored.
WRITE_TIMEOUT = 5.0


def report(job: Claimed, reported: Report) -> bool:
    """Store a report of a run. Return False when the run has lost its claim on the job."""
    claim = Claim(worker_id=job.worker_id, run=job.run)
    held = True

    def store(what: Report) -> None:
        nonlocal held
        try:
            held = progress.report(job.id, what, claim=claim).state == State.ACTIVE
        except (Conflict, JobNotFound):
            held = False

    without = replace(reported, checkpoint=None)
    if outside_transaction.in_transaction():
        # In the handler's transaction the report would be invisible until the commit, and its lock
        # on the job row would block the beats of the whole worker.
        outside_transaction.run(partial(store, without), timeout=WRITE_TIMEOUT)
        if held and reported.checkpoint is not None:
            # The handler's transaction may hold the row of the checkpoint, and another connection
            # would wait for it.
            held = _save_checkpoint(job, reported.checkpoint)
        return held
    try:
        store(reported)
    except OperationalError as error:
        if reported.checkpoint is None or not database.dialect().is_contention_error(error):
            raise
        # Another transaction holds the row of the checkpoint; a later report may store one.
        store(without)
    return held


def _save_checkpoint(job: Claimed, state: Mapping[str, Any]) -> bool:
    try:
        # This is done in a savepoint, because an error must not end the transaction of the handler.
        with database.atomic():
            if (save := registry.context.get("checkpoint")) is not None:
                save(job, dict(state))
    except (Conflict, JobNotFound):
        return False
    return True
