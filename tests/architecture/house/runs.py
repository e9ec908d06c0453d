"""The numbers that need a process: what an operation runs, what the migrations make, a start."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from tempfile import TemporaryDirectory
from typing import Any

from tests.architecture.house.numbers import Count, Counter, add, number, of
from tests.architecture.imports import PACKAGE, ROOT

VENDORS = ("postgresql", "sqlite")
#: The processes whose time is measured, for each of the sites that are compared.
STARTS = 5
#: The apps of a site without us, and what the admin needs beside them.
APPS = ("django.contrib.auth", "django.contrib.contenttypes")
ADMIN = (*APPS, "django.contrib.sessions", "django.contrib.messages", "django.contrib.admin")

#: Prints the modules that a start has imported, and the seconds of CPU that it took.
_START = """
import json, sys, time
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=sys.argv[1:],
    SECRET_KEY="of a process that ends at once",
)
began = time.process_time()
import django
django.setup()
print(json.dumps([sorted(sys.modules), time.process_time() - began]))
"""


def _python(*arguments: str) -> Any:
    """Run Python in the folder of the project; return what it prints, as JSON."""
    # Of the variables of a test run, none is about this process.
    names = ("COVERAGE", "DATABASE_URL", "DJANGO", "OJS_")
    variables = {name: text for name, text in os.environ.items() if not name.startswith(names)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**variables, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


@cache
def probe(vendor: str, *extensions: str) -> Any:
    """Return what `probe.py` finds on a database."""
    with TemporaryDirectory(prefix="ojs-house-", ignore_cleanup_errors=True) as folder:
        return _python("-m", "tests.architecture.house.probe", vendor, folder, *extensions)


@cache
def start(apps: tuple[str, ...], attempt: int = 0) -> tuple[list[str], float]:
    """Return the modules that a start imports, and its seconds of CPU."""
    modules, seconds = _python("-c", _START, *apps)
    return modules, seconds


def prefetch(*, starts: int = STARTS) -> None:
    """Run all processes, as many at a time as this machine has processors.

    One start is enough for the modules that it imports.
    """
    sites = [apps + ours for apps in (APPS, ADMIN) for ours in ((), (PACKAGE,))]
    runs = [partial(probe, vendor) for vendor in VENDORS]
    runs += [partial(probe, VENDORS[0], app) for app in _APPS.values()]
    runs += [partial(start, apps, attempt) for attempt in range(starts) for apps in sites]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for each in [pool.submit(run) for run in runs]:
            each.result()


# -- operations

_OPERATIONS = {
    "enqueue": "a plain enqueue",
    "fetch": "FETCH by a worker",
    "fail": "FAIL",
    "ack": "ACK by a worker",
    "push-http": "PUSH over HTTP",
    "workflow-step": "a workflow step",
}
_RULES = {
    "enqueue": "enqueue() of a job without options in the caller's transaction, and its commit",
    "fetch": "a worker claims one job",
    "fail": "a run fails and will be retried",
    "ack": "a worker completes one job, in the batch of its completer",
    "push-http": "a POST of one job by a client with an API key, and its response",
    "workflow-step": "a worker completes the first step of a chain, and starts the second",
}


#: The app that an operation needs.
_APPS = {"workflow-step": f"{PACKAGE}.extensions.workflows"}


def _probed(vendor: str, operation: str) -> list[str]:
    apps = [_APPS[operation]] if operation in _APPS else []
    found: list[str] = probe(vendor, *apps)["functions"][operation]
    return found


def _functions(vendor: str, operation: str) -> Count:
    return of(each.replace(":", ".") for each in _probed(vendor, operation))


def _modules(vendor: str, operation: str) -> Count:
    return of({each.partition(":")[0] for each in _probed(vendor, operation)})


def _operation(vendor: str, operation: str) -> None:
    database = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}[vendor]
    end = "" if vendor == "postgresql" else f"-{vendor}"
    said = _OPERATIONS[operation] + (f" on {database}" if end else "")
    rule = (
        f"{_RULES[operation]}. On {database}, with nothing but {_APPS.get(operation, PACKAGE)}, "
        "once caches are filled"
    )
    counters: dict[str, tuple[Counter, str]] = {
        "functions": (
            partial(_functions, vendor, operation),
            f"Functions of the package that run in this thread when {rule}. A comprehension "
            "counts as its function, and a generated method of a class as one.",
        ),
        "modules": (
            partial(_modules, vendor, operation),
            f"Modules of the package whose functions run in this thread when {rule}.",
        ),
    }
    for unit, (counter, text) in counters.items():
        add(f"{operation}-{unit}{end}", f"{said}: {unit}", counter, text, runs=True)


for _each in _OPERATIONS:
    _operation("postgresql", _each)
_operation("sqlite", "enqueue")


# -- the schema


@number("tables", "tables", runs=True)
def tables() -> Count:
    """Tables that the migrations make on PostgreSQL with only django_ojs."""
    return of(probe("postgresql")["tables"])


@number("job-indexes", "indexes on ojs_job", runs=True)
def job_indexes() -> Count:
    """Indexes on ojs_job on PostgreSQL, that of the primary key included."""
    return of(probe("postgresql")["job_indexes"])


@number("triggers", "triggers", runs=True)
def triggers() -> Count:
    """Triggers that the migrations make on PostgreSQL."""
    return of(probe("postgresql")["triggers"])


@number("triggers-sqlite", "triggers on SQLite", runs=True)
def triggers_sqlite() -> Count:
    """Triggers that the migrations make on SQLite."""
    return of(probe("sqlite")["triggers"])


@number("routines", "functions and procedures of PostgreSQL", runs=True)
def routines() -> Count:
    """Functions and procedures that the migrations make on PostgreSQL."""
    return of(probe("postgresql")["routines"])


# -- a start


def _imported(apps: tuple[str, ...]) -> Count:
    return of(set(start((*apps, PACKAGE))[0]).difference(start(apps)[0]))


def _cpu_ratio(apps: tuple[str, ...]) -> Count:
    seconds = {
        name: sorted(start(site, attempt)[1] for attempt in range(STARTS))
        for name, site in (("with", (*apps, PACKAGE)), ("without", apps))
    }
    median = {name: statistics.median(values) for name, values in seconds.items()}
    items = [
        f"{name} {PACKAGE}: {', '.join(f'{value:.3f}' for value in values)} seconds"
        for name, values in seconds.items()
    ]
    return Count(value=round(median["with"] / median["without"], 1), items=items)


@number("setup-modules", "django.setup(): modules more than without us", runs=True)
def setup_modules() -> Count:
    """Modules, of any package, that django.setup() imports with django_ojs and auth on SQLite, and
    does not import with auth alone."""
    return _imported(APPS)


@number("setup-cpu", "django.setup(): times the CPU without us", runs=True)
def setup_cpu() -> Count:
    """Median CPU of django.setup() with django_ojs and auth on SQLite, over that with auth alone,
    in five fresh processes each. It is not tested: a machine is never quiet enough."""
    return _cpu_ratio(APPS)


@number("setup-admin-modules", "the same with the admin: modules", runs=True)
def setup_admin_modules() -> Count:
    """As `setup-modules`, where django.contrib.admin is installed in both."""
    return _imported(ADMIN)


@number("setup-admin-cpu", "the same with the admin: times the CPU", runs=True)
def setup_admin_cpu() -> Count:
    """As `setup-cpu`, where django.contrib.admin is installed in both."""
    return _cpu_ratio(ADMIN)


# -- the command line


@number("subcommands", "subcommands", runs=True)
def subcommands() -> Count:
    """Subcommands of `manage.py ojs`."""
    return of(probe("sqlite")["subcommands"])


@number("actions", "subcommands with their actions", runs=True)
def actions() -> Count:
    """Subcommands of `manage.py ojs`; of one that has actions, these instead."""
    return of(probe("sqlite")["actions"])
