"""`manage.py ojs_worker`: its arguments, and what it says when it cannot work."""

from __future__ import annotations

import io
import logging
import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import TestCase, override_settings

from django_ojs import handlers
from django_ojs.command_line import database_check
from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.management.commands import ojs_worker
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.supervisor import SIGNALS
from tests import factories
from tests.testapp.jobs import echo

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    """Restore the settings of the connections, which tests change."""
    settings = {alias: dict(connections.settings[alias]) for alias in connections}
    yield
    for alias, values in settings.items():
        connections.settings[alias].update(values)


POOLS = {
    "POOLS": {
        "critical": {"queues": {"pay": 5, "mail": 1}, "exclusive": True},
        "rest": {"queues": ["*"]},
    }
}


class Supervised:
    """Stands in for the supervisor: keeps what the command asked of it."""

    reload = False
    connections: dict[str, dict[str, Any]]

    def __init__(self, config: WorkerConfig, code_changed: Any) -> None:
        Supervised.config, Supervised.code_changed = config, code_changed
        Supervised.connections = {name: dict(connections.settings[name]) for name in connections}

    def run(self) -> bool:
        return self.reload


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> type[Supervised]:
    monkeypatch.setattr(ojs_worker, "Supervisor", Supervised)
    return Supervised


def test_without_arguments_it_works_the_default_queue(supervised: type[Supervised]) -> None:
    call_command("ojs_worker")
    assert supervised.config == WorkerConfig()


def test_the_threads_may_have_an_upper_limit(supervised: type[Supervised]) -> None:
    call_command("ojs_worker", "--threads", "8:32")
    assert (supervised.config.threads, supervised.config.most_threads) == (8, 32)


def test_every_argument_arrives(supervised: type[Supervised]) -> None:
    call_command(
        "ojs_worker",
        *("--queues", "critical, default,critical"),
        *("--processes", "3", "--threads", "7", "--grace", "1.5", "--poll-interval", "0.25"),
        *("--label", "eu", "--label", "blue", "--max-jobs", "100", "--max-rss", "512"),
    )
    assert supervised.config == WorkerConfig(
        queues=("critical", "default"),
        processes=3,
        threads=7,
        grace=timedelta(seconds=1.5),
        poll_interval=timedelta(seconds=0.25),
        labels=("eu", "blue"),
        max_jobs=100,
        max_rss_mb=512,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--queues", ""], "name at least one queue"),
        (["--queues", ","], "name at least one queue"),
        (["--queues", "No Good"], "queue"),
        (["--queues", "ok,-bad"], "queue"),
        (["--queues", "x" * 300], "queue"),
        (["--queues", "mail:0"], "must be an integer from 1 to 1000"),
        (["--queues", "mail:much"], "must be an integer from 1 to 1000"),
        (["--queues", "mail:1:2"], "must be an integer from 1 to 1000"),
        (["--strategy", "fair"], "invalid choice"),
        (["--processes", "0"], "must be a whole number from 1 to 100000"),
        (["--processes", "-1"], "must be a whole number from 1 to 100000"),
        (["--threads", "0"], "must be a whole number from 1 to 100000"),
        (["--threads", "8:4"], "must be a number, or two such as 8:32"),
        (["--threads", "8:"], "must be a whole number from 1 to 100000"),
        (["--threads", "two"], "must be a whole number from 1 to 100000"),
        (["--threads", "1.5"], "must be a whole number from 1 to 100000"),
        (["--max-jobs", "0"], "must be a whole number from 1 to 100000"),
        (["--max-rss", "much"], "must be a whole number from 1 to 100000"),
        (["--grace", "soon"], "must be a number of seconds"),
        (["--grace", "-1"], "must be a number of seconds"),
        (["--grace", "nan"], "must be a number of seconds"),
        (["--grace", "inf"], "must be a number of seconds"),
        (["--poll-interval", "0"], "must be longer than zero"),
        (["--poll-interval", "1e9"], "must be a number of seconds"),
        (["--no-such-thing"], "unrecognized arguments: --no-such-thing"),
    ],
)
def test_a_bad_argument_is_named_with_its_rule(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError) as rejected:
        call_command("ojs_worker", *arguments)
    assert said in str(rejected.value)
    assert arguments[0].lstrip("-") in str(rejected.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--queues", "a:5, b"], (("a", "b"), "weighted", (("a", 5),))),
        (["--queues", "a,b", "--strategy", "round-robin"], (("a", "b"), "round-robin", ())),
        (["--queues", "a,*:2"], (("a", "*"), "weighted", (("*", 2),))),
        (["--queues", "a,b", "--strategy", "strict"], (("a", "b"), "strict", ())),
        (["--pool", "critical"], (("pay", "mail"), "weighted", (("pay", 5), ("mail", 1)))),
        (["--pool", "rest"], (("*",), "round-robin", ())),
    ],
)
def test_queues_may_share_a_worker(
    supervised: type[Supervised], arguments: list[str], expected: Any
) -> None:
    with override_settings(OJS=POOLS):
        call_command("ojs_worker", *arguments)
    config = supervised.config
    assert (config.queues, config.order.strategy, config.order.weights) == expected
    assert config.pool == (arguments[1] if "--pool" in arguments else "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pool", "critcal"], "There is no pool 'critcal' in OJS['POOLS']. Did you mean critic"),
        (["--pool", "critical", "--queues", "a"], "leave --queues and --strategy out"),
        (["--pool", "critical", "--strategy", "strict"], "leave --queues and --strategy out"),
        (["--queues", "a,pay"], "Only workers of the pool critical get jobs of the queue pay: use"),
        (["--queues", "a:2", "--strategy", "strict"], "strict has no weights"),
        (["--queues", "a,b", "--strategy", "weighted"], "weighted needs weights of the queues"),
    ],
)
def test_queues_that_cannot_be_shared_so_are_rejected_with_the_cure(
    supervised: type[Supervised], arguments: list[str], said: str
) -> None:
    with override_settings(OJS=POOLS), pytest.raises(CommandError) as rejected:
        call_command("ojs_worker", *arguments)
    assert said in str(rejected.value)


