"""A worker process holds few bytes of jobs in advance, and fills its slots with large ones too."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.worker import claimer
from django_ojs.worker.in_flight import Phase
from django_ojs.worker.process import WorkerProcess
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.ledger import ALIASES, becomes, release, started, stored
from tests.worker.test_process import configured, working

pytestmark = pytest.mark.django_db(transaction=True, databases=ALIASES)

LIMIT = 200_000
META = {"payload": "x" * 60_000}


def test_jobs_that_wait_for_a_slot_are_few_if_they_are_large(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OJS = settings.OJS | {"MAX_FETCH_BYTES": LIMIT}
    real, held, wanted = claimer.fetch, [], []

    def fetch(*args: Any, count: int, **kwargs: Any) -> Any:
        claimed = real(*args, count=count, **kwargs)
        # Not those whose handlers have ended: they wait until their outcomes are stored.
        before = [
            run for run in process._in_flight.all() if run.phase in (Phase.WAITING, Phase.RUNNING)
        ]
        held.append(sum(run.job.size for run in before) + sum(job.size for job in claimed))
        wanted.append(count)
        return claimed

    monkeypatch.setattr(claimer, "fetch", fetch)
    jobs = [stored(handlers.quick.options(meta=META).enqueue(number)) for number in range(60)]
    process = WorkerProcess(configured(once=True))
    process.run()
    assert all(becomes(job, "completed") for job in jobs)
    assert max(wanted) > 10, "by their number, more jobs would have been claimed"
    assert max(held) <= LIMIT + 2 * 61_000


def test_every_slot_gets_a_job_however_large_each_is(settings: Any) -> None:
    settings.OJS = settings.OJS | {"MAX_FETCH_BYTES": 1}
    jobs = [stored(handlers.wait.options(meta=META).enqueue()) for _ in range(2)]
    with working():
        for job in jobs:
            started(job)
        for job in jobs:
            release(job)
            becomes(job, "completed")
