"""Connections die at random: work goes on, nothing is lost, and nothing runs twice for nothing."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from django.db import OperationalError, connection

from tests.databases import ALIASES
from tests.faults import ledger
from tests.faults.conftest import FULL, Report
from tests.faults.site import Site

#: How long connections are killed, in seconds, and how often.
SECONDS = 30 if FULL else 6
EVERY = 0.1

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.mariadb,
    pytest.mark.slow,
]

_OTHERS = """
SELECT id FROM information_schema.processlist
WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 1
"""
_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
ORDER BY random() LIMIT 1
"""


def terminate_one() -> int:
    """End the session of another process, if there is one. Return how many."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_TERMINATE)
            return len(cursor.fetchall())
        cursor.execute(_OTHERS)
        found = cursor.fetchall()
        for (key,) in found:
            # It may have ended by itself.
            with suppress(OperationalError):
                cursor.execute(f"KILL CONNECTION {key}")
        return len(found)


def test_promise_2_jobs_survive_connections_that_are_terminated_at_random(
    site: Site, report: Report
) -> None:
    site.start("--processes", "2", "--threads", "4").ready(2)
    enqueuer = site.enqueue(10**6, milliseconds=8, pause=0.005)
    terminated = 0
    # A worker that has lost its session is given up when it has no other a second later: what it
    # held may run again a little after the last one was terminated.
    with site.trouble("terminated", after=10):
        end = time.monotonic() + SECONDS
        # On a busy machine it goes on until the workers have done something meanwhile, and until
        # chance has chosen the enqueuer too.
        while time.monotonic() < end or ledger.count("done") <= 50 or not site.known("error"):
            terminated += terminate_one()
            time.sleep(EVERY * 2 * site.dice.random())
    enqueuer.kill()
    before = ledger.count("done")
    site.enqueued()
    site.drained()
    verdict = site.verdict()
    report(f"{terminated} connections terminated: {verdict.line}")
    verdict.good()
    assert terminated > SECONDS / EVERY / 3
    assert before > 50, "work went on meanwhile"
    assert site.known("error"), "the enqueuer lost a connection as well"
    stored = site.stored_with_their_rows()
    assert set(site.known("acknowledged")) <= stored
    assert not stored & set(site.known("rolled-back"))
    site.completed_once()
