"""The page of a job, and `manage.py ojs show`, say why it does not run, and what mends it."""

from __future__ import annotations

import itertools
import re
from datetime import timedelta
from html import unescape

import pytest
from django.db.models import F
from django.test import Client

from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.models import Job, Queue
from django_ojs.operations import ack, cancel, fail, fetch, queues
from django_ojs.operations.maintenance import mode
from django_ojs.reports import not_running
from django_ojs.spec.failure import Failure
from django_ojs.spec.hold import held_by, open_to
from django_ojs.storage import queue_configs
from tests.admin.users import VIEW, root, staff
from tests.command_line.run import ojs
from tests.factories import WorkerFactory, active, age, in_state, push, push_many, read

pytestmark = pytest.mark.django_db


_USERS = itertools.count()
FOR_NOBODY = (
    "It is held for an extension that is not installed, or that holds no jobs (number 40). If no "
    "worker has the extension any more, let the jobs run without it: manage.py ojs doctor --only "
    "remains --repair."
)


def listener(queue: str = "email") -> None:
    WorkerFactory(id="one", queues=(queue,), interval=timedelta(minutes=5))


def reason(job: Job, client: Client | None = None) -> tuple[str, str]:
    """Return the sentence of the page, as `show` has it too, and the HTML with its buttons."""
    client = client or root(f"user-{next(_USERS)}")
    page = client.get(f"/admin/django_ojs/job/{job.pk}/change/").content.decode()
    found = re.search(r'<div class="ojs-not-running">(.*?)</div>', page, re.DOTALL)
    if found is None:
        assert ojs("show", job.pk, "--json").json["not_running"] is None
        return "", ""
    sentence = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", found[1])))
    shown = re.sub(r"\s+", " ", ojs("show", job.pk).out)
    # The durations differ by what the two took.
    start = sentence[:10]
    assert start in shown
    return sentence, found[1]


def test_a_paused_queue_is_named_with_the_user_and_resumed() -> None:
    listener()
    job = push(queue="email")
    client = root("ann")
    client.post("/admin/django_ojs/queue/action/pause/", {"key": "email"})
    said, html = reason(job, client)
    assert re.match(r"The queue email is paused since \d.* for .*, by ann\.", said)
    page = f"/admin/django_ojs/job/{job.pk}/change/"
    (url,) = re.findall(r'action="([^"]+)"', html)
    assert client.post(url, {"key": "email", "next": page})["Location"] == page
    assert reason(job, client)[0].startswith("It is the next job of its queue")
    # A user who may not resume it is told why, and has no button.
    queues.pause("email")
    assert "action=" not in reason(job, staff(*VIEW, name="eve"))[1]


def test_maintenance_mode_is_named_with_its_reason_before_all_else() -> None:
    job = push(queue="email")
    queues.pause("email")
    mode.enable(reason="the new disk.")
    said, html = reason(job)
    assert re.match(r"Maintenance mode is on since .*: the new disk\. ", said)
    assert "action/end-maintenance/" in html


def test_a_queue_without_a_worker_is_named_with_the_command() -> None:
    listener("other")
    said, html = reason(push(queue="email"))
    assert said.startswith("No worker takes jobs from the queue email. Start one with --queues em")
    assert "/admin/django_ojs/worker/" in html


@pytest.mark.both
def test_the_jobs_before_it_are_counted_and_about_how_long_they_take() -> None:
    listener()
    low = push(queue="email", priority=-1)
    push_many(5, queue="email")
    job = push(queue="email")
    push(queue="email", priority=5)
    push(queue="other")
    assert reason(job)[0].startswith("6 jobs of its queue are before it.")
    assert reason(low)[0].startswith("7 jobs of its queue are before it.")
    rollups.add(rollups.COMPLETED, {("email", "test.job"): 150})
    rollups.flush()
    Rollup.objects.update(minute=F("minute") - timedelta(minutes=1))
    # 150 in five minutes are 30 a minute.
    assert "6 jobs of its queue are before it, which take ≈ 12 s." in reason(job)[0]


def test_the_count_of_the_jobs_before_it_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(not_running, "MOST_BEFORE", 3)
    listener()
    push_many(9, queue="email")
    assert reason(push(queue="email"))[0].startswith("More than 3 jobs of its queue are before")