def test_no_grace_at_all_may_be_asked_for(supervised: type[Supervised]) -> None:
    call_command("ojs_worker", "--grace", "0")
    assert supervised.config.grace == timedelta(0)


def test_a_database_that_is_not_migrated_is_reported_with_the_remedy() -> None:
    recorder = MigrationRecorder(connection)
    applied = list(recorder.migration_qs.filter(app="django_ojs").values_list("name", flat=True))
    recorder.migration_qs.filter(app="django_ojs").delete()
    try:
        with pytest.raises(CommandError, match=r"missing or old in 'default': run `manage\.py"):
            call_command("ojs_worker", "--once")
    finally:
        for name in applied:
            MigrationRecorder(connection).record_applied("django_ojs", name)


def test_one_migration_that_is_missing_is_enough() -> None:
    recorder = MigrationRecorder(connection)
    newest = recorder.migration_qs.filter(app="django_ojs").order_by("name").last()
    assert newest is not None
    recorder.record_unapplied("django_ojs", newest.name)
    try:
        with pytest.raises(CommandError, match="missing or old"):
            call_command("ojs_worker", "--once")
    finally:
        MigrationRecorder(connection).record_applied("django_ojs", newest.name)


def test_an_unreachable_database_is_reported_without_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        connection.close()
        raise OperationalError("password of a secret")

    monkeypatch.setattr(database_check, "MigrationExecutor", away)
    with pytest.raises(CommandError) as rejected:
        call_command("ojs_worker", "--once")
    assert "'default' does not respond (OperationalError)" in str(rejected.value)
    assert "secret" not in str(rejected.value)


