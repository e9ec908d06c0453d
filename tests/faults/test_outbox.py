"""Relays die by SIGKILL between sending and noting, and every job arrives once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from django_ojs.models import OutboxEntry
from tests.faults.conftest import FULL
from tests.outbox.conftest import remote as remote
from tests.outbox.killed_relay import JOBS
from tests.outbox.remote import Remote
from tests.worker.processes import ROOT

KILLS = 200 if FULL else 5


@pytest.mark.requirement("FA-003")
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_each_job_arrives_once_though_relays_are_killed(
    remote: Remote, process_environment: dict[str, str]
) -> None:
    destination = {"url": remote.url, "queues": ["remote-*"], "timeout": 20}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.outbox.killed_relay", str(KILLS)],
        cwd=ROOT,
        env={
            **process_environment,
            "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
            "OJS_TEST_OJS": json.dumps({"OUTBOX": {"remote": destination}}),
        },
        capture_output=True,
        check=False,
        timeout=580,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stdout.split()[-1] == str(KILLS).encode()
    assert [job.args[0] for job in remote.jobs] == list(range(JOBS * KILLS))
    assert not OutboxEntry.objects.exclude(state="sent").exists()
