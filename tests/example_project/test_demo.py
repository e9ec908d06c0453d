"""The parts of the demonstration: placing orders, deleting old data, the kill, and the progress."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test.utils import override_settings
from django.utils import timezone

import django_ojs as ojs
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.operations import Definition
from django_ojs.extensions.workflows.models import EndedWorkflowJob, Workflow, WorkflowStep
from django_ojs.models import Job
from django_ojs.operations import fail, fetch
from django_ojs.operations.workers import rescue
from django_ojs.storage.transitions import Claim
from example_project.demo import cleanup, nightly, snapshot
from example_project.demo.kill import kill_one
from example_project.demo.placement import place_orders
from example_project.demo.progress import Progress, Reporter
from example_project.shop.catalogue import baskets
from example_project.shop.jobs import REPORT, report
from example_project.shop.models import Order, Source, Stock
from example_project.shop.services import place_order
from tests.example_project.factories import BasketFactory, StockFactory
from tests.factories import BOOM, HOUR, WORKER, WorkerFactory, active, age, in_state
from tests.model_factories import AttemptFactory
from tests.worker.waiting import BOUND


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(command, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.django_db
def test_placing_returns_committed_and_rolled_back_orders() -> None:
    seen: list[int] = []
    placed = place_orders(baskets()[:25], on_progress=seen.append)

    assert placed.rolled_back
    assert len(placed.committed) + len(placed.rolled_back) == seen[-1] == 25
    assert set(Order.objects.values_list("reference", flat=True)) == placed.committed
    assert {job.args[0] for job in Job.objects.all()} == placed.committed


@pytest.mark.django_db
def test_other_jobs_and_workflows_are_not_deleted() -> None:
    place_order(BasketFactory(), source=Source.DEMO)
    ojs.enqueue("other.type", [])
    workflow = ojs.chain(ojs.request("other.type"), ojs.request("other.type")).enqueue()
    StockFactory()

    with override_settings(RECEIPT_FOLDER="/nonexistent/mail", MEDIA_ROOT="/nonexistent/media"):
        cleanup.delete_shop_data()

    assert not Order.objects.exists()
    assert not Stock.objects.exists()
    assert {job.type for job in Job.objects.all()} == {"other.type"}
    assert [workflow.pk for workflow in Workflow.objects.all()] == [workflow.id]
    assert set(WorkflowStep.objects.values_list("workflow_id", flat=True)) == {workflow.id}
    assert not EndedWorkflowJob.objects.exists()


@pytest.mark.django_db
def test_the_demonstration_does_not_delete_orders_from_the_site() -> None:
    place_order(BasketFactory())
    with pytest.raises(CommandError, match="orders that were placed on the site"):
        call_command("demo", orders=1)
    assert Order.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("is_right", [True, False])
def test_the_nightly_report_is_run_by_hand_and_compared(
    is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_order(BasketFactory())
    cron.register(Definition(name=REPORT, expression="0 3 * * *", template={"type": REPORT}))

    def work(job: Job) -> Job:
        result = report() if is_right else {"orders": 7, "paid": 0}
        Job.objects.filter(pk=job.pk).update(result=result)
        job.refresh_from_db()
        return job

    monkeypatch.setattr(nightly, "_ended", work)
    lines: list[str] = []
    problems = nightly.show(lines.append)
    assert "every day at 03:00 (UTC)" in lines[0]
    wrong = ["The nightly report should be {'orders': 1, 'paid': 0}."]
    assert problems == ([] if is_right else wrong)


@pytest.mark.django_db
def test_the_snapshot_holds_what_is_in_the_database() -> None:
    order = place_order(BasketFactory(reference="T-9"))
    with override_settings(RECEIPT_FOLDER="/nonexistent/mail", MEDIA_ROOT="/nonexistent/media"):
        found = snapshot.read()

    assert [(o.reference, o.total, o.payments) for o in found.orders] == [("T-9", order.total, ())]
    assert {(job.reference, job.state) for job in found.jobs} == {("T-9", "available")}
    assert len(found.jobs) == 1
    assert found.workflows == {"running": 1}
    assert found.reserved == {"Olive wood spoon": 3, "Enamel mug": 1}
    assert found.emails == found.pdfs == frozenset()


@pytest.mark.django_db
def test_the_snapshot_tells_retries_from_what_never_ran() -> None:
    place_order(BasketFactory(reference="T-9"))
    (key,) = Job.objects.values_list("pk", flat=True)
    queue = Job.objects.get().queue

    def claimed() -> None:
        age(key, HOUR)
        (job,) = fetch.fetch([queue], worker_id=WORKER)
        assert job.id == key

    claimed()
    fail.fail(key, BOOM)
    claimed()
    fail.requeue(key, claim=Claim(worker_id=WORKER))
    claimed()
    rescue.rescue([WORKER])
    claimed()
    fail.fail(key, BOOM)
    with override_settings(RECEIPT_FOLDER="/nonexistent/mail", MEDIA_ROOT="/nonexistent/media"):
        found = snapshot.read()
    (job,) = found.jobs
    # The last failure has not been followed by an attempt.
    assert (job.attempt, found.retries, found.taken_back, found.failed_runs) == (4, 1, 1, 2)
    assert job.returned == 1


@pytest.mark.django_db
def test_an_attempt_that_ended_beside_others_is_not_counted_as_returned_too() -> None:
    place_order(BasketFactory(reference="T-9"))
    place_order(BasketFactory(reference="T-8"))
    queue = Job.objects.values_list("queue", flat=True)[0]
    fetch.fetch([queue], count=2, worker_id=WORKER)
    rescue.rescue([WORKER])
    assert set(Job.objects.values_list("returned", flat=True)) == {1}
    fetch.fetch([queue], count=2, worker_id=WORKER)
    with override_settings(RECEIPT_FOLDER="/nonexistent/mail", MEDIA_ROOT="/nonexistent/media"):
        found = snapshot.read()
    assert found.taken_back == 2
    assert [job.returned for job in found.jobs] == [0, 0]


@pytest.mark.django_db
def test_the_snapshot_holds_every_request_to_the_carrier() -> None:
    now = timezone.now()
    job = in_state("completed", type="order.label", args=["T-9", 1])
    Job.objects.filter(pk=job.pk).update(started_at=now, finished_at=now)
    before = now - timedelta(seconds=5)
    AttemptFactory(job=job, outcome="lost", started_at=before, finished_at=now)

    with override_settings(RECEIPT_FOLDER="/nonexistent/mail", MEDIA_ROOT="/nonexistent/media"):
        found = snapshot.read()

    assert {(period.started_at, period.ended_at) for period in found.carrier} == {
        (now, now),
        (before, now),
    }
    assert found.explained == {job.pk: 1}


@pytest.mark.django_db
def test_the_worker_with_a_job_is_killed_and_its_job_returned(
    sleeper: subprocess.Popen[bytes],
) -> None:
    WorkerFactory(id="w", pid=sleeper.pid)
    job = active("w", type="order.invoice")

    killed = kill_one({sleeper.pid})

    assert killed is not None
    assert (killed.pid, killed.jobs) == (sleeper.pid, frozenset({job.id}))
    assert sleeper.wait(BOUND) == -signal.SIGKILL


@pytest.mark.django_db
def test_a_worker_of_another_session_is_not_killed(sleeper: subprocess.Popen[bytes]) -> None:
    WorkerFactory(id="w", pid=sleeper.pid)
    active("w", type="order.invoice")
    assert kill_one({sleeper.pid + 1}) is None
    assert sleeper.poll() is None


@pytest.mark.django_db
def test_a_worker_without_a_job_is_not_killed(sleeper: subprocess.Popen[bytes]) -> None:
    WorkerFactory(id="w", pid=sleeper.pid)
    assert kill_one({sleeper.pid}) is None
    assert sleeper.poll() is None


class Output(io.StringIO):
    """A file or a terminal that keeps its output."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def write(self, msg: str, *, ending: str | None = None) -> int:
        return super().write(msg + ("\n" if ending is None else ending))


