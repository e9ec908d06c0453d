"""System checks: what would go wrong later is said at the start."""

from __future__ import annotations

import ast
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from django.core import checks as django_checks
from django.core.checks import registry as django_registry
from django.core.management import call_command
from django.core.management.base import CommandError, SystemCheckError
from django.db import NotSupportedError
from django.db import connections as databases
from django.test import override_settings

from django_ojs import checks
from django_ojs.command_line.database_check import require_database
from django_ojs.extension import INTERFACE, Extension, Hooks
from django_ojs.extensions.outbox import checks as outbox_checks
from django_ojs.hooks import registry
from django_ojs.http.authentication import AllowAny
from django_ojs.management.commands import ojs_worker
from django_ojs.storage import database
from tests.cases import together
from tests.databases import ALIASES, KIND
from tests.factories import connected_to
from tests.test_extension import installed
from tests.worker.processes import ROOT


@contextmanager
def connection(vendor: str, **options: Any) -> Iterator[None]:
    """Let the jobs' database be another one."""
    other = mock.MagicMock(vendor=vendor, alias="jobs", settings_dict={"OPTIONS": options})
    other.cursor().__enter__().fetchall.return_value = [("read committed",)]
    with (
        mock.patch.object(database, "connection", return_value=other),
        mock.patch.object(database, "alias", return_value="jobs"),
    ):
        yield


def ids(problems: list[django_checks.CheckMessage]) -> list[str | None]:
    return [problem.id for problem in problems]


@pytest.mark.both  # The connection that there is.
@pytest.mark.django_db
def test_a_sound_project_hears_nothing() -> None:
    assert checks.check_settings() == []
    heard = ids(checks.check_database(databases=["default"]))
    assert heard == (["django_ojs.W006"] if KIND == "mariadb" else [])


