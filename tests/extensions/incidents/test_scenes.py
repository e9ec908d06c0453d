"""Outages on real processes: the overview tells each, red, and `doctor` with the same words.

Each test prints after how many seconds it was told (`-s`).
"""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client

from django_ojs.operations import beat
from django_ojs.operations.beat import Registration
from django_ojs.operations.liveness import Principal
from tests import factories
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.factories import push, push_many
from tests.operations.cron import scenes as cron
from tests.worker.acceptance.conftest import Start, start
from tests.worker.acceptance.ledger import ALIASES
from tests.worker.waiting import eventually

__all__ = ["start"]

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

#: A worker is missed after a second; on a busy machine it sends its beats all the same.
BEAT = {"HEARTBEAT_INTERVAL": 0.3}


class Overview:
    """The page that stays open on a wall."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self) -> tuple[str, str]:
        """Return the colour of the verdict, and the text of it and of the problems."""
        page = self._client.get("/admin/django_ojs/overview/").content.decode()
        (colour,) = re.findall(r'<p class="ojs-verdict ojs-is-(\w+)"', page)
        (told,) = re.findall(r'<p class="ojs-verdict.*?</ul>', page, re.DOTALL)
        return colour, " ".join(unescape(re.sub(r"<[^>]+>", " ", told)).split())

    def tells(self, colour: str, *texts: str) -> None:
        """Wait until the verdict has this colour, and all of this is said."""
        began = time.monotonic()

        def is_told() -> bool:
            found, told = self.read()
            return found == colour and all(re.search(text, told) for text in texts)

        eventually(is_told, f"{colour}: {texts}; the page says {self.read()}", pause=0.1)
        print(f"{time.monotonic() - began:5.1f} s: {colour}, {texts}")


@pytest.fixture
def overview() -> Overview:
    return Overview(root())


def test_no_worker_at_all(overview: Overview, start: Start) -> None:
    # Nothing is enqueued, and it is red.
    overview.tells("bad", "Not working · no worker, no job is ready, no maintenance")
    tree = start("--threads", "3", ojs=BEAT).ready()
    overview.tells(
        "good",
        r"Working · 1 worker, 0 of 3 slots busy, no job is ready, maintenance [\d.]+ m?s ago, "
        "0 late schedules",
    )
    assert "Working · 1 worker" in ojs("doctor", "--only", "overview").out
    tree.kill()
    overview.tells("bad", "Not working", "no worker")
    push_many(2, queue="mail")
    push(queue="reports")
    said = "No worker is running: 3 jobs of 2 queues are ready or due."
    overview.tells("bad", "Not working · no worker, oldest ready job", said)
    told = ojs("doctor", "--only", "overview")
    assert "Not working · no worker" in told.out
    assert said in told.out


def test_a_worker_of_the_wrong_queue(overview: Overview, start: Start) -> None:
    start("--queues", "reports", ojs=BEAT).ready()
    push_many(2, queue="mail")
    said = "No worker takes jobs from mail: 2 jobs are ready"
    overview.tells("bad", "Working, with problems · 1 worker", "oldest ready job", said)
    assert said in ojs("doctor", "--only", "overview").out
    factories.jobs().delete()
    overview.tells("good", "Working · 1 worker")


def test_no_process_does_the_maintenance(overview: Overview, start: Start) -> None:
    tree = start("--queues", "mail", ojs=BEAT).ready()
    # A worker over HTTP takes jobs, and does nothing else.
    owner = Principal(id="key")
    node = Registration(queues=("mail",), concurrency=2)
    beat.beat("node-1", registration=node, interval=timedelta(hours=1), principal=owner)
    overview.tells("good", "Working · 2 workers", "maintenance")
    tree.kill()
    overview.tells("bad", "Not working", "maintenance .* ago")
    push(queue="mail")
    overview.tells("bad", "Not working · 1 worker", "No worker does the maintenance")


def test_a_schedule_that_nobody_fires(overview: Overview, start: Start) -> None:
    # The process that does the maintenance runs code without the extension.
    cron.register("nightly")
    start(
        ojs=BEAT,
        OJS_TEST_APPS=json.dumps(["tests.taken_out.TakenOut"]),
        OJS_TEST_TAKEN_OUT="cron",
    ).ready()
    overview.tells("good", "0 late schedules")
    cron.make_due("nightly", ago=timedelta(seconds=55))
    overview.tells("bad", "Working, with problems", "1 schedule is late: nightly")
