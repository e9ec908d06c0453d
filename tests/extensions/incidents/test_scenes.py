"""Outages on real processes: the overview tells each, red, and `doctor` with the same words.

Each test prints after how many seconds it was told (`-s`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client, override_settings
from django.utils import timezone

import django_ojs
from django_ojs.extension import Actor
from django_ojs.extensions.backpressure.operations import episodes
from django_ojs.extensions.cron.models import CronJob
from django_ojs.http import metrics
from django_ojs.models import ActorKind, Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import queues
from django_ojs.operations.access.operator import acting
from django_ojs.operations.worker_activity import Principal
from django_ojs.reports import health_queries
from django_ojs.spec.errors import QueueFull
from tests import factories
from tests.admin.users import root
from tests.command_line.run import ojs
from tests.factories import WorkerFactory, push, push_many
from tests.http.api import Api
from tests.model_factories import RollupFactory, histogram
from tests.operations.cron import scenes as cron
from tests.testapp import worker_jobs as handlers
from tests.testapp.fault_jobs import PATIENT
from tests.worker.acceptance.conftest import Start, start
from tests.worker.acceptance.ledger import ALIASES, release, started
from tests.worker.processes import Tree
from tests.worker.waiting import eventually

__all__ = ["start"]

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

#: A worker is missed after a second; on a busy machine it sends its beats all the same.
BEAT = {"HEARTBEAT_INTERVAL": 0.3}
#: Seconds between two looks: to read the page keeps a processor and the server busy for a tenth.
PAUSE = 0.3


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

        eventually(is_told, f"{colour}: {texts}; the page says {self.read()}", pause=PAUSE)
        print(f"{time.monotonic() - began:5.1f} s: {colour}, {texts}")

    def has_no(self, text: str) -> None:
        """Wait until no problem is told with these words; one that is over stays in grey."""
        began = time.monotonic()

        def is_over() -> bool:
            return all(text not in each["text"] for each in found())

        eventually(is_over, f"nothing is told of {text}", pause=PAUSE)
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
                if each["kind"] == kind and f'identity="{each["identity"]}"' in lines
            ),
            None,
        )

    return eventually(by_all, f"{kind} is told; doctor has {found()}", pause=PAUSE) or {}


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


def test_jobs_that_are_to_be_retried_when_their_workers_are_gone(
    overview: Overview, start: Start
) -> None:
    start("--queues", "other", ojs=BEAT).ready()
    tree = start("--queues", "mail", ojs=BEAT).ready()
    push_many(
        2,
        queue="mail",
        type="worker.transfer_async",
        args=["a", "raise"],
        retry=factories.hourly(3),
    )
    waits = factories.jobs().filter(queue="mail", state="retryable")
    eventually(lambda: waits.count() == 2, "both are to be retried")
    overview.has_no("No worker")
    tree.kill()
    # None of them is ready, and nobody would take them.
    overview.tells(
        "fair",
        "Working, with problems",
        "No worker takes jobs from mail: 2 jobs wait to be retried",
    )
    assert told("queue_unworked")["severity"] == "warning"
    waits.update(due_at=timezone.now())
    overview.tells("bad", "No worker takes jobs from mail: 2 jobs are ready")
    start("--queues", "mail", ojs=BEAT).ready()
    overview.has_no("No worker takes jobs")


def test_no_process_does_the_maintenance(
    overview: Overview, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = start("--queues", "mail", ojs=BEAT).ready()
    # A worker over HTTP takes jobs, and does nothing else.
    owner = Principal(id="key")
    an_hour = timedelta(hours=1)
    WorkerFactory(id="node-1", queues=("mail",), concurrency=2, interval=an_hour, principal=owner)
    overview.tells("good", "Working · 2 workers", "maintenance")
    tree.kill()
    monkeypatch.setattr(health_queries, "LATE_MAINTENANCE", timedelta(seconds=3))
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
    cron.make_due("nightly", ago=timedelta(seconds=61))
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


def test_a_deploy_that_breaks_a_type_and_the_one_that_mends_it(
    overview: Overview, start: Start
) -> None:
    def deploy(release: str) -> Tree:
        return start("--threads", "2", ojs=BEAT | {"RELEASE": release}).ready()

    def stop(tree: Tree) -> None:
        tree.signal(signal.SIGTERM)
        assert tree.ends() == 0

    which = {"queue": "default", "type": "worker.transfer_async"}
    stop(deploy("1.9"))
    broken = deploy("2.0")
    push_many(10, args=["a", "raise"], retry=factories.hourly(3), **which)
    failed = Attempt.primary.filter(outcome=AttemptOutcome.FAILED)
    eventually(lambda: failed.count() == 10, "ten runs have failed")
    said = (
        "The last 10 runs of worker.transfer_async all failed in default, on workers of the "
        "release 2.0, the last with ValueError"
    )
    overview.tells("bad", "Working, with problems", re.escape(said))
    finding = told("type_failing")
    assert finding["severity"] == "critical"
    assert finding["identity"] == "type_failing:worker.transfer_async default"
    assert finding["cause"].startswith("Probably because a worker of the release 2.0 started at ")
    stop(broken)
    deploy("2.1")
    push_many(10, args=["a"], **which)
    (last,) = failed.order_by("-finished_at").values_list("finished_at", flat=True)[:1]
    since = f"none since {timezone.localtime(last):%H:%M:%S}."
    overview.tells("good", "Working · 1 worker", f"worker.transfer_async .*; {since} .*ended ")
    (advice,) = [each for each in found() if each["kind"] == "type_failing"]
    assert advice["severity"] == "advice"
    assert advice["text"].endswith(since)
    assert "type_failing" not in metrics.render(None).decode()


def test_a_handler_that_became_slow(overview: Overview, start: Start) -> None:
    which = {"queue": "default", "type": "worker.rest"}
    RollupFactory(ago=timedelta(days=1), completed=50, ran=histogram(0.1, 50), **which)
    push_many(40, args=[1.5], **which)
    start("--threads", "2", ojs=BEAT).ready()
    # The jobs that run tell it before ten of them have ended.
    usual = r"; yesterday at this time half took \d\d ms or less\. It holds \d slots?\."
    overview.tells("fair", "worker.rest is slow in default: half of its (running|runs).*" + usual)
    overview.tells(
        "fair",
        r"worker.rest is slow in default: half of its runs took 1\.\d s or more in the last 5 "
        "minutes" + usual,
    )
    finding = told("type_slow")
    assert finding["identity"] == "type_slow:worker.rest default"
    push_many(100, priority=9, args=[0], **which)
    overview.has_no("worker.rest is slow")


@pytest.mark.postgresql  # On SQLite, a frozen process may hold the lock of the database.
def test_processes_that_were_frozen_and_others_that_died(overview: Overview, start: Start) -> None:
    frozen = start("--queues", "frozen", "--threads", "2", ojs=BEAT).ready()
    other = start("--queues", "other", "--threads", "1", ojs=BEAT).ready()
    for job in push_many(2, queue="frozen", type="worker.wait"):
        started(job)
    members = frozen.members()
    try:
        for pid in members:
            os.kill(pid, signal.SIGSTOP)
        overview.tells("bad", "Working, with problems", "1 worker died in the last hour, with 2 jo")
    finally:
        for pid in members:
            os.kill(pid, signal.SIGCONT)
    said = r"1 worker did not answer for [\d.]+ .*, and lives; 2 jobs were taken back"
    overview.tells("fair", "Working, with problems", said)
    assert all(each["kind"] != "worker_died" for each in found())
    # Workers that die with one job are told apart from it, with the job.
    killer = push(queue="other", type="worker.kill_worker", args=[3], retry=PATIENT)
    overview.tells(
        "bad", said, rf"[2-9] workers died in the last hour, .* of them had the job {killer.pk}"
    )
    assert told("worker_stalled")["severity"] == "warning"
    assert told("worker_died")["severity"] == "critical"
    assert other.process.poll() is None


@contextmanager
def stalled(*trees: Tree) -> Iterator[None]:
    """Let the server answer no session of these workers, which live on."""
    names, stopped = [tree.name for tree in trees], set[int]()

    def go_on() -> None:
        while stopped:
            os.kill(stopped.pop(), signal.SIGCONT)

    def is_stalled() -> bool:
        """Whether all are stopped while they waited for their client, so without any lock."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid, state = 'idle' AND coalesce(wait_event = 'ClientRead', false)"
                " FROM pg_stat_activity WHERE application_name = ANY(%s)",
                [names],
            )
            waits = dict(cursor.fetchall())
        if stopped == waits.keys() and all(waits.values()):
            return True
        go_on()
        if all(waits.values()):
            for pid in waits:
                os.kill(pid, signal.SIGSTOP)
                stopped.add(pid)
        return False

    try:
        eventually(is_stalled, "the server answers none of them")
        yield
    finally:
        go_on()


