"""`doctor`: each fault is made for real, found, removed as the finding says, and found no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from django.utils import timezone

from django_ojs.command_line.checks import remains as remains_check
from django_ojs.command_line.checks import server
from django_ojs.command_line.doctor import CHECKS
from django_ojs.extension import Extension
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.limits.extension import KeyLimitsExtension
from django_ojs.hooks import registry
from django_ojs.models import Attempt, Job, Queue, Worker
from django_ojs.operations import fetch, promotion, queues
from django_ojs.operations.access import operator
from django_ojs.operations.maintenance import job_pruning, lease, mode
from django_ojs.operations.workers import rescue
from django_ojs.storage import database, queue_configs, remains, schema
from django_ojs.storage.dialects.server import HorizonHolder
from django_ojs.storage.figures import counts
from tests.cases import together
from tests.command_line.run import Run, Terminal, ojs
from tests.databases import ALIASES
from tests.factories import (
    HOUR,
    MINUTE,
    WorkerFactory,
    active,
    age,
    connected_to,
    in_state,
    push,
    push_many,
    silence,
)
from tests.faults.bouncer import PROGRAM, bouncer
from tests.operations.cron.scenes import make_due, register
from tests.worker.waiting import eventually

IS_MARIADB = connection.vendor == "mysql"
#: There a transaction ends with a statement that changes the schema.
pytestmark = pytest.mark.django_db(transaction=IS_MARIADB)

DAY = timedelta(days=1)


def execute(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def doctor(only: str, *more: str) -> Run:
    return ojs("doctor", "--only", only, *more)


def finding(only: str) -> dict[str, str]:
    """Return the only finding of a check, which both forms of the output have."""
    run = doctor(only, "--json")
    (check,) = run.json["checks"]
    (found,) = check["findings"]
    is_advice = found["severity"] == "advice"
    assert (run.code, run.json["ok"], check["check"]) == (not is_advice, is_advice, only)
    shown = doctor(only, "--strict")
    assert shown.code == 1
    word = "advice" if is_advice else "PROBLEM"
    assert re.search(rf"{word:<9} {re.escape(found['text'])}.*\({only}\)\n", shown.out)
    assert f"Why: {found['why']}" in shown.out
    assert f"Do:  {found['cure']}\n" in shown.out
    assert isinstance(found, dict)
    return found


def is_well(only: str) -> bool:
    run = doctor(only, "--json", "--strict")
    assert [check["check"] for check in run.json["checks"]] == [only]
    return run.code == 0 and run.json["ok"]


@pytest.mark.both
def test_a_site_in_order_has_no_finding() -> None:
    WorkerFactory()
    queues.configure_default({"backpressure": {"max_depth": 100_000}})
    # Other tests use this server at the same time.
    with override_settings(OJS={}):
        run = ojs("doctor", "--skip", "bloat,horizon")
    assert run.code == 0, run.out
    # The others are about a server, which SQLite is not.
    number = len(CHECKS) - (2 if connection.vendor == "postgresql" else 4)
    assert run.out.count("ok  ") == number
    assert run.out.endswith(f"Problems: 0, advice: 0, in {number} checks.\n")


def test_on_a_terminal_of_80_columns_no_line_is_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    push(queue="a-queue-that-no-worker-fetches-from")
    only = ("doctor", "--only", "bounds,overview", "--no-color")
    wide = ojs(*only).out
    narrow = ojs(*only, out=Terminal()).out
    assert max(map(len, wide.splitlines())) > 80
    assert max(map(len, narrow.splitlines())) <= 80
    # No word is cut or lost; the ages go on.
    words = [[each for each in text.split() if each.isalpha()] for text in (narrow, wide)]
    assert words[0] == words[1]
    assert "a-queue-that-no-worker-fetches-from" in narrow


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_check_that_the_role_may_not_run_is_a_finding_and_the_others_run() -> None:
    execute("SET ROLE pg_monitor")
    try:
        run = doctor("counters,clock", "--json")
    finally:
        execute("RESET ROLE")
    denied, clock = run.json["checks"]
    assert run.code == 1
    assert denied["findings"][0]["text"] == (
        "The check could not run: permission denied for table ojs_count."
    )
    assert clock["findings"] == []


def test_a_check_that_does_not_exist_ends_with_2() -> None:
    assert "must be some of migrations, settings, triggers" in ojs("doctor", "--only", "x").err


@pytest.mark.both
def test_a_missing_migration_is_the_only_finding() -> None:
    MigrationRecorder(connection).record_unapplied("django_ojs", "0001_initial")
    run = ojs("doctor", "--json")
    (check,) = run.json["checks"]
    assert check["findings"][0]["text"] == "The migration django_ojs.0001_initial is not applied."
    assert finding("migrations")["cure"] == "Run `manage.py migrate`."
    # The others would say what follows from it.
    for arguments in (["--only", "triggers"], ["--skip", "migrations"]):
        assert [each["check"] for each in ojs("doctor", *arguments, "--json").json["checks"]] == [
            "migrations"
        ]
    MigrationRecorder(connection).record_applied("django_ojs", "0001_initial")
    assert is_well("migrations")


def test_a_system_check_is_a_finding_unless_it_is_silenced() -> None:
    wrong = {"OUTBOX": {"far": {"url": "http://127.0.0.1:9", "queues": ["far"]}}}
    open_api = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"]}
    with override_settings(OJS=open_api | wrong):
        assert "(django_ojs.W002)" in finding("settings")["text"]
        known = [f"django_ojs.{name}" for name in ("W002", "W006")]
        with override_settings(SILENCED_SYSTEM_CHECKS=known):
            assert is_well("settings")


def break_trigger(name: str) -> str:
    if connection.vendor == "postgresql":
        execute(f"ALTER TABLE ojs_job DISABLE TRIGGER {name}")
        return "disabled"
    execute(f"DROP TRIGGER {name}")
    return "missing"


@pytest.mark.both
def test_a_trigger_that_does_not_fire_is_found_and_repaired() -> None:
    assert is_well("triggers")
    state = break_trigger("ojs_job_count_insert")
    push(queue="mail")
    found = finding("triggers")
    assert found["text"] == f"The trigger ojs_job_count_insert of ojs_job is {state}."
    assert "manage.py ojs doctor --repair" in found["cure"]
    run = doctor("triggers", "--repair")
    assert run.code == 0
    assert f"repaired  {found['text']}" in run.out
    assert is_well("triggers")
    assert counts.by_queue(["mail"]) == {"mail": {"available": 1}}
    push(queue="mail")
    assert is_well("counters")


@pytest.mark.both
@pytest.mark.postgresql
def test_a_missing_trigger_is_created_again() -> None:
    execute("DROP TRIGGER ojs_count_leave_out ON ojs_count_change")
    assert finding("triggers")["text"] == (
        "The trigger ojs_count_leave_out of ojs_count_change is missing."
    )
    assert doctor("triggers", "--repair", "--json").json == {
        "ok": True,
        "checks": [{"check": "triggers", "repaired": True, "findings": []}],
    }
    assert is_well("triggers")


@pytest.mark.postgresql
def test_a_missing_procedure_is_created_again() -> None:
    execute("DROP ROUTINE ojs_push")
    assert finding("triggers")["text"] == "The procedure ojs_push is missing."
    assert doctor("triggers", "--repair").code == 0
    push(queue="mail")


@pytest.mark.both
def test_wrong_counters_are_found_and_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    push(queue="mail")
    counts.fold()
    execute("UPDATE ojs_count SET n = 7 WHERE queue = 'mail'")
    found = finding("counters")
    assert found["text"] == "Queue mail, available: counted 7, there are 1."
    # A repair that cannot be recorded in the audit trail is not done.
    with monkeypatch.context() as broken:
        broken.setattr(operator, "acted", Mock(side_effect=OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            doctor("counters", "--repair")
    assert finding("counters") == found
    assert doctor("counters", "--repair").code == 0
    assert is_well("counters")
    assert counts.by_queue(["mail"]) == {"mail": {"available": 1}}


@pytest.mark.both
def test_a_missing_index_is_created_by_the_statement_of_its_finding() -> None:
    execute("DROP INDEX ojs_job_due" + (" ON ojs_job" if IS_MARIADB else ""))
    found = finding("indexes")
    assert found["text"] == "The index ojs_job_due of ojs_job is missing."
    assert ("CONCURRENTLY" in found["cure"]) == (connection.vendor == "postgresql")
    assert found["cure"].startswith("ALTER TABLE ojs_job ADD INDEX ") == IS_MARIADB
    # A transaction cannot create it concurrently.
    execute(found["cure"].replace("CONCURRENTLY ", ""))
    assert is_well("indexes")


@pytest.mark.postgresql
def test_an_invalid_index_is_built_by_the_statement_of_its_finding() -> None:
    execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ojs_job_expiry'::regclass")
    found = finding("indexes")
    assert found["text"].startswith("The index ojs_job_expiry is not valid")
    execute(found["cure"].replace("CONCURRENTLY ", ""))
    assert is_well("indexes")


@pytest.mark.both
@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("table", "name"),
    [("ojs_job", "ojs_job_is_valid"), ("ojs_workflow", "ojs_workflow_finished_has_time")],
)
def test_a_missing_constraint_is_found(table: str, name: str) -> None:
    execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    assert finding("indexes")["text"] == f"The constraint {name} of {table} is missing."


@pytest.mark.both
@pytest.mark.postgresql
def test_the_constraints_of_the_model_are_as_good_as_the_one_in_their_place() -> None:
    execute("ALTER TABLE ojs_job DROP CONSTRAINT ojs_job_is_valid")
    with connection.schema_editor() as editor:
        for constraint in Job._meta.constraints:
            editor.add_constraint(Job, constraint)
    assert is_well("indexes")
    execute("ALTER TABLE ojs_job DROP CONSTRAINT ojs_job_priority")
    assert finding("indexes")["text"] == "The constraint ojs_job_is_valid of ojs_job is missing."


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_dead_rows_are_found_until_vacuum_removed_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DEAD_ROWS", 1_000)

    def about_leases() -> list[dict[str, str]]:
        (check,) = doctor("bloat", "--json").json["checks"]
        return [each for each in check["findings"] if "ojs_lease" in each["text"]]

    execute("ALTER TABLE ojs_lease SET (autovacuum_enabled = false)")
    try:
        execute(
            "INSERT INTO ojs_lease SELECT 'lease ' || n, 'x', now() FROM generate_series(1, 2000) n"
        )
        execute("DELETE FROM ojs_lease")
        execute("SELECT pg_stat_force_next_flush()")
        off, dead = about_leases()
        assert off["text"] == "Autovacuum is off for ojs_lease."
        assert re.fullmatch(r"ojs_lease has 2,\d{3} dead rows and \d+ live ones\.", dead["text"])
        execute(dead["cure"].partition(";")[0])
        assert about_leases() == [off]
        execute(off["cure"].partition(";")[0])
        assert about_leases() == []
    finally:
        execute("ALTER TABLE ojs_lease RESET (autovacuum_enabled)")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_empty_space_is_found_until_the_table_is_written_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "EMPTY_SIZE", 1024 * 1024)

    def about_leases() -> list[dict[str, str]]:
        (check,) = doctor("bloat", "--json").json["checks"]
        return [each for each in check["findings"] if "ojs_lease has" in each["text"]]

    execute(
        "INSERT INTO ojs_lease SELECT 'lease ' || n, repeat('x', 250), now() "
        "FROM generate_series(1, 6000) n"
    )
    # The last page stays in use, so that VACUUM cannot cut the file.
    execute("DELETE FROM ojs_lease WHERE name <> 'lease 6000'")
    # What this session has not reported yet would be added to what VACUUM reports.
    execute("SELECT pg_stat_force_next_flush()")
    execute("VACUUM (ANALYZE) ojs_lease")
    (found,) = about_leases()
    assert re.fullmatch(r"ojs_lease has [12] MiB, and its rows need about 0 MiB\.", found["text"])
    execute(found["cure"].partition(";")[0])
    assert about_leases() == []


@pytest.fixture
def second() -> Iterator[BaseDatabaseWrapper]:
    """Another session."""
    other = connections.create_connection("default")
    try:
        yield other
    finally:
        other.close()


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)  # A transaction reads the sessions once.
def test_an_old_transaction_is_found_and_ended_by_the_statement_of_its_finding(
    second: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "OLD", timedelta(0))
    second.set_autocommit(False)
    with second.cursor() as cursor:
        cursor.execute("SET application_name = 'the old one'")
        cursor.execute("SELECT pg_current_xact_id(), pg_backend_pid()")
        _, pid = cursor.fetchone()
    found = _horizon_of(f"session {pid} ")
    assert "the old one" in found["text"]
    assert "idle in transaction" in found["text"]
    execute(found["cure"].rpartition(": ")[2])
    eventually(lambda: f"session {pid} " not in doctor("horizon").out, "the session has ended")


def _horizon_of(name: str) -> dict[str, str]:
    run = doctor("horizon", "--json")
    assert run.code == 1
    (check,) = run.json["checks"]
    (found,) = [each for each in check["findings"] if name in each["text"]]
    assert isinstance(found, dict)
    return found


@pytest.mark.postgresql
def test_a_replication_slot_without_a_reader_is_found() -> None:
    execute("SELECT pg_create_physical_replication_slot('ojs_doctor', true)")
    try:
        found = _horizon_of("ojs_doctor")
        assert re.search(
            r"slot ojs_doctor \(physical\) is not used; it holds back .* MiB", found["text"]
        )
        execute(found["cure"].rpartition(": ")[2])
        assert "ojs_doctor" not in doctor("horizon").out
    finally:
        execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = 'ojs_doctor'"
        )


@pytest.mark.postgresql
def test_prepared_transactions_and_replicas_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # The server of the tests permits no prepared transaction, and has no replica.
    holders = [
        HorizonHolder("prepared", "order-7", "shop", HOUR, 5, True, None),
        HorizonHolder("prepared", "new", "shop", MINUTE, 5, True, None),
        HorizonHolder("replica", "standby", "10.0.0.2", None, 2_000_000, True, None),
        HorizonHolder("replica", "close", "10.0.0.3", None, 5, True, None),
        HorizonHolder("slot", "used", "logical", None, 5, True, 0),
    ]
    monkeypatch.setattr(type(database.dialect()), "read", lambda *_: holders)
    (check,) = doctor("horizon", "--json").json["checks"]
    prepared, replica = check["findings"]
    assert prepared["text"] == "The prepared transaction 'order-7' of shop has been open for 1h."
    assert "ROLLBACK PREPARED 'order-7';" in prepared["cure"]
    assert "standby (10.0.0.2) holds the horizon 2,000,000" in replica["text"]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True, databases=ALIASES)
@pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not on PATH (package: pgbouncer)")
def test_a_pooler_is_found_until_the_settings_fit_it() -> None:
    assert is_well("pooler")
    with bouncer(connection.settings_dict, 2) as clients, connected_to(clients):
        (check,) = doctor("pooler", "--json").json["checks"]
        (cursors,) = [each["text"] for each in check["findings"]]
        assert "through a pooler (such as PgBouncer in transaction mode)" in cursors
        assert "server-side cursors are not disabled" in cursors
        with connected_to({"DISABLE_SERVER_SIDE_CURSORS": True}):
            assert is_well("pooler")


@pytest.mark.postgresql
@pytest.mark.parametrize(("by", "words"), [(HOUR, "behind"), (-HOUR, "ahead of")])
def test_clocks_that_differ_are_found(
    by: timedelta, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_well("clock")
    true = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: true() + by)
    (check,) = doctor("clock", "--json").json["checks"]
    (found,) = check["findings"]
    assert re.search(rf"clock is (1h|59min 59s) {words} the clock of", found["text"])


def test_a_queue_without_a_bound_is_found_until_it_has_one() -> None:
    push(queue="mail")
    found = finding("bounds")
    assert found["text"] == "The queue mail has no limit."
    with override_settings(SILENCED_SYSTEM_CHECKS=["django_ojs.W003"]):
        assert is_well("bounds")
    queues.configure("mail", {"backpressure": {"max_depth": 0}})
    assert is_well("bounds")


@pytest.mark.both
def test_a_queue_that_no_worker_fetches_from_is_found() -> None:
    push_many(2, queue="mail")
    WorkerFactory(queues=("reports",))
    found = finding("overview")
    assert found["text"] == "No worker takes jobs from mail: 2 jobs are ready."
    assert found["command"] == "ojs_worker --queues mail"
    WorkerFactory(id="second", queues=("mail",))
    assert is_well("overview")


def test_full_paused_and_stopped_queues_are_found() -> None:
    push_many(4, queue="mail")
    WorkerFactory(queues=("mail",))
    assert is_well("overview")
    queues.configure("mail", {"backpressure": {"max_depth": 4}})
    assert "Queue mail is full: 4 of 4." in finding("overview")["text"]
    queues.configure("mail", {"backpressure": {"max_depth": 5}})
    near = finding("overview")
    assert near["text"] == "Queue mail is nearly full: 4 of 5."
    assert near["why"] == "When it is full: Enqueues are rejected."
    queues.configure("mail", {"backpressure": {"max_depth": 0}})
    queues.pause("mail")
    found = doctor("overview", "--json").json["checks"][0]["findings"]
    assert found[0]["text"] == "Queue mail is paused: 4 jobs wait."
    assert found[0]["since"]
    ojs("resume", "mail")
    queues.drain("mail")
    (draining,) = doctor("overview", "--json").json["checks"][0]["findings"]
    assert draining["text"] == "Queue mail is draining: 4 jobs wait."
    assert draining["why"] == "Enqueues are rejected."
    ojs("resume", "mail")
    assert is_well("overview")
    mode.enable(reason="the new disk")
    found = doctor("overview", "--json").json["checks"][0]["findings"]
    assert found[0]["text"] == "Maintenance mode is on: the new disk"


@pytest.mark.both
def test_stale_workers_and_new_dead_letters_are_found() -> None:
    WorkerFactory(id="there", queues=("mail",))
    in_state("discarded", queue="mail")
    assert finding("overview")["text"] == "1 new dead letter in the last hour."
    ojs("retry", "is:dead")
    WorkerFactory(id="gone", queues=("mail",))
    silence("gone", HOUR)
    found = doctor("overview", "--json").json["checks"][0]["findings"]
    assert "Workers that have sent no heartbeat in time: 1." in [each["text"] for each in found]


def test_a_type_without_a_handler_is_found_until_its_jobs_are_gone() -> None:
    push_many(2, queue="mail", type="no.handler")
    found = finding("types")
    assert found["text"] == (
        "The type no.handler has no handler here; its jobs that wait in the queue mail: 2."
    )
    # A worker in another language may know it.
    WorkerFactory(id="node", queues=("mail",))
    Worker.objects.filter(pk="node").update(owner="api key x")
    assert is_well("types")
    Worker.objects.filter(pk="node").delete()
    cancel = re.search(r"`manage\.py ojs (cancel .*)`", found["cure"])
    assert cancel is not None
    assert ojs(*cancel[1].split(), "--yes").code == 0
    assert is_well("types")


@pytest.mark.both
def test_jobs_past_their_retention_are_found_until_they_are_pruned() -> None:
    job = in_state("completed", queue="mail")
    assert is_well("retention")
    age(job.pk, 8 * DAY)
    found = finding("retention")
    assert found["text"] == "Completed jobs past their retention: 1."
    assert job_pruning.prune() == 1
    assert is_well("retention")


def test_jobs_that_are_kept_forever_are_found() -> None:
    with override_settings(OJS={"KEEP_COMPLETED": "P4000D"}):
        found = finding("retention")
    assert found["text"] == "The completed jobs are kept for 4,000 days."
    assert "OJS['KEEP_COMPLETED']" in found["cure"]


def test_jobs_without_maintenance_are_found() -> None:
    push(queue="mail")
    assert finding("overview")["text"] == (
        "No worker is running: 1 job of 1 queue is ready or due."
    )
    # A client over HTTP does no maintenance.
    WorkerFactory(id="second", queues=("mail",))
    Worker.primary.update(owner="api key x")
    assert finding("overview")["text"] == "No worker does the maintenance."
    assert lease.take("worker-a")
    assert is_well("overview")
    # A worker that is alive takes the lease soon, when another one has given it back.
    lease.give("worker-a")
    Worker.primary.update(owner="")
    assert is_well("overview")
    job = in_state("scheduled", queue="mail")
    age(job.pk, 2 * HOUR)
    assert finding("overview")["text"] == (
        "Jobs that became due over a minute ago are still waiting."
    )
    promotion.promote()
    assert is_well("overview")


def test_cron_jobs_that_nothing_fires_are_found() -> None:
    WorkerFactory()
    register("nightly")
    make_due("nightly")
    assert is_well("overview")
    make_due("nightly", ago=2 * MINUTE)
    assert finding("overview")["text"] == "1 schedule is late: nightly."
    cron.set_enabled("nightly", False)
    assert is_well("overview")


@pytest.mark.both
def test_a_worker_that_died_lately_is_found() -> None:
    held = active(queue="mail")
    WorkerFactory()
    WorkerFactory(id="other", queues=("mail",))
    assert is_well("overview")
    rescue.rescue(["worker-a"])
    found = finding("overview")
    assert found["text"] == (
        f"1 worker died in the last hour, with 1 job: {held.id} of the type {held.type}."
    )
    # One that kills each of its workers ends as a dead letter.
    assert found["why"].startswith("Their jobs run again, unless their attempts are spent;")
    Attempt.objects.update(finished_at=timezone.now() - 2 * HOUR)
    assert is_well("overview")


@pytest.fixture
def gone() -> Iterator[Extension]:
    """Let the extension of workflows be no longer installed."""
    (extension,) = (each for each in registry.with_schema() if each.name == "workflows")
    registry.remove(extension)
    yield extension
    registry.register(extension)


def test_what_an_extension_has_left_is_found_and_removed(gone: Extension) -> None:
    held = push(queue="mail")
    Queue.objects.update_or_create(name="mail", defaults={"rules": 1 << 40})
    for state in ("available", "scheduled", "completed"):
        marked = in_state(state)
        Job.objects.filter(pk=marked.pk).update(marks=1 << 16 | 1 << 41)
    checkpoint = 1 << 18
    Job.objects.filter(pk=held.pk).update(marks=checkpoint)
    objects = remains.objects()
    assert {each.name for each in objects if each.kind == "TRIGGER"} == {
        "ojs_job_workflow_update",
        "ojs_job_workflow_delete",
    }
    run = doctor("remains", "--json")
    findings = run.json["checks"][0]["findings"]
    assert [each["text"] for each in findings] == [
        *(f"The {each} belongs to an extension that is not installed." for each in objects),
        "Queues have a rule of an extension that is not installed, or that has no rule "
        "(number 40): mail.",
        "Unfinished jobs have the mark of an extension that is not installed (workflows): 2.",
        "Unfinished jobs have the mark of an extension that is not installed (number 41): 2.",
    ]
    assert fetch.fetch(["mail"]) == []
    # The others are repaired without it.
    assert ojs("doctor", "--skip", "counters,types", "--repair").code == 1
    assert remains.objects() == objects
    command = ["doctor", "--only", "remains", "--repair"]
    assert all(f"`manage.py ojs {' '.join(command)}`" in each["cure"] for each in findings)
    assert ojs(*command).code == 0
    assert is_well("remains")
    assert not remains.objects()
    queue_configs.refresh()  # As each process does after a second.
    assert [job.id for job in fetch.fetch(["mail"])] == [held.pk]
    assert sorted(Job.objects.values_list("marks", flat=True)) == [0, 0, 0, checkpoint]
    schema.create(connection)


@pytest.mark.both
@together("bits", [1 << 1, 1 << 16, 1 << 62, -1 << 63, (1 << 63) - 1, -1], undo=True)
def test_a_rule_that_no_installed_extension_applies_is_found_and_removed(bits: int) -> None:
    job = push(queue="mail")
    Queue.objects.update_or_create(name="mail", defaults={"rules": bits})
    queue_configs.refresh()
    assert fetch.fetch(["mail"]) == []
    assert not is_well("remains")
    assert ojs("doctor", "--only", "remains", "--repair").code == 0
    queue_configs.refresh()
    assert [each.id for each in fetch.fetch(["mail"])] == [job.pk]


@together("hold", [1, 12, 16, 41, 63, 65, 76, 105, 127, 128, 142, 200], undo=True)
def test_a_job_that_is_held_for_nobody_who_opens_it_is_found_and_runs(hold: int) -> None:
    job = push(queue="mail")
    Job.objects.update(hold=hold)
    assert fetch.fetch(["mail"]) == []
    assert not is_well("remains")
    assert ojs("doctor", "--only", "remains", "--repair").code == 0
    assert is_well("remains")
    queue_configs.refresh()
    assert [each.id for each in fetch.fetch(["mail"])] == [job.pk]


def test_a_claim_during_the_repair_does_not_bring_the_rule_back() -> None:
    job = push(queue="mail")
    Job.objects.update(hold=41)
    assert fetch.fetch(["mail"]) == []
    claimed = []
    for repair in remains_check.CHECK.repair:
        repair()
        queue_configs.refresh()
        claimed += fetch.fetch(["mail"])
    assert [each.id for each in claimed] == [job.pk]


@pytest.mark.both
def test_jobs_that_an_extension_keeps_which_was_taken_out_run_after_the_repair() -> None:
    limits = KeyLimitsExtension()
    closed = {"key": "acme", "concurrency": 0}
    held, opened, later = (
        push(queue="mail", rate_limit=closed),
        push(queue="post", rate_limit=closed),
        push(queue="post", rate_limit=closed, scheduled_at=timezone.now() + DAY),
    )
    assert fetch.fetch(["mail"]) == []
    registry.remove(limits)
    try:
        assert fetch.fetch(["mail", "post"]) == []
        found = [each["text"] for each in doctor("remains", "--json").json["checks"][0]["findings"]]
        assert (
            "Jobs are kept for an extension that is not installed, or that keeps none (limits by "
            "key), in the queues mail, post."
        ) in found
        assert ojs("doctor", "--only", "remains", "--repair").code == 0
        assert is_well("remains")
        queue_configs.refresh()
        assert {job.id for job in fetch.fetch(["mail", "post"], count=9)} == {held.pk, opened.pk}
        assert Job.objects.get(pk=later.pk).hold == 0
    finally:
        registry.register(limits)
        schema.create(connection)
