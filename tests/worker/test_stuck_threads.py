"""A thread that has ended is not stuck, though another may have come and got its number."""

from __future__ import annotations

import threading

import pytest

from django_ojs.worker import heartbeat as heartbeats
from tests.worker.test_heartbeat import Bench

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_thread_that_ended_is_not_taken_for_its_successor_with_the_same_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeats, "STUCK_AFTER", 0.1)
    bench, release = Bench(), threading.Event()
    run = bench.holds()
    ended = threading.Thread(target=run.begin)
    ended.start()
    ended.join()
    successors: list[threading.Thread] = []
    try:
        while not successors or successors[-1].ident != run.thread_id:
            if len(successors) == 100:
                pytest.skip("this system does not give the number of a thread out again")
            successors.append(threading.Thread(target=release.wait, args=(60,)))
            successors[-1].start()
        heartbeat = bench.start()
        heartbeat.interrupted.append(run)
        assert not bench.stuck.wait(1.0)
    finally:
        release.set()
        if bench.heartbeat is not None:
            bench.heartbeat.close()
        for thread in successors:
            thread.join()
