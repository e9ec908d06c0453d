"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import hypothesis
import pytest
from django.db import connections

from django_ojs.admin import query_timeout
from django_ojs.extensions.statistics import rollups
from django_ojs.operations import worker_activity
from django_ojs.operations.jobs import bulk_execution
from django_ojs.storage import claim_floors, queue_configs
from example_project import site_server
from tests import fork_server, sizes
from tests.cases import begin_as_a_new_process
from tests.databases import ALIASES, KIND, KINDS, NAMES_VARIABLE
from tests.plugins import measuring, teardown, tiers, times

# A busy machine makes examples slow; that is no failure of what they test.
hypothesis.settings.register_profile(
    "suite",
    max_examples=500 if sizes.FULL else 40,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")
# Nor does a slow claim ask how old the snapshots are: that is one query more, which tests count.
setattr(claim_floors, "SLOW", float("inf"))  # noqa: B010 - a constant
# Nor is a configuration read again after a second: what a test changes is seen at once.
setattr(queue_configs, "LIFETIME", 3600.0)  # noqa: B010 - a constant
# Nor does a pass end before its work is done, or a page have no time for its last queries, because
# the machine stood still for a second; nor is that a database that stores nothing, or the moment to
# write figures, in the middle of the queries that a test counts.
for module, seconds in (
    (bulk_execution, "_STEP"),
    (query_timeout, "PAGE_SECONDS"),
    (worker_activity, "LONG_WAIT"),
    (rollups, "DUE"),
):
    setattr(module, seconds, 3600.0)


def pytest_configure(config: pytest.Config) -> None:
    # Until all is collected: what a collection makes stays, and to look for garbage in it again and
    # again is a third of its time, in each process of a run.
    gc.disable()
    for plugin in (tiers, times, measuring, teardown, fork_server):
        config.pluginmanager.register(plugin)
    # An installed package registers it by its entry point.
    config.pluginmanager.import_plugin("django_ojs.pytest_plugin")


def pytest_report_header() -> str:
    return f"database: {KIND} (OJS_TEST_DATABASE), tier: {tiers.NAME} (OJS_TEST_TIER)"


# An interruption may come while the thread runs a finalizer: Python reports it, and goes on.
_IN_A_FINALIZER = pytest.mark.filterwarnings(
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("interrupts"):
            item.add_marker(_IN_A_FINALIZER)
        kinds = [kind for kind in KINDS if item.get_closest_marker(kind)]
        if kinds and KIND not in kinds:
            item.add_marker(pytest.mark.skip(reason=f"only on {' and '.join(kinds)}"))
        if KIND == "mariadb" and item.get_closest_marker("statements"):
            item.add_marker(pytest.mark.skip(reason="other statements, plans or catalogs"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep what was collected, half a million objects that stay, out of the garbage collections."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Make the databases as ever, and learn what a test that commits must leave in them."""
    with django_db_blocker.unblock():
        for connection in connections.all():
            # Django makes those only that a collected test uses.
            if connection.settings_dict["NAME"] == connection.settings_dict["TEST"]["NAME"]:
                teardown.remember(connection.alias)
    teardown.install()


# Those of pytest-django's fixtures for each test that are about a mark or an app that nothing here
# has are made once: the bookkeeping of three fixtures is a tenth of a short test.
_django_clear_site_cache = pytest.fixture(scope="session")(lambda: None)
_django_isolate_apps = _template_string_if_invalid_marker = _django_clear_site_cache


@pytest.fixture(autouse=True)
def process_state_is_new() -> Iterator[None]:
    """Begin as a new process without schedules in the code, and forget those of the test."""
    from django_ojs.extensions.cron import schedules

    begin_as_a_new_process()
    before = dict(schedules.declarations)
    schedules.declarations.clear()
    yield
    schedules.declarations.clear()
    schedules.declarations.update(before)


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """Return the environment in which `manage.py` works on the databases of this very test."""
    return {**os.environ, **_variables()}


def _variables() -> dict[str, str]:
    names = ",".join(f"{alias}={connections[alias].settings_dict['NAME']}" for alias in ALIASES)
    return {"DJANGO_SETTINGS_MODULE": "tests.settings", NAMES_VARIABLE: names}


@pytest.fixture(scope="module")
def gunicorn(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[site_server.Site]:
    """Serve the site of the example project on the databases of the tests.

    One for the tests of a file, marked `process`: to start its three processes takes longer than
    most of them.
    """
    with ExitStack() as stack:
        site = site_server.Site(0, log=tmp_path_factory.mktemp("gunicorn") / "log")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in _variables().items():
                patch.setenv(name, value)
            stack.enter_context(site)
        yield site


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start programs as their users do, and not as forks of a process that has imported them."""
    monkeypatch.setattr(fork_server.Start, "always_new", True)


@pytest.fixture(autouse=True)
def _no_rejection_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """The thread that keeps rejections has a connection of its own, which must not outlive a test.

    What it keeps is committed, whatever the test's own transaction does: the next tests would see
    it. On SQLite it would wait for the end of that transaction besides.
    """
    yield
    if any(thread.name == "ojs-rejections" for thread in threading.enumerate()):
        from django_ojs.extensions.backpressure.operations import rejection_counts

        rejection_counts.recorder.reset()
        whole = {"transactional_db", "django_db_serialized_rollback", "live_server"}
        marker = request.node.get_closest_marker("django_db")
        if not (marker and marker.kwargs.get("transaction")) and whole.isdisjoint(
            request.fixturenames
        ):
            pytest.fail("A queue rejected a job here: mark the test django_db(transaction=True).")