def test_a_job_that_waits_for_a_time_says_when_it_is_due_and_what_stops_it_then() -> None:
    listener()
    job = in_state("scheduled", queue="email")
    assert re.match(r"It is due in (1 h|59 min .*), at 20", reason(job)[0])
    age(job.pk, timedelta(minutes=90))
    said = reason(read(job.pk))[0]
    assert re.match(r"It was due 30 min.* ago, and waits for the maintenance of a worker", said)
    queues.pause("email")
    said, html = reason(job)
    assert re.match(r"It was due 30 min.* ago\. The queue email is paused", said)
    assert "action/resume/" in html


def test_a_type_without_a_handler_is_named() -> None:
    listener()
    job = active("one", queue="email", type="renamed.away")
    failure = Failure(type="unknown_job_type", message="no handler")
    fail.postpone(job.id, failure, delay=timedelta(seconds=30))
    said, html = reason(read(job.id))
    assert "has no handler for renamed.away, and postponed it." in said
    assert "type%3Arenamed.away" in html


def test_a_job_that_an_extension_holds_names_it() -> None:
    listener()
    job = push(queue="email")
    for hold, said in (
        (held_by(14), "The extension limits by key holds it."),
        *((each, FOR_NOBODY) for each in (held_by(40), open_to(40))),
    ):
        Job.primary.filter(pk=job.pk).update(hold=hold)
        assert reason(job)[0] == said


def test_a_queue_with_a_rule_that_is_not_installed_here_says_so() -> None:
    listener()
    job, later = push(queue="email"), in_state("scheduled", queue="email")
    Queue.primary.update_or_create(name="email", defaults={"rules": 1 << 16 | 1 << 40})
    queue_configs.refresh()
    said = (
        "The queue email has a rule of an extension that is not installed here, or that has no "
        "rule (workflows, number 40). A worker without the rule takes no job of it. If no worker "
        "has the extension any more, let the jobs run without it: manage.py ojs doctor --only "
        "remains --repair."
    )
    assert reason(job)[0] == said
    assert reason(later)[0].endswith(f". {said}")


def test_a_pending_job_waits_for_its_activation() -> None:
    assert reason(in_state("pending"))[0] == "It waits until it is activated."


def test_a_job_that_runs_or_has_ended_has_no_reason() -> None:
    claimed = active()
    assert reason(read(claimed.id)) == ("", "")
    ack.ack(claimed.id)
    assert reason(read(claimed.id)) == ("", "")
    assert reason(cancel.cancel(push().pk)[0]) == ("", "")


def test_a_limit_of_the_queue_is_named_with_the_jobs_that_run() -> None:
    listener()
    queues.configure("email", {"concurrency": 2, "rate_limit": {"limit": 3, "period": "PT1H"}})
    running = push_many(2, queue="email")
    job = push(queue="email")
    fetch.fetch(["email"], count=9)
    said, html = reason(job)
    assert said.startswith("The queue email is at its limit: 2 of its jobs run, and 2 may.")
    assert "Running jobs" in html
    assert "queue/action/configure/?key=email" in html
    ack.ack(running[0].pk)
    push(queue="email", priority=1)
    fetch.fetch(["email"], count=9)
    ack.ack(running[1].pk)
    assert reason(job)[0].startswith("The rate limit of the queue email allows the next start in ")
    page = root("kim").get("/admin/django_ojs/queue/email/change/").content.decode()
    assert "2 at once · 3 per 1" in unescape(page)


@pytest.mark.both
def test_a_limit_of_its_key_is_named_with_the_jobs_that_run() -> None:
    listener()
    policy = {"key": "acme", "concurrency": 3, "rate": {"limit": 4, "period": "PT1H"}}
    running = [push(queue="email", rate_limit=policy) for _ in range(3)]
    job = push(queue="email", rate_limit=policy)
    fetch.fetch(["email"], count=9)
    said, html = reason(job)
    assert said.startswith("It waits for its limit: 3 of 3 jobs run with the key acme.")
    assert "Running jobs" in html
    ack.ack(running[0].pk)
    push(queue="email", rate_limit=policy, priority=1)
    fetch.fetch(["email"], count=9)
    ack.ack(running[1].pk)
    assert "the rate of the key acme allows the next start in " in reason(job)[0]