@pytest.mark.postgresql
def test_a_database_that_did_not_answer_some_workers(overview: Overview, start: Start) -> None:
    if not connection.settings_dict["HOST"].startswith("/"):
        pytest.skip("the server is on another machine")
    start("--queues", "other", ojs=BEAT).ready()
    trees = [start("--queues", queue, ojs=BEAT).ready() for queue in ("mail", "reports")]
    for queue, number in (("mail", 2), ("reports", 1)):
        for job in push_many(number, queue=queue, type="worker.wait", retry=PATIENT):
            started(job)
    lost = Attempt.primary.filter(outcome=AttemptOutcome.LOST)
    with stalled(*trees):
        eventually(lambda: lost.count() == 3, "the jobs are taken back")
    # One may be taken back again, if its worker claims it before it has registered again.
    said = r"2 workers did not answer for [\d.]+ .*, and live; \d+ jobs were taken back"
    overview.tells("fair", "Working, with problems", said)
    assert all(each["kind"] != "worker_died" for each in found())
    assert told("worker_stalled")["severity"] == "warning"
    # One that dies with its job is told apart from them.
    killer = push(queue="other", type="worker.kill_worker", args=[2], retry=PATIENT)
    overview.tells("bad", said, f"1 worker died in the last hour, with 1 job: {killer.pk}")


