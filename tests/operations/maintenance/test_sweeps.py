"""Rows that no queue and no job needs any more are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.checkpoints import pruning as checkpoints
from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.extensions.limits import pruning
from django_ojs.extensions.limits.models import LimitedQueue
from django_ojs.models import Job
from django_ojs.operations import ack, fail, fetch, queues
from tests.factories import BOOM, WORKER, active, hourly, push

pytestmark = pytest.mark.django_db

RATE = {"rate_limit": {"limit": 1, "period": "PT1H"}}


def start(queue: str) -> None:
    push(queue=queue)
    fetch.fetch([queue], worker_id=WORKER)


def limited() -> list[str]:
    pruning.StartsPruner().prune()
    return sorted(LimitedQueue.primary.values_list("queue", flat=True))


def test_the_starts_of_a_queue_go_with_its_rate() -> None:
    for queue in ("kept", "taken-away", "deleted"):
        queues.configure(queue, RATE)
        start(queue)
    assert limited() == ["deleted", "kept", "taken-away"]
    queues.configure("taken-away", {"rate_limit": None, "concurrency": 1})
    ack.ack(Job.objects.get(queue="deleted").pk)
    queues.delete("deleted")
    assert limited() == ["kept"]


def test_those_of_a_deleted_queue_stay_while_the_settings_limit_it(settings: Any) -> None:
    settings.OJS = settings.OJS | {"QUEUES": {"carrier": RATE}}
    start("carrier")
    ack.ack(Job.objects.get().pk)
    queues.delete("carrier")
    assert limited() == ["carrier"]


@pytest.mark.parametrize("rate", [RATE["rate_limit"], {"throttle": RATE["rate_limit"]}])
def test_starts_that_no_rate_counts_any_more_go(rate: Any) -> None:
    queues.configure("carrier", {"rate_limit": rate})
    start("carrier")
    row = LimitedQueue.primary.get()
    before = 2 * 3_600_000
    windows, throttles = row.starts["windows"].items(), row.starts["throttles"].items()
    earlier = {
        "windows": {ms: [[at - before, n] for at, n in log] for ms, log in windows},
        "throttles": {interval: due - before for interval, due in throttles},
    }
    assert limited() == ["carrier"]
    LimitedQueue.primary.update(starts=earlier)
    assert limited() == []


def test_a_walk_over_starts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "WALK", 2)
    LimitedQueue.primary.bulk_create([LimitedQueue(queue=name) for name in "abc"])
    pruner = pruning.StartsPruner()
    assert [pruner.prune(), LimitedQueue.primary.count()] == [2, 1]
    assert [pruner.prune(), LimitedQueue.primary.count()] == [1, 0]


def test_checkpoints_that_their_jobs_have_left_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "WALK", 2)
    running, done, gone, dead = (active(retry=hourly(1)) for _ in range(4))
    for job in (running, done, gone, dead):
        checkpoint.save(job.id, {"page": 4})
    left = list(Checkpoint.primary.filter(job_id__in=[done.id, gone.id]))
    ack.ack(done.id)
    Job.objects.filter(pk=gone.id).delete()
    fail.fail(dead.id, BOOM)
    # As when the open transaction of a handler held the rows.
    Checkpoint.primary.bulk_create(left)
    pruner = checkpoints.CheckpointPruner()
    while pruner.prune():
        pass
    assert set(Checkpoint.primary.values_list("job_id", flat=True)) == {running.id, dead.id}