class NamesNone:
    """A router that names a database which there is not."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "jobz"

    db_for_write = db_for_read


# From Django 6.1 on the command `check` asks all databases.
@pytest.mark.django_db(databases=ALIASES)
def test_e013_a_router_that_names_a_database_which_there_is_not() -> None:
    assert checks.check_alias() == []
    with override_settings(DATABASE_ROUTERS=[NamesNone()]):
        (problem,) = checks.check_alias()
        assert (problem.id, "'jobz'" in problem.msg) == ("django_ojs.E013", True)
        assert "default" in str(problem.hint)
        with pytest.raises(SystemCheckError, match="E013"):
            call_command("check")
        for command in (["ojs", "doctor"], ["ojs_apikey", "list"]):
            with pytest.raises(CommandError, match="jobz"):
                call_command(*command)
        with pytest.raises(CommandError, match="jobz"):
            require_database()  # As a worker does.


class Stranger(Extension):
    """An extension of a third party, which needs a hook that this version does not have."""

    name = "stranger"
    number = 41

    def __init__(self, interface: int | None) -> None:
        self.interface = interface

    def hooks(self) -> Hooks:
        return Hooks(**{"of_another_version": print} if self.interface != INTERFACE else {})


@together(
    ("interface", "says", "cure"),
    [
        (None, "does not say for which interface", f"`interface = {INTERFACE}`"),
        (INTERFACE - 1, f"is written for the interface {INTERFACE - 1} ", "or adapt it"),
        (INTERFACE + 1, f"is written for the interface {INTERFACE + 1} ", "a newer django-ojs"),
    ],
)
def test_e014_an_extension_for_another_version_of_the_interface(
    interface: int | None, says: str, cure: str
) -> None:
    assert checks.check_extensions() == []
    with installed(Stranger(INTERFACE)):
        assert checks.check_extensions() == []
    with installed(Stranger(interface)):
        (problem,) = checks.check_extensions()
        assert problem.id == "django_ojs.E014"
        assert problem.msg.startswith(f"The extension stranger {says}")
        assert problem.msg.endswith(f"this version has the interface {INTERFACE}.")
        assert cure in str(problem.hint)
        # `manage.py check` has it, and `manage.py ojs doctor` shows what that has of django_ojs.
        assert problem in django_checks.run_checks(tags=["django_ojs"])


def test_the_error_of_an_extension_that_fits_is_raised_when_it_is_registered() -> None:
    class Broken(Stranger):
        def hooks(self) -> Hooks:
            raise LookupError("the extension broke")

    with pytest.raises(LookupError), installed(Broken(INTERFACE)):
        pass
    registry.remove(Broken(INTERFACE))


@together(
    ("given", "says"),
    [
        ({"POLL_INTERVALL": 1}, "OJS['POLL_INTERVALL'] is not a setting"),
        ({"POLL_INTERVAL": "soon"}, "OJS['POLL_INTERVAL'] must be a number of seconds"),
        ({"ENQUEUE_MIDDLEWARE": ["not.there"]}, "OJS['ENQUEUE_MIDDLEWARE'] names 'not.there'"),
        ({"EXECUTION_MIDDLEWARE": ["not.there"]}, "OJS['EXECUTION_MIDDLEWARE'] names 'not.there'"),
        (
            {"ENQUEUE_MIDDLEWARE": ["tests.middleware.samples.NeedsAnArgument"]},
            "The middleware 'tests.middleware.samples.NeedsAnArgument' must be made without",
        ),
        ([], "The setting OJS must be a dictionary"),
        (
            {"POOLS": {"a": {"queues": ["x"], "exclusive": True}, "b": {"queues": ["x"]}}},
            "OJS['POOLS'] is invalid: POOLS.b.queues has x",
        ),
    ],
)
def test_e001_a_setting_that_cannot_work(given: Any, says: str) -> None:
    with override_settings(OJS=given):
        (problem,) = checks.check_settings()
    assert problem.id == "django_ojs.E001"
    assert problem.level == django_checks.ERROR
    assert problem.msg.startswith(says)


def test_e002_times_without_a_zone() -> None:
    with override_settings(USE_TZ=False):
        (problem,) = checks.check_settings()
    assert problem.id == "django_ojs.E002"
    assert "USE_TZ = True" in problem.msg
    assert "convert them to UTC" in str(problem.hint)


@pytest.mark.parametrize("vendor", ["oracle", "unknown"])
def test_e003_a_database_that_cannot_keep_jobs(vendor: str) -> None:
    with (
        connection(vendor),
        mock.patch.object(database, "alias", return_value="default"),
    ):
        (problem,) = checks.check_alias()
        assert checks.check_database(databases=["default"]) == []
    assert (problem.id, problem.level) == ("django_ojs.E003", django_checks.ERROR)
    assert "'default'" in problem.msg
    assert vendor in problem.msg
    assert problem.hint is None


def test_e003_a_database_whose_app_is_not_installed() -> None:
    with (
        connection("mysql"),
        mock.patch.object(database, "alias", return_value="default"),
        mock.patch.object(database, "of_vendor", return_value=None),
    ):
        # Each command says it at its start, and whoever uses the database without one.
        found = django_checks.run_checks(tags=["django_ojs"])
        with pytest.raises(NotSupportedError) as raised:
            database.dialect()
    (problem,) = (each for each in found if each.id == "django_ojs.E003")
    assert problem.hint == 'Add "django_ojs.contrib.mariadb" to INSTALLED_APPS, and run migrate.'
    assert problem.hint in str(raised.value)


def test_postgresql_needs_no_option() -> None:
    with connection("postgresql"):
        assert checks.check_database(databases=["jobs"]) == []


def test_w004_several_hosts_of_which_any_may_be_a_replica() -> None:
    with connection("postgresql", host="a,b"):
        (problem,) = checks.check_database(databases=["jobs"])
    assert (problem.id, problem.level) == ("django_ojs.W004", django_checks.WARNING)
    assert "{'target_session_attrs': 'read-write'}" in problem.hint
    with connection("postgresql", host="a,b", target_session_attrs="primary"):
        assert checks.check_database(databases=["jobs"]) == []


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("level", "found"),
    [
        ("read uncommitted", []),
        ("repeatable read", ["django_ojs.E012"]),
        ("serializable", ["django_ojs.E012"]),
    ],
)
def test_e012_a_server_whose_single_statements_have_another_isolation_level(
    level: str, found: list[str]
) -> None:
    name = level.replace(" ", r"\ ")
    options = {"options": f"-c default_transaction_isolation={name}"}
    values = databases["default"].settings_dict
    with connected_to({**values, "OPTIONS": {**values["OPTIONS"], **options}}):
        assert ids(checks.check_database(databases=["default"])) == found
    # That of a project's own transactions may be any.
    with connected_to({**values, "OPTIONS": {**values["OPTIONS"], "isolation_level": 4}}):
        assert checks.check_database(databases=["default"]) == []


def test_e004_an_sqlite_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection("sqlite", transaction_mode="IMMEDIATE"):
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 9))
        monkeypatch.setattr(sqlite3, "sqlite_version", "3.37.9")
        (problem,) = checks.check_database(databases=["jobs"])
        assert problem.id == "django_ojs.E004"
        assert "3.38" in problem.msg
        assert "3.37.9" in problem.msg
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 38, 0))
        assert checks.check_database(databases=["jobs"]) == []


@pytest.mark.parametrize("options", [{}, {"transaction_mode": "DEFERRED"}])
def test_w001_an_sqlite_whose_transactions_begin_without_the_lock(options: dict[str, Any]) -> None:
    with connection("sqlite", **options):
        (problem,) = checks.check_database(databases=["jobs"])
    assert problem.id == "django_ojs.W001"
    assert problem.level == django_checks.WARNING
    assert problem.hint is not None
    named, _, shown = problem.hint.partition(" = ")
    assert named == "DATABASES['jobs']['OPTIONS']"
    page = Path("docs/how-to/use-sqlite.md").read_text()
    wanted = ast.literal_eval(shown)
    assert wanted.keys() == {"transaction_mode", "timeout", "init_command"}
    for name, value in wanted.items():
        assert f"{json.dumps(name)}: {json.dumps(value)}" in page
    with connection("sqlite", **wanted):
        assert checks.check_database(databases=["jobs"]) == []


def test_an_old_sqlite_in_the_wrong_mode_hears_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 9))
    with connection("sqlite"):
        assert ids(checks.check_database(databases=["jobs"])) == [
            "django_ojs.E004",
            "django_ojs.W001",
        ]


@pytest.mark.sqlite
@pytest.mark.django_db
def test_e011_an_sqlite_whose_times_are_not_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    link = database.connection()
    for zone, wrong in (("Europe/Berlin", ["django_ojs.E011"]), ("UTC", []), (None, [])):
        monkeypatch.setitem(link.settings_dict, "TIME_ZONE", zone)
        found = checks.check_database(databases=["default"])
        assert ids(found) == wrong
        if wrong:
            assert "'Europe/Berlin'" in found[0].msg
            assert "DATABASES['default']['TIME_ZONE']" in found[0].hint


@pytest.mark.process
@pytest.mark.postgresql
@pytest.mark.parametrize("arguments", [["check"], ["diffsettings"], ["showmigrations", "--help"]])
def test_commands_without_a_database_do_not_wait_for_one_that_hangs(
    arguments: list[str], process_environment: dict[str, str]
) -> None:
    # A socket of a path: a port may be one that a client of an earlier test still tries.
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{folder}/.s.PGSQL.5432")
        silent.listen()
        address = {"HOST": folder, "PORT": 5432}
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={
                **process_environment,
                "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
                "OJS_FAULTS_DATABASE": json.dumps(address),
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert not done.returncode, done.stderr
        assert "W003" not in done.stderr
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_other_databases_are_not_checked_for_jobs() -> None:
    with connection("oracle"):
        for databases in (None, [], ["default"]):
            assert checks.check_database(databases=databases) == []
            assert checks.check_bounds(databases=databases) == []


ALLOW_ANY = "django_ojs.http.authentication.AllowAny"


class AllowAnyToo(AllowAny):
    """A site's own way to open its API."""


