"""The ways in which a run ends."""

from __future__ import annotations

import pytest

from django_ojs.operations import ack, cancel, delete, fail
from django_ojs.operations.workers import rescue
from tests.factories import BOOM, WORKER

#: Of a job that runs on WORKER.
every_end = pytest.mark.parametrize(
    "end",
    [
        lambda job: ack.ack(job.id),
        lambda job: fail.fail(job.id, BOOM),
        lambda job: fail.requeue(job.id),
        lambda job: cancel.cancel(job.id),
        lambda job: rescue.rescue([WORKER]),
        lambda job: (cancel.cancel(job.id), delete.delete(job.id)),
    ],
    ids=["ack", "fail", "requeue", "cancel", "rescue", "delete"],
)