def test_a_file_gets_a_line_now_and_then_and_the_last_one() -> None:
    now = 0.0
    output = Output(terminal=False)
    progress = Progress(out=output, title="jobs", total=100, clock=lambda: now)
    for done in range(1, 101):
        now = done / 10
        progress.show(done)
    assert output.getvalue().splitlines() == [
        f"jobs  {number}/100  10/s" for number in range(10, 101, 10)
    ]


def test_a_second_without_a_line_gets_one_that_says_what_it_waits_for() -> None:
    now = 0.0
    output = Output(terminal=False)
    reporter = Reporter(out=output, clock=lambda: now)
    reporter.wait_for("starting the workers")
    for tenths in range(1, 21):
        now = tenths / 10
        reporter.tick()
    reporter.write("jobs  1/2")
    now = 2.9
    reporter.tick()
    assert output.getvalue().splitlines() == [
        "starting the workers ...",
        "starting the workers ... 1 s",
        "starting the workers ... 2 s",
        "jobs  1/2",
    ]


def test_it_ticks_by_itself_until_the_block_has_ended() -> None:
    ticked = threading.Event()

    class Ticking(Reporter):
        def tick(self) -> None:
            ticked.set()

    with Ticking(out=Output(terminal=False)).ticking():
        assert ticked.wait(BOUND)
    assert "demo-reporter" not in {thread.name for thread in threading.enumerate()}


def test_a_terminal_gets_a_bar_that_fills() -> None:
    output = Output(terminal=True)
    progress = Progress(out=output, title="jobs", total=10, clock=lambda: 1.0)
    progress.show(5, "running 2")
    assert "\n" not in output.getvalue()
    assert output.getvalue().count("█") == output.getvalue().count("░") == 15
    assert output.getvalue().endswith("running 2")
