"""Workers that died stay visible for a day, and links to them work; so does maintenance mode."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db.models import F
from django.test import Client, override_settings
from django.utils import timezone

from django_ojs.extensions.events.models import Event
from django_ojs.models import Attempt, Worker
from django_ojs.operations import ack, cancel, fail, progress, queues
from django_ojs.operations.maintenance import mode
from django_ojs.operations.workers import removal, rescue
from django_ojs.spec.progress import Report
from tests import factories
from tests.admin.users import VIEW, at, root, staff
from tests.model_factories import RollupFactory, histogram

pytestmark = [pytest.mark.django_db, pytest.mark.once]

BASE = "/admin/django_ojs/"


def text(client: Client, address: str) -> str:
    response = client.get(at(address))
    assert response.status_code == 200
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", response.content.decode())))


def die(worker_id: str, code: int | None = None) -> str:
    """Let a worker die that held a job, and return the id of the job."""
    factories.WorkerFactory(id=worker_id)
    job = factories.active(worker_id, queue="images", type="image.resize")
    rescue.rescue([worker_id], exit_code=code)
    return str(job.id)


@pytest.mark.both
@pytest.mark.parametrize(
    ("code", "how"), [(-9, "killed by SIGKILL"), (-77, "killed by signal 77"), (3, "exit code 3")]
)
def test_a_worker_that_died_is_listed_with_its_end_and_the_jobs_taken_back(
    code: int, how: str
) -> None:
    job = die("victim", code)
    client = root()
    listed = text(client, "worker/")
    assert re.search(rf"victim ✕ {how} .* ago .* 1 ", listed)
    page = client.get(f"{BASE}job/{job}/change/").content.decode()
    (link,) = set(re.findall(r'href="([^"]*/worker/victim/[^"]*)"', page))
    shown = client.get(link)
    assert shown.status_code == 200
    assert how in shown.content.decode()
    assert f"/job/{job}/change/" in shown.content.decode()


def test_a_worker_that_died_is_listed_for_a_day_and_not_after_it_came_back() -> None:
    die("victim")
    client = root()
    assert "Died" in text(client, "worker/")
    factories.WorkerFactory(id="victim")
    assert "Died" not in text(client, "worker/")
    removal.remove("victim")
    Event.objects.update(time=F("time") - timedelta(hours=25))
    assert "Died" not in text(client, "worker/")


def test_a_worker_that_shut_down_has_a_page_and_is_not_among_the_dead() -> None:
    factories.WorkerFactory(id="done")
    removal.remove("done")
    client = root()
    assert "shut down" in text(client, "worker/done/change/")
    assert "Died" not in text(client, "worker/")


def test_a_name_that_is_no_queue_has_no_link() -> None:
    """`*` of a worker and the default policy of an event have no page."""
    factories.WorkerFactory(id="all", queues=("email", "*"))
    queues.configure_default({"max_size": 5})
    client = root()

    def links(address: str) -> set[str]:
        page = client.get(at(address)).content.decode()
        return set(re.findall(r'href="[^"]*/queue/([^/"]+)/change/"', page))

    assert "queue.config_updated" in text(client, "event/")
    assert links("event/") == set()
    assert links("worker/all/change/") == {"email"}
    removal.remove("all")
    assert links("worker/all/change/") == {"email"}


@pytest.mark.parametrize("page", ["queue", "apikey"])
def test_maintenance_mode_is_ended_by_who_may(page: str) -> None:
    mode.enable(reason="the new <disk>")
    assert "Reason: the new <disk>" in text(root(), f"{page}/")
    viewer = staff(*VIEW)
    assert "Reason: the new <disk>" in text(viewer, f"{page}/")
    assert "action/end-maintenance/" not in viewer.get(at(f"{page}/")).content.decode()


def test_the_overview_has_it_once_and_a_queue_does_not_look_active() -> None:
    factories.push(queue="email")
    mode.enable()
    assert text(root(), "overview/").count("Maintenance mode is on") == 1
    page = text(root("second"), "queue/email/change/")
    assert "‖ maintenance" in page
    assert "● open" not in page


@pytest.mark.both
def test_attempts_that_were_spent_are_counted_and_not_the_runs() -> None:
    job = factories.push(queue="images", retry=factories.hourly(3))
    for _ in range(2):
        # Two workers die with several jobs: these runs spend no attempt.
        factories.WorkerFactory(id="w")
        claimed = factories.claim(factories.read(job.pk), "w")
        other = factories.active("w", queue="others")
        rescue.rescue(["w"])
        assert claimed.id == job.pk
        factories.jobs().filter(pk=other.id).delete()
    client = root()
    assert (factories.read(job.pk).attempt, factories.read(job.pk).spent) == (2, 0)
    assert "0 of 3" in text(client, "job/?q=queue:images")
    assert "0 of 3; 2 runs spent none" in text(client, f"job/{job.pk}/change/")


@pytest.mark.both
@pytest.mark.both
def test_a_queue_lists_its_workers_with_their_slots_the_busiest_first() -> None:
    for name, listens, slots, busy in (
        ("idle", ("email", "images"), 8, 0),
        ("busy", ("email",), 3, 3),
        ("elsewhere", ("images",), 5, 5),
        ("silent", ("email",), 4, 4),
    ):
        values = {"queues": listens, "concurrency": slots, "hostname": "app-1", "pid": 4121}
        factories.WorkerFactory(id=name, **values)
        Worker.objects.filter(pk=name).update(active_jobs=busy)
    factories.silence("silent")
    factories.push(queue="email")
    page = text(root(), "queue/email/change/")
    assert "3 of 11 slots busy" in page
    assert re.search(
        r"busy app-1, pid 4121 ● running 3 of 3 no job .* idle app-1, pid 4121 ● running", page
    )
    assert "elsewhere" not in page
    assert "silent" not in page


@pytest.mark.both
def test_a_queue_shows_what_its_workers_run_now_and_how_long_a_run_takes() -> None:
    factories.WorkerFactory(id="web-1", queues=("email",), concurrency=5, labels=("eu-west",))
    for n in range(5):
        done = factories.active("web-1", queue="email", type="email.send", args=[{"user": n}])
    factories.active("web-1", queue="images")
    progress.report(done.id, Report(progress=0.4))
    factories.age(done.id, 3600)  # The longest running one comes first.
    RollupFactory(type="email.send", completed=9, ran=histogram(1.5, 9))
    page = text(root(), "queue/email/change/")
    assert "0 of 5 slots busy, counting all queues of these workers" in page
    assert re.search(r"Ran p50 / p95 1 s.2 s / 1 s.2 s", page)
    assert re.search(
        r'web-1 — eu-west ● running 0 of 5 email.send for 1 h( 0 s)? ?, 40 % done \{"user": ?4\} '
        r"email.send for .* and 2 more",
        page,
    )
    assert '"user"' not in text(staff(*VIEW), "queue/email/change/")


def test_a_worker_whose_jobs_were_not_read_does_not_seem_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django_ojs.reports.latest_runs.MOST_RUNNING", 5)
    for name in ("first", "second"):
        factories.WorkerFactory(id=name, queues=("email",), concurrency=8)
        for _ in range(6):
            old = factories.active(name, queue="email", type="email.send")
            factories.age(old.id, 7200 if name == "first" else 60)
    page = text(root(), "queue/email/change/")
    assert re.search(r"first .* and 2 or more .* second — ● running 0 of 8 — ", page)
    assert "no job" not in page


def test_a_worker_shows_its_pool() -> None:
    factories.WorkerFactory(id="w", queues=("pay",), pool="critical")
    client = root()
    assert " pay pool critical " in text(client, "worker/")
    assert " Pool critical " in text(client, "worker/w/change/")


@pytest.mark.both
@pytest.mark.both
def test_a_worker_shows_its_last_runs_with_outcome_and_duration_also_after_its_end() -> None:
    factories.WorkerFactory(id="web-1")
    completed, failed, cancelled = (
        factories.active("web-1", type=f"test.{end}").id
        for end in ("completed", "failed", "cancelled")
    )
    factories.jobs().update(started_at=F("started_at") - timedelta(seconds=90))
    ack.ack(completed)
    fail.fail(failed, factories.BOOM)
    cancel.cancel(cancelled)
    # The one after the other, though the clock is set back by a moment.
    factories.age(completed, 20)
    ago = timedelta(seconds=10)
    runs = Attempt.objects.filter(job_id=failed)
    runs.update(started_at=F("started_at") - ago, finished_at=F("finished_at") - ago)
    ack.ack(factories.active("other", type="test.of_another").id)
    client = root()
    shown = r"test.cancelled \S+ ↩ cancelled q\d+ 1 min \d+ s .* test.failed \S+ ✕ failed .*"
    for ended in (False, True):
        if ended:
            removal.remove("web-1")
        page = text(client, "worker/web-1/change/")
        assert re.search(shown + r" test.completed \S+ ✓ completed q\d+ 1 min \d+ s", page)
        assert "of_another" not in page


def test_a_worker_shows_the_arguments_of_its_jobs_to_users_who_may_see_them() -> None:
    factories.WorkerFactory(id="web-1")
    factories.active("web-1", args=[{"year": 2026, "card": "4111111111111111"}])
    with override_settings(OJS={"ADMIN_REDACT": ["card"]}):
        page = text(root(), "worker/web-1/change/")
    assert '"year":2026' in page.replace(" ", "")
    assert "4111111111111111" not in page
    assert "2026," not in text(staff(*VIEW), "worker/web-1/change/")


def started(worker_id: str, minutes_ago: int, **values: Any) -> None:
    """Let a worker start, some minutes ago."""
    factories.WorkerFactory(id=worker_id, **({"queues": ("email",)} | values))
    when = timezone.now() - timedelta(minutes=minutes_ago)
    Event.objects.filter(type="worker.started", subject=worker_id).update(time=when)


def test_charts_mark_where_the_release_of_the_workers_changed() -> None:
    started("a1", 50, release="v1", version="django_ojs 1.0")
    started("node1", 45, version="2.1")  # In another language: a version of its own.
    started("b1", 40, release="v1", queues=("images",))
    started("a2", 30, release="<b>v2")
    started("b2", 29, release="<b>v2", queues=("images",))
    started("a3", 20, release="<b>v2")
    started("node2", 15, version="2.1")
    # While two releases run, each restart would be a change.
    for number in range(3):
        started(f"a4-{number}", 14 - number, release="v1")
        started(f"a5-{number}", 14 - number, release="<b>v2")
    started("node3", 5, version="2.2")
    RollupFactory(ago=timedelta(minutes=5), enqueued=1)
    for name in ("email", "images"):
        factories.push(queue=name)
    client = root()
    for page in ("overview/", "queue/email/change/", "job/type/?type=t"):
        marked = re.findall(r"release \S+, [\d:]{8}", text(client, page))
        assert [each.split()[1] for each in marked][-2:] == ["<b>v2,", "2.2,"], page
        assert not any("v1" in each for each in marked), page
        assert "<b>v2" not in client.get(at(page)).content.decode()
    page = text(client, "queue/images/change/")
    assert "release v1" not in page
    assert "<b>v2" in text(client, "worker/a2/change/")
