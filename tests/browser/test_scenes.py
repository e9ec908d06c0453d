"""An operator's evening: each test is one subject, played from scene to scene on pages that stay.

What changes beside the page (workers, jobs, time) changes in the database, as another process would
do it; what the operator does is clicked.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from django_ojs.extension import Actor
from django_ojs.extensions.backpressure.operations import pressure_monitor, rejection_counts
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.models import ActorKind, ApiKey, Job, Queue, Worker
from django_ojs.operations import ack, fail, fetch, progress, queues
from django_ojs.operations.access import api_keys
from django_ojs.operations.access.operator import acting
from django_ojs.operations.jobs import bulk_execution
from django_ojs.operations.maintenance import mode
from django_ojs.operations.workers import removal, rescue
from django_ojs.spec.failure import Failure
from django_ojs.spec.progress import Report
from tests import factories
from tests.browser.conftest import TIMEOUT_MS
from tests.browser.test_journeys import ADMIN, REFRESH, act, body, confirm, counts, follow, shows
from tests.factories import active, claim, hourly, in_state, jobs, push, push_many, read, silence
from tests.model_factories import ApiKeyFactory, RollupFactory, histogram

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SECOND = timedelta(seconds=1)
#: Between the heartbeats of a worker: none is stale because the machine is busy.
HOUR = timedelta(hours=1)


def listener(worker_id: str, *names: str, **values: Any) -> None:
    given = {"queues": names, "concurrency": 4, "interval": HOUR} | values
    factories.WorkerFactory(id=worker_id, **given)


def refreshed(page: Any) -> None:
    """Let the page, which stays open, refresh itself now."""
    page.mouse.move(0, 0)  # Rows do not move under the mouse.
    page.evaluate(REFRESH)


def has_no(found: Any, text: str) -> None:
    """Wait until an element does not contain a text."""
    from playwright.sync_api import expect

    expect(found).not_to_contain_text(text, use_inner_text=True, timeout=TIMEOUT_MS)


def work_off() -> None:
    """Do what the maintenance of a worker does for bulk operations."""
    while bulk_execution.work_once() is not None:
        pass


def test_the_overview_that_stays_open_names_what_goes_wrong_and_leads_to_what_mends_it(
    page: Any,
) -> None:
    health = page.get_by_role("list", name="Health")
    # Those that are over stay in grey.
    open_ones = health.locator("> li:not(.ojs-dead)")

    def finding(text: str) -> Any:
        refreshed(page)
        found = open_ones.filter(has_text=text)
        found.wait_for()
        return found

    def mended(text: str) -> None:
        page.goto(f"{ADMIN}overview/")
        counts(open_ones.filter(has_text=text), 0)

    # The only worker of a queue stops, a moment after it has completed jobs.
    listener("only", "email")
    rollups.add(rollups.COMPLETED, {("email", "mail.send"): 600})
    rollups.flush()
    Rollup.primary.update(minute=F("minute") - timedelta(minutes=1))
    push_many(2, queue="email", type="mail.send")
    page.goto(f"{ADMIN}overview/")
    shows(page.locator(".ojs-verdict"), "1 worker, 0 of 4 slots busy, oldest ready job")
    counts(health.locator("li"), 0)
    removal.remove("only")
    stopped = finding("No worker is running")
    shows(stopped, "2 jobs of 1 queue are ready or due")
    follow(page, stopped.get_by_role("link", name="Workers"))
    shows(body(page), "No worker has sent a heartbeat. Start one")
    # One that is killed is missed after three heartbeats.
    listener("second", "email")
    mended("No worker is running")
    silence("second", 3 * HOUR)
    shows(finding("No worker is running"), "2 jobs of 1 queue")
    listener("third", "email")
    follow(page, finding("no heartbeat in time: 1.").get_by_role("link", name="Workers"))
    follow(page, page.get_by_role("link", name="second", exact=True))
    act(page, "Deregister")
    confirm(page)
    mended("no heartbeat in time")

    # A full queue drops its oldest jobs. One that empties and fills again is full all the time.
    queues.configure("images", {"backpressure": {"max_depth": 10, "strategy": "drop_oldest"}})
    listener("images-1", "images", concurrency=20)
    push_many(10, queue="images")
    for _ in range(3):
        push(queue="images")
    pressure_monitor.check_all()
    rejection_counts.recorder.reset()
    rollups.flush()
    full = finding("Queue images is full")
    shows(full, "10 of 10; 3 jobs dropped. Its oldest jobs are dropped for new ones.")
    since = full.locator("time").first.get_attribute("datetime")
    # No further down: its end would come a minute later.
    for claimed in fetch.fetch(["images"], count=2, worker_id="images-1"):
        ack.ack(claimed.id)
    pressure_monitor.check_all()
    full = finding("was full lately: 8 of 10")
    assert full.locator("time").first.get_attribute("datetime") == since
    follow(page, full.get_by_role("link", name="Configure…"))
    page.get_by_label("Maximum jobs").fill("100")
    confirm(page)
    pressure_monitor.check_all()
    page.goto(f"{ADMIN}overview/")
    over = finding("Queue images was full in the last hour: 3 jobs dropped.")
    follow(page, over.get_by_role("link", name="Waiting jobs"))
    shows(body(page), "8 jobs")
    jobs().filter(queue="images").delete()

    # A job kills one worker after the other.
    killer = push(queue="video", type="video.cut")
    for name in ("video-1", "video-2"):
        listener(name, "video")
        claim(killer, name)
        rescue.rescue([name], exit_code=-9)
    page.goto(f"{ADMIN}overview/")
    died = finding("2 workers died in the last hour")
    shows(died, f"2 of them had the job {killer.pk}")
    follow(page, died.get_by_role("link", name="Job", exact=True))
    shows(body(page), "video.cut")
    follow(page, page.locator(".ojs-buttons").get_by_role("link", name="Cancel"))
    confirm(page)

    # A deployment has renamed a type.
    unknown = Failure(type="unknown_job_type", message="no handler")
    for _ in range(2):
        lost = active("third", queue="report", type="report.old")
        fail.postpone(lost.id, unknown, delay=30 * SECOND)
    page.goto(f"{ADMIN}overview/")
    renamed = finding("No handler knows the type report.old")
    follow(page, renamed.get_by_role("link", name="Cancel all"))
    shows(body(page), "2 jobs")
    confirm(page)
    work_off()
    shows(body(page), "✓ done")
    mended("No handler knows")

    # The jobs of a type fail; others wait for too long; another queue was left paused.
    rollups.add(rollups.FAILED, {("email", "mail.send"): 900})
    rollups.flush()
    bounced = active("third", queue="email", type="mail.send", priority=9, retry=hourly(3))
    fail.fail(bounced.id, Failure(type="SMTPRefused", message="550"))
    shows(finding("of the runs of mail.send failed"), "in the last 15 minutes")
    factories.age_all(timedelta(minutes=16))
    shows(finding("The oldest ready job of email has waited"), "2 jobs are ready")
    queues.pause("email")
    has_no(finding("Queue email is paused"), "has waited")
    follow(page, health.get_by_role("button", name="Resume"))
    counts(open_ones.filter(has_text="is paused"), 0)
    assert not Queue.primary.get(pk="email").paused
    failing = finding("of the runs of mail.send failed")
    follow(page, failing.get_by_role("link", name="Its failed jobs"))
    shows(page.locator("#ojs-jobs tbody"), "550")
    counts(page.locator("#ojs-jobs tbody tr"), 1)


def test_the_page_of_a_job_says_why_it_does_not_run_until_it_runs(page: Any) -> None:
    first = push(queue="email", type="mail.send")
    job = push(queue="email", type="mail.send")
    queues.configure("email", {"concurrency": 1})
    with acting(Actor(kind=ActorKind.USER, name="ann")):
        queues.pause("email")
    mode.enable(reason="the new disk")
    reason = page.locator(".ojs-not-running")
    page.goto(f"{ADMIN}job/{job.pk}/change/")
    shows(reason, "Maintenance mode is on since")
    shows(reason, "the new disk.")
    follow(page, reason.get_by_role("button", name="End maintenance mode"))
    shows(reason, "The queue email is paused since")
    shows(reason, "by ann")
    follow(page, reason.get_by_role("button", name="Resume"))
    shows(reason, "No worker takes jobs from the queue email. Start one with --queues email.")
    counts(reason.get_by_role("link", name="Workers"), 1)
    listener("one", "email")
    refreshed(page)
    shows(reason, "One job of its queue is before it.")
    claim(first, "one")
    refreshed(page)
    shows(reason, "The queue email is at its limit: 1 of its jobs run, and 1 may.")
    follow(page, reason.get_by_role("link", name="Running jobs"))
    follow(page, page.locator("#ojs-jobs tbody th a"))
    assert page.url.endswith(f"/job/{first.pk}/change/")
    counts(reason, 0)
    ack.ack(first.pk)
    page.goto(f"{ADMIN}job/{job.pk}/change/")
    shows(reason, "It is the next job of its queue")
    claim(job, "one")
    refreshed(page)
    counts(reason, 0)
    shows(page.locator(".ojs-lead"), "on one")


def test_no_figure_of_a_queue_a_job_or_a_type_misleads(page: Any) -> None:
    listener("web-1", "email")
    queues.configure("email", {"backpressure": {"max_depth": 8}})
    # Workers died with this job and with others: these runs have spent no attempt.
    job = push(queue="other", type="mail.send", retry=hourly(3))
    for _ in range(2):
        factories.WorkerFactory(id="victim")
        claim(read(job.pk), "victim")
        beside = active("victim", queue="beside")
        rescue.rescue(["victim"])
        jobs().filter(pk=beside.id).delete()
    push_many(8, queue="email", type="mail.send", retry=hourly(3))
    factories.age_all(timedelta(hours=13))
    page.goto(f"{ADMIN}job/?q=queue:other")
    shows(page.locator("#ojs-jobs tbody"), "0 of 3")
    follow(page, page.locator("#ojs-jobs tbody th a"))
    shows(page.locator(".ojs-figures").first, "0 of 3; 2 runs spent none")

    def figure(name: str) -> Any:
        return page.locator(".ojs-figures > div", has=page.get_by_text(name, exact=True))

    # The queue is full: what it rejects stands beside what comes.
    for ago in range(1, 7):
        RollupFactory(
            ago=timedelta(minutes=ago),
            type="mail.send",
            enqueued=10,
            rejected=90,
            completed=11,
            failed=2,
            lost=2,
            waited=histogram(1.5, 25),
            ran=histogram(1.5, 25),
        )
    page.goto(f"{ADMIN}queue/email/change/")
    shows(figure("In / out per minute"), re.compile(r"\d\s*\+ [\d.]+ rejected\s*/ "))
    shows(figure("Oldest"), "13 h")
    shows(figure("Waited p50 / p95"), re.compile("1.s.2.s / 1.s.2.s"))
    # The percentiles are of jobs that completed; the one that has waited longest is beside them.
    page.goto(f"{ADMIN}overview/")
    shows(figure("Waits longest now"), "13 h")
    shows(figure("Waited p50 / p95"), re.compile(r"\d.+ / \d"))

    # The page of the type: runs that were lost with a worker are no failures of it.
    (failed,) = fetch.fetch(["email"], worker_id="web-1", due=False)
    fail.fail(failed.id, Failure(type="SMTPRefused", message="550 no such user"))
    rollups.flush()
    page.goto(f"{ADMIN}job/{failed.id}/change/")
    follow(page, page.get_by_role("link", name="mail.send", exact=True).first)
    hour = page.locator("#ojs-type tbody tr", has_text="Hour").first
    shows(hour, "1 and 12 lost with a worker")
    shows(hour, re.compile("1.s.2.s"))
    shows(page.locator("#ojs-type"), "550 no such user")
    follow(page, page.locator(".ojs-buttons").get_by_role("link").first)
    assert "type:mail.send" in page.get_by_label("Search jobs").input_value()
    follow(page, page.get_by_role("link", name="Runs, errors and workers of this type"))
    shows(page.locator("h1").last, "mail.send")


def test_workers_their_slots_and_their_ends_are_on_pages_that_lead_to_each_other(
    page: Any,
) -> None:
    listener("web-1", "email", concurrency=3, hostname="app-1", pid=4121, labels=("eu-west",))
    for user in range(3):
        last = active("web-1", queue="email", type="mail.send", args=[{"user": user}])
    progress.report(last.id, Report(progress=0.4))
    Worker.primary.update(active_jobs=3)
    listener("images-1", "images")
    killed = active("images-1", queue="images", type="image.resize")
    rescue.rescue(["images-1"], exit_code=-9)
    RollupFactory(type="mail.send", completed=9, ran=histogram(1.5, 9))
    page.goto(f"{ADMIN}queue/email/change/")
    shows(body(page), "3 of 3 slots busy, counting all queues of these workers")
    shows(body(page), re.compile("Ran p50 / p95.*1.s.2.s", re.DOTALL))
    row = page.locator("tbody tr", has_text="web-1")
    for text in ("app-1, pid 4121", "eu-west", "mail.send", "40 % done", '"user"'):
        shows(row, text)
    follow(page, row.get_by_role("link", name="web-1"))
    runs = page.locator("#ojs-worker tbody tr", has_text="mail.send")
    counts(runs, 3)
    ack.ack(last.id)
    refreshed(page)
    shows(runs.last, "✓ completed")
    act(page, "Quiet")
    page.locator(".messagelist").wait_for()
    assert Worker.primary.get(pk="web-1").directive == "quiet"

    # A worker that died stays for a day, in grey, and the links to it and to its job work.
    page.goto(f"{ADMIN}worker/")
    dead = page.locator(".ojs-dead")
    shows(dead, "✕ killed by SIGKILL")

    def colour(name: str) -> str:
        return str(page.locator(name).first.evaluate("each => getComputedStyle(each).color"))

    assert colour(".ojs-dead td") != colour("#ojs-workers .ojs-rows td:not(.ojs-dead *)")
    follow(page, dead.get_by_role("link", name="images-1"))
    shows(body(page), "killed by SIGKILL")
    follow(page, page.get_by_role("link", name=str(killed.id)).first)
    shows(page.locator(".ojs-runs"), "images-1")
    follow(page, page.locator(".ojs-runs").get_by_role("link", name="images-1").first)
    shows(body(page), "killed by SIGKILL")

    # Maintenance mode is on each page of the navigation, which is the same on all of them.
    page.goto(f"{ADMIN}overview/")
    act(page, "Start maintenance mode")
    page.get_by_label("Reason").fill("the new disk")
    confirm(page)
    navigation = page.get_by_role("navigation", name="Pages of background jobs")
    # Those behind "More" are hidden until it is opened.
    names = navigation.locator("a").evaluate_all("all => all.map(e => e.pathname)")
    assert len(names) == 14
    shows(navigation.get_by_role("link", name="Overview"), "3 problems")
    for name in names:
        page.goto(name)
        assert navigation.locator("[aria-current=page]").evaluate("e => e.pathname") == name
        links = navigation.locator("a")
        assert links.evaluate_all("all => all.map(e => e.pathname)") == names
        counts(page.get_by_text("Maintenance mode is on"), 1)
    page.goto(f"{ADMIN}queue/email/change/")
    shows(page.locator("#ojs-queue"), "‖ maintenance")
    shows(page.locator(".ojs-maintenance"), "Reason: the new disk")
    follow(page, page.locator(".ojs-maintenance").get_by_role("button"))
    counts(page.locator(".ojs-maintenance"), 0)
    has_no(page.locator("#ojs-queue"), "maintenance")


def test_jobs_are_run_now_again_and_anew_and_the_audit_trail_has_who_did_what(
    page: Any,
) -> None:
    audit = page.locator("#ojs-audit tbody tr")

    def recorded(action: str, text: str) -> None:
        row = audit.filter(has=page.get_by_role("link", name=action, exact=True)).first
        # A screen reader reads "to" for the arrow.
        shows(row, text.replace("→", "→ to"))

    waiting = [in_state("scheduled", queue="email") for _ in range(3)]
    in_state("retryable", queue="email")
    single, *_ = waiting
    page.goto(f"{ADMIN}job/{single.pk}/change/")
    act(page, "Run now")
    shows(page.locator(".ojs-lead"), "available")
    page.goto(f"{ADMIN}job/?q=queue:email+state:scheduled,retryable")
    follow(page, page.get_by_role("link", name="Select all 3 that match"))
    act(page, "Run now")
    confirm(page)
    work_off()
    shows(body(page), "✓ done")
    assert set(jobs().values_list("state", flat=True)) == {"available"}

    # What has ended runs again: as it was, and edited.
    old = in_state("completed", type="testapp.add", args=[1, 2])
    page.goto(f"{ADMIN}job/{old.pk}/change/")
    act(page, "Run again")
    confirm(page)
    again = Job.primary.filter(type="testapp.add").exclude(pk=old.pk).get()
    assert (again.args, again.state) == ([1, 2], "available")
    page.goto(f"{ADMIN}job/{old.pk}/change/")
    follow(page, page.get_by_role("link", name="Edit and run…"))
    first = page.get_by_label("a", exact=True)
    assert first.input_value() == "1"
    first.fill("")
    page.get_by_role("button", name="Enqueue").click()
    page.locator(".ojs-invalid", has_text="This field is required.").wait_for()
    first.fill("41")
    page.get_by_label("Priority").fill("5")
    follow(page, page.get_by_role("button", name="Enqueue"))
    edited = Job.primary.latest("pk")
    assert (edited.args, edited.priority) == ([41, 2], 5)
    page.get_by_role("link", name=str(old.pk)).wait_for()

    # A new one, of a type that has a handler here.
    page.goto(f"{ADMIN}job/")
    follow(page, page.get_by_role("link", name="Enqueue…"))
    follow(page, page.get_by_role("link", name="testapp.add"))
    page.get_by_label("a", exact=True).fill("3")
    page.get_by_label("b", exact=True).fill("4")
    follow(page, page.get_by_role("button", name="Enqueue"))
    shows(page.locator(".messagelist"), "Enqueued in")
    assert Job.primary.latest("pk").args == [3, 4]

    # Configure shows what is in force, and from where.
    queues.configure("email", {"backpressure": {"max_depth": 100}})
    page.goto(f"{ADMIN}queue/email/change/")
    act(page, "Pause")
    act(page, "Configure")
    page.locator("summary", has_text="In force").click()
    in_force = page.locator("tbody tr", has_text="Maximum jobs")
    shows(in_force, "100")
    shows(in_force, "stored for this queue")
    shows(page.locator("tbody tr", has_text="When full"), "built in")
    page.get_by_label("Maximum jobs").fill("200")
    confirm(page)
    act(page, "Resume")

    page.goto(f"{ADMIN}auditentry/")
    recorded("queue.resumed", "state: paused → active")
    recorded("queue.configured", "backpressure.max_depth: 100 → 200")
    recorded("queue.paused", "state: active → paused")
    recorded("job.enqueued", "testapp.add")
    recorded("job.run_now", "state: scheduled → available")
    assert "—" not in audit.locator("[data-label='From → to']").all_inner_texts()
    follow(page, audit.get_by_role("link", name=str(edited.pk)).first)
    assert page.url.endswith(f"/job/{edited.pk}/change/")


def test_a_key_that_is_about_to_expire_is_replaced_once(page: Any) -> None:
    key, text = ApiKeyFactory(name="billing", scopes=["admin"], expires=timedelta(days=30))
    api_keys.find(text)
    now = timezone.now()
    ApiKey.primary.filter(pk=key.pk).update(
        created_at=now - timedelta(days=28), expires_at=now + timedelta(days=2)
    )
    page.goto(f"{ADMIN}overview/")
    health = page.get_by_role("list", name="Health")
    shows(health, f"The API key billing ({key.prefix}) expires")
    follow(page, health.get_by_role("link", name="Replace…"))
    page.get_by_label("Hours for which the old key stays valid").fill("12")
    # A colleague has the same form open.
    colleague = page.context.new_page()
    colleague.goto(page.url)
    # A second click while the first waits for its response sends nothing.
    box = page.get_by_role("button", name="Replace the key").bounding_box()
    place = (box["x"] + 5, box["y"] + 5)
    sent: list[Any] = []
    page.route(
        "**/replace/",
        lambda route: sent.append(route) if route.request.method == "POST" else route.continue_(),
    )
    with page.expect_request(lambda request: request.method == "POST"):
        page.mouse.click(*place)
    page.mouse.click(*place)
    with page.expect_navigation():
        (waiting,) = sent
        waiting.continue_()
    secret = page.get_by_label("billing").input_value()
    new = ApiKey.primary.exclude(pk=key.pk).get()
    assert secret.startswith(f"ojs_{new.prefix}_")
    shows(page.locator(".messagelist"), f"The old key {key.prefix} is valid until")
    follow(colleague, colleague.get_by_role("button", name="Replace the key"))
    shows(body(colleague), f"The key was replaced meanwhile, by {new.prefix}")
    assert ApiKey.primary.count() == 2
    colleague.close()
    page.goto(f"{ADMIN}apikey/")
    shows(page.locator("#result_list"), f"active, replaced by {new.prefix}; valid until")
    page.goto(f"{ADMIN}auditentry/")
    shows(page.locator("#ojs-audit tbody tr", has_text="api_key.replaced"), "expires_at: ")
    # Its programs still use the old key.
    api_keys.find(text)
    page.goto(f"{ADMIN}overview/")
    counts(health.get_by_role("link", name="Replace…"), 0)
