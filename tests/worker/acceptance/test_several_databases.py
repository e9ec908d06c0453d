"""`ojs_worker` where jobs are in several databases: it works on all of them, or on some."""

from __future__ import annotations

import json
import os
import signal

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

import django_ojs as ojs
from django_ojs.models import CronJob, Job, Worker
from tests.databases import KIND
from tests.factories import connected_to
from tests.faults.cluster import own_cluster
from tests.http.api import Api
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, release, started, stored
from tests.worker.processes import Tree
from tests.worker.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=ALIASES), pytest.mark.slow]

SEVERAL = {
    "DATABASES": ["default", "other"],
    "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"],
}


def quick_job(alias: str) -> Job:
    with transaction.atomic(using=alias):
        return stored(handlers.quick.enqueue(1))


def worker_of(tree: Tree, alias: str) -> Worker:
    """Wait for the worker of a database, and return it."""

    def found() -> list[Worker]:
        assert tree.process.poll() is None, f"the worker ended:\n{tree.log}"
        return list(Worker.objects.using(alias).filter(pid__in=tree.children()))

    eventually(lambda: len(found()) == 1, f"one worker of {alias} is up; it said:\n{tree.log}")
    return found()[0]


def test_one_command_works_on_all_databases_and_an_option_selects_some(start: Start) -> None:
    with override_settings(OJS=SEVERAL):
        jobs = {alias: quick_job(alias) for alias in ALIASES}
        with transaction.atomic(using="other"):
            waiting = stored(handlers.wait.enqueue())
        tree = start(ojs=SEVERAL)
        # Each database has a process of its own, which is registered there.
        pids = {alias: worker_of(tree, alias).pid for alias in ALIASES}
        assert len(set(pids.values())) == 2
        for job in jobs.values():
            becomes(job, "completed")
        # A process that is killed is replaced, and its job runs again, in its database.
        started(waiting)
        os.kill(pids["other"], signal.SIGKILL)
        started(waiting, times=2)
        assert worker_of(tree, "default").pid == pids["default"]
        release(waiting)
        becomes(waiting, "completed")
        tree.signal(signal.SIGTERM)
        assert tree.ends() == 0
        assert not any(Worker.objects.using(alias).exists() for alias in ALIASES)

        jobs = {alias: quick_job(alias) for alias in ALIASES}
        only = start("--database", "other", ojs=SEVERAL)
        becomes(jobs["other"], "completed")
        assert len(only.children()) == 1
        jobs["default"].refresh_from_db()
        assert jobs["default"].state == "available"
        only.kill()
        only.forgotten()

        # The rest, one database after the other, in this very process.
        jobs["other"] = quick_job("other")
        call_command("ojs_worker", once=True, verbosity=0)
        for job in jobs.values():
            job.refresh_from_db()
            assert job.state == "completed"
        with pytest.raises(CommandError, match="'nowhere' holds no jobs"):
            call_command("ojs_worker", database=["nowhere"], once=True)
    with pytest.raises(CommandError, match="'other' holds no jobs"):
        call_command("ojs_worker", database=["other"], once=True)


def the_api_goes_on_for(alias: str) -> None:
    """Work a job over HTTP, while the other database is down."""
    api = Api(raising=False)
    worker = {"worker_id": "worker_http"}
    with transaction.atomic(using=alias):
        key = str(ojs.enqueue("http.job", queue="http").id)
    for number in range(3):  # Whichever database a FETCH begins with.
        found = api.post("workers/fetch", {"queues": ["http"], **worker}).ok()["jobs"]
        assert [job["id"] for job in found] == ([key] if number == 0 else [])
    beat = api.post("workers/heartbeat", {**worker, "active_jobs": [key, str(ojs.new_id())]}).ok()
    # It may be in the one that does not respond.
    assert beat["jobs_lost"] == []
    api.post("workers/ack", {"job_id": key, **worker}).ok()
    assert api.get(f"jobs/{key}").ok()["job"]["state"] == "completed"
    # Sums without a database would be wrong; its own figures are there.
    assert api.get("admin/stats").status == 503
    assert api.get(f"admin/stats?database={alias}").ok()["jobs"]["completed"] >= 1


@pytest.mark.skipif(KIND != "postgresql", reason="a server is stopped")
def test_a_database_that_is_down_stops_nothing_but_its_own_jobs(start: Start) -> None:
    with (
        own_cluster() as cluster,
        connected_to(cluster.settings),
        override_settings(OJS=SEVERAL),
    ):
        call_command("migrate", database="default", verbosity=0)
        first = quick_job("default")
        MigrationRecorder(connections["default"]).record_unapplied("django_ojs", "0001_initial")
        home = {name: str(value) for name, value in cluster.settings.items()}
        home["ENGINE"] = "django.db.backends.postgresql"
        connections["default"].close()
        cluster.stop("immediate")

        # The first database, the home, is down when the worker starts, and comes back.
        tree = start(ojs=SEVERAL, OJS_TEST_MORE_DATABASES=json.dumps({"default": home}))
        becomes(quick_job("other"), "completed")
        tree.says("The database 'default' does not respond")
        cluster.start()
        # It has the tables of another release: its processes wait until it is migrated.
        tree.says("The tables of django_ojs are missing or old in 'default'")
        assert Job.objects.using("default").get().state == "available"
        assert not Worker.objects.using("default").exists()
        call_command("migrate", "django_ojs", fake=True, database="default", verbosity=0)
        becomes(first, "completed")
        # Those of the code are in the first database, which was not there when it started.
        assert CronJob.objects.using("default").exists()
        pid = worker_of(tree, "default").pid

        # It goes down while the worker runs.
        connections["default"].close()
        cluster.stop("immediate")
        another = quick_job("other")
        becomes(another, "completed")
        # Its jobs are found by their ids as before; whether others exist is not known.
        assert ojs.get_job(another.pk).state == "completed"
        for unknown in (first.pk, ojs.new_id()):
            with pytest.raises(OperationalError):
                ojs.get_job(unknown)
        with pytest.raises(OperationalError):
            quick_job("default")
        the_api_goes_on_for("other")
        cluster.start()
        becomes(quick_job("default"), "completed")
        assert worker_of(tree, "default").pid == pid, "no process was replaced"
        # One that takes its place stores no schedules: another release may have changed them.
        CronJob.objects.using("default").all().delete()
        os.kill(pid, signal.SIGKILL)
        becomes(quick_job("default"), "completed")
        assert worker_of(tree, "default").pid != pid
        assert not CronJob.objects.using("default").exists()
        tree.signal(signal.SIGTERM)
        assert tree.ends() == 0