def test_a_start_says_what_to_check_when_its_statements_go_on_failing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lock_timeout(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("canceling statement due to lock timeout: secret")

    monkeypatch.setattr(database_check, "MigrationExecutor", lock_timeout)
    monkeypatch.setattr(database_check, "TRIES", 2)
    with pytest.raises(CommandError) as rejected:
        call_command("ojs_worker", "--once")
    text = str(rejected.value)
    assert (
        "rejected a statement (OperationalError: canceling statement due to lock timeout)" in text
    )
    assert "no transaction holds a lock" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param(
            {"NAME": "no_such_database"},
            'database "no_such_database" does not exist',
            marks=pytest.mark.postgresql,
        ),
        pytest.param(
            {"USER": "no_such_role"},
            "no_such_role",
            marks=pytest.mark.postgresql,
        ),
        pytest.param(
            {"PORT": "1", "HOST": "127.0.0.1"}, "onnection refused", marks=pytest.mark.postgresql
        ),
        pytest.param(
            {"NAME": "/no/such/folder/db.sqlite3"},
            "unable to open database file",
            marks=pytest.mark.sqlite,
        ),
    ],
)
def test_the_reason_why_a_database_cannot_be_used_is_in_the_message(
    name: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.close()
    with monkeypatch.context() as patch:
        for key, value in name.items():
            patch.setitem(connection.settings_dict, key, value)
        with pytest.raises(CommandError) as rejected:
            call_command("ojs_worker", "--once")
    assert "'default' does not respond (OperationalError: " in str(rejected.value)
    assert reason in str(rejected.value)


def test_no_connection_is_open_when_the_supervisor_forks(supervised: type[Supervised]) -> None:
    call_command("ojs_worker")
    assert all(connections[alias].connection is None for alias in connections)


def test_no_handler_at_all_is_reported(
    supervised: type[Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = io.StringIO()
    call_command("ojs_worker", stderr=errors)
    assert errors.getvalue() == ""
    # Those of the package are there in every project.
    own = {webhooks.JOB_TYPE: handlers.registry.handlers[webhooks.JOB_TYPE]}
    monkeypatch.setattr(handlers.registry, "handlers", own)
    call_command("ojs_worker", stderr=errors)
    assert "No handlers were found" in errors.getvalue()
    assert "INSTALLED_APPS" in errors.getvalue()


def test_connections_are_kept_from_job_to_job_unless_the_project_says_how_long(
    supervised: type[Supervised],
) -> None:
    connections.settings["other"]["CONN_MAX_AGE"] = 5
    before = {alias: dict(connections.settings[alias]) for alias in connections}
    call_command("ojs_worker")
    assert supervised.connections["default"]["CONN_MAX_AGE"] == 60
    assert supervised.connections["other"]["CONN_MAX_AGE"] == 5
    assert supervised.connections["default"]["CONN_HEALTH_CHECKS"] is True
    assert {alias: dict(connections.settings[alias]) for alias in connections} == before


@pytest.mark.postgresql
def test_the_pool_of_the_site_is_none_of_a_worker(
    supervised: type[Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Django rejects a pool whose connections are kept from job to job.
    connections.close_all()
    options = {**connections.settings["default"]["OPTIONS"], "pool": {"min_size": 2}}
    monkeypatch.setitem(connections.settings["default"], "OPTIONS", options)
    call_command("ojs_worker")
    assert "pool" not in supervised.connections["default"]["OPTIONS"]
    assert supervised.connections["default"]["CONN_MAX_AGE"] == 60
    assert connections.settings["default"]["OPTIONS"] == options


@pytest.mark.postgresql
def test_connections_to_a_server_that_is_gone_end_by_themselves(
    supervised: type[Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    monkeypatch.setitem(connections.settings["default"], "OPTIONS", {"keepalives_idle": 60})
    monkeypatch.setitem(connections.settings["other"], "OPTIONS", {"service": "jobs"})
    call_command("ojs_worker")
    # What the project says stays.
    assert supervised.connections["default"]["OPTIONS"] == {
        "connect_timeout": 4,
        "keepalives_idle": 60,
        "keepalives_interval": 2,
        "keepalives_count": 2,
        "tcp_user_timeout": 8000,
    }
    assert supervised.connections["other"]["OPTIONS"] == {"service": "jobs"}
    assert connections.settings["default"]["OPTIONS"] == {"keepalives_idle": 60}
    psycopg.conninfo.make_conninfo("", **supervised.connections["default"]["OPTIONS"])
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "9")
    call_command("ojs_worker")
    assert "connect_timeout" not in supervised.connections["default"]["OPTIONS"]


@pytest.mark.parametrize(
    ("debug", "arguments", "watches"),
    [(True, [], True), (True, ["--no-reload"], False), (False, [], False)],
)
def test_the_code_is_watched_under_debug_only(
    supervised: type[Supervised], debug: bool, arguments: list[str], watches: bool
) -> None:
    with override_settings(DEBUG=debug):
        call_command("ojs_worker", *arguments)
    assert (supervised.code_changed is not None) is watches


def test_when_the_code_has_changed_it_takes_its_own_place(
    supervised: type[Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: executed.append((path, arguments)))
    monkeypatch.setattr(ojs_worker, "get_child_arguments", lambda: ["python", "manage.py", "x"])
    call_command("ojs_worker")
    assert executed == []
    monkeypatch.setattr(Supervised, "reload", True)
    call_command("ojs_worker")
    assert [arguments for _, arguments in executed] == [["python", "manage.py", "x"]]


def test_once_works_in_the_calling_process() -> None:
    job = echo.enqueue("hello")
    assert job is not None
    call_command("ojs_worker", "--once", "--threads", "1")
    assert factories.read(job.id).result == ["hello"]


def test_it_leaves_the_process_as_it_was(supervised: type[Supervised]) -> None:
    def process() -> dict[str, Any]:
        logger = logging.getLogger("django_ojs")
        return {
            "signals": {number: signal.getsignal(number) for number in SIGNALS},
            "logger": (logger.level, list(logger.handlers)),
        }

    before = process()
    call_command("ojs_worker", "--once", verbosity=0)
    assert process() == before
    call_command("ojs_worker", verbosity=0)
    assert process() == before


@pytest.mark.parametrize("alias", ["default", "other"])
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_inside_a_transaction_it_rejects_and_the_transaction_goes_on(alias: str) -> None:
    threads = threading.active_count()
    with transaction.atomic(using=alias):
        job = echo.enqueue("hello") if alias == "default" else None
        with pytest.raises(CommandError, match="use TransactionTestCase"):
            call_command("ojs_worker", "--once")
        if job is not None:
            assert job.job().state == "available"
    assert threading.active_count() == threads


class InTestCase(TestCase):
    """The worker as users of other task queues try it first."""

    def test_the_command_says_what_to_use_instead(self) -> None:
        job = echo.enqueue("hello")
        with self.assertRaisesMessage(
            CommandError, "OJSTestMixin for TestCase, the fixture ojs for pytest"
        ):
            call_command("ojs_worker", "--once")
        assert job.job().state == "available"


def test_the_help_shows_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("ojs_worker", "--help")
    text = capsys.readouterr().out
    # A line an example, as it was written.
    assert "\n  manage.py ojs_worker --queues critical,default  " in text
    for name in ("TERM", "TSTP", "CONT", "GRACE_PERIOD", "--once", "--max-rss"):
        assert name in text