@pytest.fixture
def impatient() -> Iterator[None]:
    """Let a job that is ready for a second count as late."""
    with override_settings(OJS=settings.OJS | {"WARN_OLDEST_AVAILABLE": "PT1S"}):
        yield


@pytest.mark.usefixtures("impatient")
def test_a_queue_that_a_limit_key_holds(overview: Overview, start: Start) -> None:
    start("--queues", "mail", "--threads", "4", ojs=BEAT).ready()
    limit = {"key": "acme", "concurrency": 1}
    push_many(3, queue="mail", type="worker.wait", rate_limit=limit)
    overview.tells(
        "fair",
        "The oldest ready job of mail has waited too long; 2 jobs are ready.",
        "Its oldest ready job: It waits for its limit: 1 of 1 jobs run with the key .*.",
    )
    assert "1 of 1 jobs run" in told("queue_late")["cause"]


@pytest.mark.usefixtures("impatient")
def test_a_queue_that_is_starved_by_a_strict_order(overview: Overview, start: Start) -> None:
    start("--queues", "first,mail", "--strategy", "strict", "--threads", "2", ojs=BEAT).ready()
    for job in push_many(2, queue="first", type="worker.wait"):
        started(job)
    push(queue="mail", type="worker.quick", args=[1])
    overview.tells(
        "fair",
        "The oldest ready job of mail has waited too long; 1 job is ready.",
        "The workers of the queue mail have 2 slots, and run only jobs of other queues: first.",
    )


def test_a_queue_that_is_full_and_has_room_again(
    overview: Overview, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("--queues", "other", ojs=BEAT).ready()
    queues.configure("mail", {"backpressure": {"max_depth": 4}})
    push_many(4, queue="mail", type="worker.quick", args=[1])
    with pytest.raises(QueueFull):
        push(queue="mail")
    overview.tells("bad", "Queue mail is full: 4 of 4", "Enqueues are rejected")
    finding = told("queue_full")
    cause = "Probably because the configuration of mail was changed (backpressure) at "
    assert finding["cause"].startswith(cause)
    start("--queues", "mail", ojs=BEAT).ready()
    # It is not over at once: the queue may fill again.
    overview.tells("bad", "Queue mail was full lately: 0 of 4")
    monkeypatch.setattr(episodes, "ENDS_AFTER", timedelta(seconds=1))
    overview.has_no("was full lately")


def test_a_queue_that_was_paused_and_forgotten(overview: Overview, start: Start) -> None:
    start("--queues", "mail", ojs=BEAT).ready()
    with acting(Actor(kind=ActorKind.USER, name="ann")):
        queues.pause("mail")
    overview.tells("good", "Working")
    push_many(2, queue="mail")
    overview.tells(
        "fair",
        "Queue mail is paused: 2 jobs wait.",
        r"The queue mail was paused by ann at \d\d:\d\d:\d\d.",
    )


def test_a_workflow_that_waits_for_a_worker(overview: Overview, start: Start) -> None:
    start("--queues", "mail", ojs=BEAT).ready()
    steps = [handlers.quick.options(queue=queue).request(1) for queue in ("mail", "payments")]
    workflow = django_ojs.chain(*steps).enqueue()
    overview.tells("bad", "No worker takes jobs from payments: 1 job is ready.")
    page = root("again").get(f"/admin/ojs_workflows/workflow/{workflow.id}/change/", follow=True)
    assert "No worker takes jobs from the queue payments" in page.content.decode()
    start("--queues", "payments", ojs=BEAT).ready()
    overview.tells("good", "Working · 2 workers")
