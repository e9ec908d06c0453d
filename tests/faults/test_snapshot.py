"""A snapshot is held open (a dump, a forgotten transaction) while many jobs come and go."""

from __future__ import annotations

import time

import pytest

from django_ojs.operations import ack, fetch
from tests.databases import ALIASES
from tests.factories import push_many
from tests.faults.conftest import FULL, Report
from tests.storage.test_claim_floors import snapshot

JOBS = 30_000 if FULL else 3_000
BATCH = 10

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.slow,
]


def test_claims_stay_right_while_a_snapshot_is_held_open(report: Report) -> None:
    seen: list[object] = []
    times: list[float] = []
    with snapshot():
        queue = push_many(1)[0].queue
        for _ in range(JOBS // 1000):
            push_many(1000, queue=queue)
        while True:
            before = time.perf_counter()
            jobs = fetch.fetch([queue], count=BATCH, worker_id="w", due=False)
            times.append((time.perf_counter() - before) * 1000)
            if not jobs:
                break
            seen += [job.id for job in jobs]
            ack.ack_batch("w", [(job.id, job.run, None) for job in jobs])
    assert len(seen) == len(set(seen)) == JOBS + 1
    tenth = max(1, len(times) // 10)
    first, last = (_share(part, 0.5) for part in (times[:tenth], times[-tenth:]))
    report(
        f"{JOBS} jobs under an open snapshot, claims of {BATCH}: "
        f"p50 {_share(times, 0.5):.2f} ms, p99 {_share(times, 0.99):.2f} ms; "
        f"median of the first tenth {first:.2f} ms, of the last {last:.2f} ms"
    )


def _share(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]
