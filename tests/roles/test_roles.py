"""Processes under different roles, with the rights that the how-to grants."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.models.functions import Now
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.backpressure.operations import pressure_monitor
from django_ojs.extensions.checkpoints.models import MARK
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.steps import signal as signal_of_steps
from django_ojs.models import ApiKey, Attempt, BulkOperation, BulkOperationJob, Job, Queue, Worker
from django_ojs.operations import beat, queues
from django_ojs.operations.workers.rescue import DeadWorkers
from django_ojs.spec import ids
from django_ojs.spec.errors import QueueFull
from django_ojs.storage import database, in_memory_state
from django_ojs.storage.figures import counts
from tests import factories
from tests.admin.users import root
from tests.http.api import Api, make_key
from tests.http.principals import TABLE
from tests.http.test_principals import ask
from tests.model_factories import BulkOperationFactory, CronRunFactory, OutboxEntryFactory
from tests.operations.cron.scenes import make_due, register
from tests.outbox.conftest import destination
from tests.outbox.conftest import server as server
from tests.outbox.server import Server
from tests.plugins import teardown
from tests.roles.conftest import AsRole, Blocks, execute, named, variables
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.conftest import start as start
from tests.worker.acceptance.ledger import ALIASES, becomes, history, started, stored
from tests.worker.waiting import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.mariadb,
]

#: By the driver: what a role may not do to a table, a column, a database, a server and a routine.
DENIED = {"42501", 1142, 1143, 1044, 1227, 1370}


@contextmanager
def nothing_denied() -> Iterator[None]:
    """Fail if a statement of this thread lacks a right, also where the error is caught."""
    denied: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except Exception as error:
            code = getattr(error.__cause__, "sqlstate", None) or next(iter(error.args), None)
            if code in DENIED:
                denied.append(f"{error} in {sql[:200]}")
            raise

    with connection.execute_wrapper(note):
        yield
    assert not denied, "\n".join(denied)


def grant_handlers_rights() -> None:
    # What a project grants on its own tables.
    execute(named("GRANT SELECT, INSERT ON testapp_thing TO site_web, site_worker"))


def second_worker_role(roles: Blocks) -> None:
    """Give the role of the site the rights of a worker: a second role of workers."""
    execute(roles["Workers"][0].split(";", 1)[1].replace("site_worker", "site_web"))


@pytest.mark.statements
@pytest.mark.slow
def test_workers_under_two_roles_rescue_by_session_only_what_they_see(
    roles: Blocks, start: Start, as_role: AsRole
) -> None:
    second_worker_role(roles)
    grant_handlers_rights()
    job = stored(handlers.wait.enqueue())
    tree = start(ojs={"HEARTBEAT_INTERVAL": 600}, **variables("site_worker")).ready()
    started(job)
    eventually(lambda: tree.workers()[0].session_started_at is not None, "its session is known")
    with as_role("site_web"):
        # What the maintenance of a worker under the second role does every half second.
        dead = DeadWorkers()
        assert [dead.take_back() for _ in range(4)] == [0, 0, 0, 0]
        assert Worker.objects.count() == 1
        tree.kill()
        # No session has its number any more: every role sees that.
        eventually(lambda: dead.take_back() == 1, "the job of the killed worker is rescued")
    assert history(job) == [(1, "lost", "worker_death")]


@pytest.mark.statements
def test_a_session_with_a_used_number_is_seen_with_the_right_to_see_it(
    roles: Blocks, as_role: AsRole
) -> None:
    second_worker_role(roles)
    job = factories.active()
    keeper = connection.copy("keeper")
    try:
        session = database.dialect().session(keeper)
        assert session is not None
        # The session of another role lives, and began at another time than the worker's.
        before = factories.read(job.id).created_at - timedelta(days=1)
        factories.WorkerFactory(session=(session[0], before))
        with as_role("site_web"):
            dead = DeadWorkers()
            assert [dead.take_back(), dead.take_back()] == [0, 0]
        execute(roles["Workers"][1].replace("site_worker", "site_web"))
        with as_role("site_web"):
            dead = DeadWorkers()
            assert [dead.take_back(), dead.take_back()] == [0, 1]
    finally:
        keeper.close()


@pytest.mark.statements
def test_a_role_that_was_assumed_does_not_see_its_own_session(
    roles: Blocks, as_role: AsRole
) -> None:
    # DATABASES["default"]["OPTIONS"] = {"assume_role": ...}
    execute(named("GRANT site_worker TO site_relay"))
    factories.active()
    factories.WorkerFactory()
    with as_role("site_relay", assumed="site_worker"):
        session = beat.attach_session(factories.WORKER)
        assert session is not None, "it may listen"
        dead = DeadWorkers()
        assert [dead.take_back() for _ in range(3)] == [0, 0, 0]
    assert Worker.objects.get().session_started_at is None


def enqueue_and_control() -> None:
    """Do what a site does in Python."""
    in_memory_state.reset()  # As a new process.
    bounds = {"a": {"backpressure": {"max_depth": 50}}, "b": {"backpressure": {"max_depth": 2}}}
    rule = ojs.UniquePolicy(on_conflict="replace")
    dead = factories.in_state("discarded", queue="c")
    running = factories.active(queue="d")
    Job.objects.filter(pk=running.id).update(marks=MARK)
    with override_settings(OJS={"QUEUES": bounds, "KEEP_EVENTS": ["*"]}):
        one = ojs.enqueue("a.job", [1], queue="a")
        assert one is not None
        ojs.enqueue_batch([ojs.request("a.job", [n], queue="a") for n in range(45)])
        for _ in range(2):
            ojs.enqueue("a.job", [1], queue="a", unique=rule)
        waiting = ojs.enqueue("a.job", [2], pending=True)
        assert waiting is not None
        ojs.activate(waiting.id)
        ojs.enqueue_batch([ojs.request("b.job", [n], queue="b") for n in range(2)])
        with pytest.raises(QueueFull):
            ojs.enqueue("b.job", [3], queue="b")
        ojs.cancel(one.id)
        ojs.cancel(running.id)
        limited = ojs.enqueue("a.job", [1], rate_limit={"key": "k", "concurrency": 1})
        assert limited is not None
        ojs.cancel(limited.id)
        ojs.retry(dead.pk)
        assert ojs.get_job(dead.pk).envelope()["errors"]
        assert ojs.get_job(one.id).state == "cancelled"
        factories.put(factories.EnvelopeFactory())
        steps = [ojs.request("a.job", [n], queue="d") for n in range(2)]
        ojs.cancel_workflow(ojs.chain(*steps).enqueue().id)
        signal_of_steps("packed", "order-7")
        rollups.flush()
        pressure_monitor.watch.check()
    with override_settings(OJS={"QUEUES": {"b": bounds["b"]}}):
        ojs.enqueue("a.job", [1], queue="a")  # Its bound is gone from the settings.


def test_the_site_enqueues_and_controls_jobs_with_its_rights(
    roles: Blocks, as_role: AsRole
) -> None:
    with as_role("site_web"), nothing_denied():
        enqueue_and_control()
    assert not counts.differences()
    assert Rollup.objects.exists()


def table_rights(statements: str) -> Iterator[str]:
    """Yield each right on a table that the statements grant, as "SELECT ON ojs_job"."""
    for found in re.finditer(r"GRANT ([A-Z, ]+) ON (ojs_[a-z_, \n]+?) TO", statements):
        for right, table in product(found[1].split(", "), re.split(r",\s*", found[2])):
            yield f"{right} ON {table}"


@pytest.mark.storm
def test_the_site_has_no_right_that_it_does_not_need(roles: Blocks, as_role: AsRole) -> None:
    rights, role = list(table_rights(roles["The site"][0])), named("site_web")
    assert len(rights) > 15
    needless = []
    for right in rights:
        execute(f"REVOKE {right} FROM {role}")
        try:
            with as_role("site_web"), nothing_denied():
                enqueue_and_control()
        except (AssertionError, DatabaseError, LookupError):
            pass  # An error that was caught leaves out the entries of a job's history.
        else:
            needless.append(right)
        finally:
            execute(f"GRANT {right} TO {role}")
            teardown.empty("default")
    assert not needless


def test_each_route_and_page_works_with_the_rights_of_http_and_the_admin(
    roles: Blocks, as_role: AsRole, settings: Any
) -> None:
    settings.OJS = {
        "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"],
        "KEEP_EVENTS": ["*"],
    }
    execute(roles["The HTTP API and the admin"][0])
    key = make_key("admin")
    for line in TABLE:
        Job.objects.all().delete()
        Queue.objects.all().delete()
        in_memory_state.reset()
        job = factories.in_state("discarded", queue="other", retry=factories.hourly(1))
        claimed = factories.active("w-classified", queue="mine")
        factories.WorkerFactory(id="w-classified")
        with as_role("site_web"), nothing_denied():
            for subject in (str(job.pk), str(claimed.id)):
                answer = ask(Api(key, raising=False), line, subject)
                assert answer.status < 500, (line, answer.body)
    _pages_work(as_role, settings)


def _pages_work(as_role: AsRole, settings: Any) -> None:
    settings.OJS = {}
    client: Client = root()
    for table in ("auth_user", "django_session"):
        execute(named(f"GRANT SELECT, UPDATE ON {table} TO site_web"))
    execute(named("GRANT SELECT ON django_content_type TO site_web"))
    execute(named("GRANT SELECT ON django_admin_log TO site_web"))
    make_key("producer")
    key = ApiKey.primary.latest("pk")
    entry = OutboxEntryFactory(destination="remote", queue="other")
    job = factories.in_state("discarded", queue="other")
    pages = (
        "overview",
        "queue",
        "worker",
        "event",
        "job",
        "deadletterjob",
        "apikey",
        "auditentry",
        "bulkoperation",
    )
    changes: tuple[tuple[str, dict[str, str]], ...] = (
        ("django_ojs/job/enqueue/", {"type": "test.job", "queue": "other"}),
        ("ojs_limits/limitkey/add/", {"key": "acme", "concurrency": "2"}),
        ("django_ojs/bulkoperation/create/retry/", {"q": "queue:other tag:vip"}),
        (f"django_ojs/apikey/{key.pk}/delete/", {"post": "yes"}),
        (f"ojs_outbox/outboxentry/{entry.pk}/delete/", {"post": "yes"}),
    )
    with as_role("site_web"), nothing_denied():
        of_extensions = ("ojs_limits/limitkey", "ojs_outbox/outboxentry")
        for page in (*(f"django_ojs/{each}" for each in pages), *of_extensions):
            assert client.get(f"/admin/{page}/").status_code == 200, page
        for change, given in changes:
            assert client.post(f"/admin/{change}", given).status_code == 302, change
        operation = BulkOperation.primary.latest("pk").pk
        stop = "/admin/django_ojs/bulkoperation/action/stop/"
        assert client.post(stop, {"key": operation}).status_code == 302
        others = (
            *("job/type/?type=test.job", "job/suggestions/", "job/?q=args.user:1"),
            f"bulkoperation/{operation}/change/",
        )
        for address in (f"job/{job.pk}/change/", "queue/other/change/", *others):
            assert client.get(f"/admin/django_ojs/{address}", follow=True).status_code == 200


@pytest.mark.slow
def test_a_worker_runs_jobs_and_does_all_maintenance_with_its_rights(
    roles: Blocks, start: Start
) -> None:
    grant_handlers_rights()
    old = timedelta(days=400)
    finished = [factories.in_state(state) for state in ("completed", "cancelled", "discarded")]
    Job.objects.update(finished_at=Now() - old)
    queues.configure("other", {"backpressure": {"max_depth": 5}})
    rollups.flush()
    Rollup.objects.update(minute=Now() - old)
    factories.put(factories.EnvelopeFactory(queue="other", type="worker.note"))
    due = handlers.note.options(scheduled_at=timedelta(seconds=1)).enqueue()
    done = stored(handlers.note.enqueue())
    failed = stored(handlers.transfer.enqueue("a", ending="raise"))
    lapsed = factories.active("gone", queue="elsewhere")
    factories.age(lapsed.id, timedelta(hours=2))
    register("nightly", template={"type": "worker.note"})
    make_due("nightly")
    CronRunFactory(triggered_at=Now() - old)
    # The jobs of a retry are stored, and those of an older one are deleted.
    retry = BulkOperationFactory(filter={"queue": "elsewhere", "states": ["discarded"]})
    again = factories.in_state("discarded", queue="elsewhere")
    factories.age(again.pk, timedelta(hours=2))
    over = BulkOperationFactory(state="done", finished_at=Now() - timedelta(days=8))
    BulkOperationJob.objects.create(operation=over, job_id=ids.uuid7())
    tree = start(
        "--queues", "default,other", ojs={"KEEP_EVENTS": ["*"]}, **variables("site_worker")
    )
    for job in (done, failed, stored(due)):
        becomes(job, "completed")
    eventually(
        lambda: not Job.objects.filter(pk__in=[job.pk for job in finished]).exists(), "pruned"
    )
    eventually(lambda: factories.read(lapsed.id).state == "available", "the claim lapsed")
    eventually(lambda: retry.jobs.count() == 1, "the retried job is followed")
    eventually(lambda: not over.jobs.exists(), "the jobs of an old retry are forgotten")
    eventually(lambda: cron.get("nightly").run_count == 1, "the cron job runs")
    eventually(lambda: not cron.runs("gone").exists(), "the run without a job is pruned")
    eventually(lambda: OutboxEntry.objects.get().state == "sent", "it leaves the outbox")
    old_rollups = Rollup.objects.filter(minute__range=(Now() - 2 * old, Now() - old / 2))
    eventually(lambda: not old_rollups.exists(), "old figures are added to the all-time sums")
    tree.signal(signal.SIGTERM)
    assert tree.ends() == 0
    for word in ("denied", "ProgrammingError", "failed; it will be tried", "does not respond"):
        assert word not in tree.log
    assert not counts.differences()
    assert not Attempt.objects.filter(outcome="lost").exists()


def test_operators_use_the_shell_with_the_rights_of_workers_and_of_the_audit_trail(
    roles: Blocks, as_role: AsRole
) -> None:
    execute(roles["Workers"][-1])
    discarded = factories.in_state("discarded")
    waiting = [factories.push(queue="email") for _ in range(2)]
    with as_role("site_worker"), nothing_denied():
        call_command("ojs", "pause", "email")
        call_command("ojs", "resume", "email")
        call_command("ojs", "retry", str(discarded.pk))
        call_command("ojs", "cancel", *(str(job.pk) for job in waiting), "--yes")
    assert AuditEntry.primary.count() == 4


def test_a_relay_sends_the_outbox_with_its_rights(
    roles: Blocks, server: Server, as_role: AsRole
) -> None:
    with override_settings(OJS={"OUTBOX": destination(server)}):
        ojs.enqueue_batch([ojs.request("a.job", [n], queue="remote-a") for n in range(3)])
        OutboxEntry.objects.filter(pk=OutboxEntry.objects.order_by("pk")[2].pk).update(
            state="sent", sent_at=Now() - timedelta(days=400), position=0
        )
        with as_role("site_relay"), nothing_denied():
            call_command("ojs_relay", destination=["remote"], once=True)
    assert len(server.jobs) == 2
    assert OutboxEntry.objects.count() == 2, "and the old one was pruned"
