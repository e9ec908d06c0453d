"""Outages on real processes: the overview tells each, red, and `doctor` with the same words.

Each test prints after how many seconds it was told (`-s`).
"""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client

from django_ojs.extensions.cron.models import CronJob
from django_ojs.http import metrics
from django_ojs.models import Job
from django_ojs.operations import beat
from django_ojs.operations.beat import Registration
from django_ojs.operations.liveness import Principal
from tests import factories
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.factories import push, push_many
from tests.http.api import Api
from tests.operations.cron import scenes as cron
from tests.worker.acceptance.conftest import Start, start
from tests.worker.acceptance.ledger import ALIASES, release, started
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

    def has_no(self, text: str) -> None:
        """Wait until no problem is told with these words; one that is over stays in grey."""
        began = time.monotonic()

        def is_over() -> bool:
            return all(text not in each["text"] for each in found())

        eventually(is_over, f"nothing is told of {text}", pause=0.1)
        print(f"{time.monotonic() - began:5.1f} s: over, {text}")


def found() -> list[dict[str, Any]]:
    """Return what `doctor` finds; the API and the metrics have the same."""
    (check,) = ojs("doctor", "--only", "overview", "--json").json["checks"]
    return list(check["findings"])


def told(kind: str) -> dict[str, Any]:
    """Return the finding of a kind, which `doctor`, the API and the metrics tell alike."""

    def by_all() -> dict[str, Any] | None:
        answer = Api().get("/ojs/v1/health/findings").ok()["findings"]
        lines, same = metrics.render(None).decode(), [each for each in found() if each in answer]
        return next(
            (
                each
                for each in same
                if each["kind"] == kind
                and f'identity="{each["identity"]}"' in lines
                and f'text="{each["text"]}"' in lines
            ),
            None,
        )

    return eventually(by_all, f"{kind} is told; doctor has {found()}", pause=0.1) or {}


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


def test_a_schedule_that_its_own_job_keeps_from_running(overview: Overview, start: Start) -> None:
    cron.register("nightly", template={"type": "worker.wait", "args": []})
    start(ojs=BEAT).ready()

    def fires(**values: int) -> None:
        cron.make_due("nightly")
        row = CronJob.primary.filter(pk="nightly", **values)
        eventually(row.exists, f"the schedule has {values}")

    fires(run_count=1)
    holder = Job.primary.get(type="worker.wait")
    started(holder)
    fires(skipped_count=1)
    assert all(each["kind"] != "cron_skipped" for each in found())
    fires(skipped_count=2)
    said = (
        f"The schedule nightly was skipped 2 times in a row by its overlap: the job {holder.pk} of "
        "the type worker.wait, which is active, has not ended."
    )
    overview.tells("fair", "Working, with problems", re.escape(said))
    finding = told("cron_skipped")
    assert (finding["text"], finding["identity"]) == (said, "cron_skipped:nightly")
    # The next occurrence may enqueue again.
    release(holder)
    overview.has_no("was skipped")
    overview.tells("good", "Working · 1 worker")