@pytest.mark.parametrize("path", [ALLOW_ANY, "tests.test_checks.AllowAnyToo"])
def test_w002_and_e005_an_open_api(path: str) -> None:
    with override_settings(OJS={"HTTP_AUTHENTICATION": [path]}):
        (warning,) = checks.check_access()
        (error,) = checks.check_deployed_access()
    assert (warning.id, warning.level) == ("django_ojs.W002", django_checks.WARNING)
    assert (error.id, error.level) == ("django_ojs.E005", django_checks.ERROR)
    assert "open" in warning.msg


def test_a_closed_api_hears_nothing() -> None:
    for given in (
        {},
        {"HTTP_AUTHENTICATION": ["rest_framework.authentication.TokenAuthentication"]},
    ):
        with override_settings(OJS=given):
            assert checks.check_access() == checks.check_deployed_access() == []


@pytest.mark.parametrize("path", ["not.there", "django_ojs.http.access.Access"])
def test_e001_an_authentication_class_that_is_none(path: str) -> None:
    with override_settings(OJS={"HTTP_AUTHENTICATION": [path]}):
        (problem,) = checks.check_settings()
        assert checks.check_access() == checks.check_deployed_access() == []
    assert problem.id == "django_ojs.E001"
    assert path in problem.msg


def test_a_project_without_the_api_needs_no_rest_framework() -> None:
    with (
        override_settings(OJS={"HTTP_AUTHENTICATION": [ALLOW_ANY]}),
        mock.patch.object(checks, "find_spec", return_value=None),
    ):
        assert checks.check_access() == []


@pytest.mark.parametrize("module", ["rest_framework", "yaml"])
def test_the_routes_without_the_extra_http_say_what_to_install(module: str) -> None:
    code = f"""
import sys
import django
sys.modules[{module!r}] = None  # as if it were not installed
django.setup()
import django_ojs.http.urls
"""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings_sqlite"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith(
        f"The HTTP API needs the module {module}: install django-ojs[http].\n"
    )


def test_a_setting_that_cannot_be_read_is_reported_once() -> None:
    with override_settings(OJS={"X": 1}):
        assert ids(checks.check_settings()) == ["django_ojs.E001"]
        assert checks.check_access() == checks.check_deployed_access() == []


@pytest.mark.django_db(databases=["default", "other"])
def test_a_deployment_with_an_open_api_fails_its_check() -> None:
    with override_settings(OJS={"HTTP_AUTHENTICATION": [ALLOW_ANY]}):
        call_command("check")
        with pytest.raises(SystemCheckError, match=r"django_ojs\.E005"):
            call_command("check", deploy=True)


@pytest.mark.django_db(databases=["default", "other"])
def test_the_checks_run_with_manage_py_check() -> None:
    with (
        override_settings(OJS={"X": 1}),
        pytest.raises(SystemCheckError, match=r"django_ojs\.E001"),
    ):
        call_command("check")
    with (
        connection("oracle"),
        mock.patch.object(database, "alias", return_value="default"),
        pytest.raises(SystemCheckError, match=r"django_ojs\.E003"),
    ):
        call_command("check", databases=["default"], tags=["django_ojs"])


def test_destinations_without_the_library_that_reaches_them_are_an_error() -> None:
    with override_settings(OJS={"OUTBOX": {"far": {"url": "http://far.example"}}}):
        assert outbox_checks.check_outbox() == []
        with mock.patch.object(outbox_checks, "find_spec", return_value=None):
            assert ids(outbox_checks.check_outbox()) == ["django_ojs.E006"]
    with mock.patch.object(outbox_checks, "find_spec", return_value=None):
        assert outbox_checks.check_outbox() == []
    with override_settings(OJS={"X": 1}):
        assert outbox_checks.check_outbox() == []


@pytest.mark.parametrize(
    ("name", "short", "enough"),
    [
        ("HEARTBEAT_INTERVAL", 0.9, 1),
        ("STALL_TIMEOUT", 1.9, 2),
        ("STALL_TIMEOUT", 1.9, 0),
        ("VISIBILITY_TIMEOUT", 1.9, 2),
    ],
)
def test_times_that_a_busy_machine_cannot_keep_are_named(
    name: str, short: float, enough: float
) -> None:
    with override_settings(OJS={name: short}):
        (problem,) = checks.check_times()
    assert problem.id == "django_ojs.W010"
    assert name in problem.msg
    with override_settings(OJS={name: enough}):
        assert checks.check_times() == []


def test_a_worker_asks_all_checks_except_those_of_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def of_urls(**_: Any) -> list[django_checks.CheckMessage]:
        asked.append("urls")
        return []

    def other(**_: Any) -> list[django_checks.CheckMessage]:
        asked.append("other")
        return [django_checks.Error("It is wrong.")]

    ours = django_registry.CheckRegistry()
    ours.register(of_urls, django_checks.Tags.urls)
    ours.register(other)
    monkeypatch.setattr(django_registry.registry, "registered_checks", ours.registered_checks)
    with pytest.raises(SystemCheckError, match="It is wrong"):
        ojs_worker.Command().check()
    assert asked == ["other"]
    assert django_registry.registry.registered_checks == {of_urls, other}
