"""What a process does on a database: which functions of the package an operation runs, and what the
migrations make. It runs in a process of its own, and prints JSON:

    python -m tests.architecture.house.probe postgresql|sqlite FOLDER [EXTENSION]

The folder is empty, and is removed after the end of the process, which may write until then.
The site has nothing but django_ojs and the apps that it needs, and no setting of it. With the app
of an extension, only the operations of that are looked at.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from example_project import embedded_server
from example_project.embedded_postgres import from_url

PACKAGE = "django_ojs"
URLS = "house_urls"
WORKER = "worker"
QUEUES = ["default"]
#: Calls before those that are looked at: caches are filled, as they are in a process that works.
WARM = 3
#: Calls that are looked at. What only some of them run, such as what is due once a second, is not
#: of the operation.
MEASURED = 10

#: They count as the function that they stand in, as Python 3.12 and later compile them.
_INLINE = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"}

Act = Callable[[], object]


def main() -> None:
    print(json.dumps(probe(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])))


def probe(vendor: str, folder: Path, *extensions: str) -> dict[str, Any]:
    """Return what is found on a database of its own."""
    if vendor == "postgresql":
        set_up(embedded_server.start(folder / "server", throwaway=True), extensions)
    else:
        set_up(f"sqlite:///{folder}/database.sqlite3", extensions)
    if extensions:
        return {"functions": {"workflow-step": measured(drained(partial(advance, claimer())))}}
    return {
        "functions": {name: measured(prepare) for name, prepare in operations().items()},
        **schema(),
        **subcommands(),
    }


def set_up(url: str, extensions: Sequence[str]) -> None:
    """Make the site and its tables."""
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": from_url(url)},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            *("django.contrib.auth", "django.contrib.contenttypes"),
            *(PACKAGE, *extensions),
        ],
        ROOT_URLCONF=URLS,
        SECRET_KEY="of a process that ends at once",
        USE_TZ=True,
    )
    import django
    from django.core.management import call_command
    from django.urls import include, path

    django.setup()
    hold_still()
    call_command("migrate", verbosity=0)
    urls: Any = ModuleType(URLS)
    urls.urlpatterns = [path("", include("django_ojs.http.urls"))]
    sys.modules[URLS] = urls
    # What stays need not be looked at before each call.
    gc.collect()
    gc.freeze()


def hold_still() -> None:
    """Do each time the same: read no configuration again after a second, nor the age of snapshots
    after a slow claim, and notify the workers of each job."""
    from django_ojs.storage import claim_floors, notify, queue_configs

    setattr(notify, "INTERVAL", 0.0)  # noqa: B010 - a constant
    setattr(queue_configs, "LIFETIME", 3600.0)  # noqa: B010 - a constant
    setattr(claim_floors, "SLOW", float("inf"))  # noqa: B010 - a constant


# -- the functions of an operation


def operations() -> dict[str, Callable[[], Act]]:
    """Return by name what prepares one call of each operation."""
    from django.db import connection, transaction
    from django.test import Client

    import django_ojs as ojs
    from django_ojs.extension import Known
    from django_ojs.extensions.backpressure.operations import pressure_monitor
    from django_ojs.operations import ack, fail
    from django_ojs.operations.access import api_keys
    from django_ojs.spec.failure import Failure
    from django_ojs.spec.json import has_long_integer
    from django_ojs.storage.transitions import Claim

    claim = claimer()
    client = Client()
    stored, key = api_keys.create(name="client", scopes=["producer"])
    while has_long_integer(stored.digest):
        # One digest in a hundred looks like a large number, and its reader calls more functions.
        stored, key = api_keys.create(name="client", scopes=["producer"])
    job = json.dumps({"type": "house.job", "args": [1]})

    def store() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")  # The caller has a statement of its own.
            ojs.enqueue("house.job", [1])

    def enqueue() -> Act:
        return store

    def take() -> Act:
        store()
        return claim

    def end_badly() -> Act:
        store()
        claimed = claim()
        failure = Failure(type="Boom", message="it broke")
        mine = Claim(worker_id=WORKER, run=claimed.run)
        return lambda: fail.fail(claimed.id, failure, claim=mine)

    def end_well() -> Act:
        store()
        claimed = claim()

        def complete() -> None:
            # As the completer of a worker does, which knows the jobs and how long they ran.
            known = Known(jobs={claimed.id: claimed}, seconds={claimed.id: 0.1})
            ack.ack_batch(WORKER, [(claimed.id, claimed.run, None)], known)

        return complete

    def push_over_http() -> Act:
        # No request asks for a look at the pressure in the next seconds.
        pressure_monitor.watch.check()
        headers = {"Authorization": f"Bearer {key}"}
        return lambda: created(
            client.post("/ojs/v1/jobs", job, content_type="application/json", headers=headers)
        )

    def created(response: Any) -> None:
        assert response.status_code == 201, response.content

    return {
        "enqueue": enqueue,
        "fetch": drained(take),
        "fail": drained(end_badly),
        "ack": drained(end_well),
        "push-http": push_over_http,
    }


def claimer() -> Callable[[], Any]:
    """Register a worker; return what claims a job for it."""
    from django_ojs.operations.beat import Registration, beat
    from django_ojs.operations.fetch import fetch
    from django_ojs.spec.scheduling import STRICT_ORDER
    from django_ojs.storage.queue_turns import Turns

    beat(WORKER, registration=Registration(queues=tuple(QUEUES)))
    turns = Turns(STRICT_ORDER)

    def claim() -> Any:
        claimed = fetch(
            QUEUES,
            worker_id=WORKER,
            due=False,
            max_bytes=1_000_000,
            turns=turns,
            registered=True,
        )
        assert len(claimed) == 1
        return claimed[0]

    return claim


def advance(claim: Callable[[], Any]) -> Act:
    """Claim the first step of a chain; its end starts the second."""
    from django.db import transaction

    from django_ojs.extensions.workflows import operations as workflows
    from django_ojs.extensions.workflows.operations.advance import advance_all
    from django_ojs.extensions.workflows.spec.parse import parse
    from django_ojs.operations import ack

    step = {"type": "house.step", "args": [1]}
    with transaction.atomic():
        workflow = workflows.create(parse({"type": "chain", "steps": [step, step]}))
    claimed = claim()

    def end_step() -> None:
        ack.ack_batch(WORKER, [(claimed.id, claimed.run, None)])
        advance_all([workflow.pk])

    return end_step


def drained(prepare: Callable[[], Act]) -> Callable[[], Act]:
    """Begin without jobs, so that the worker claims the one that was made for it."""
    from django_ojs.models import Job

    def emptied() -> Act:
        Job.objects.all().delete()
        return prepare()

    return emptied


def measured(prepare: Callable[[], Act]) -> list[str]:
    """Return the functions that each of some calls runs, once caches are filled."""
    runs = [functions(prepare()) for _ in range(WARM + MEASURED)]
    return sorted(set.intersection(*runs[WARM:]))


def functions(act: Act) -> set[str]:
    """Return the functions of the package that a call runs, in this thread."""
    seen: dict[CodeType, str] = {}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code not in seen and code.co_name not in _INLINE:
            module = frame.f_globals.get("__name__", "")
            if module.partition(".")[0] == PACKAGE:
                seen[code] = f"{module}:{name_of(frame)}"

    # An id is made of the time: in another millisecond than the one before, as most are.
    time.sleep(0.002)
    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return set(seen.values())


def name_of(frame: FrameType) -> str:
    """Return the name of the function that runs; of a generated one, with that of its class."""
    code = frame.f_code
    if "__create_fn__.<locals>" not in code.co_qualname:
        return code.co_qualname
    return f"{type(frame.f_locals[code.co_varnames[0]]).__qualname__}.{code.co_name}"


# -- the schema


_SCHEMA = {
    "sqlite": {
        "tables": "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'ojs%%'",
        "job_indexes": (
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'ojs_job'"
        ),
        "triggers": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    },
    "postgresql": {
        "tables": "SELECT tablename FROM pg_tables WHERE tablename LIKE 'ojs%%'",
        "job_indexes": "SELECT indexname FROM pg_indexes WHERE tablename = 'ojs_job'",
        "triggers": (
            "SELECT tgname || ' on ' || tgrelid::regclass FROM pg_trigger WHERE NOT tgisinternal"
        ),
        "routines": "SELECT proname FROM pg_proc WHERE proname LIKE 'ojs%%'",
    },
}


def schema() -> dict[str, list[str]]:
    """Return the names of what the migrations have made, by kind."""
    from django.db import connection

    found = {}
    with connection.cursor() as cursor:
        for kind, query in _SCHEMA[connection.vendor].items():
            cursor.execute(query, ())
            found[kind] = sorted(name for (name,) in cursor.fetchall())
    return found


# -- the command line


def subcommands() -> dict[str, list[str]]:
    """Return the subcommands of `manage.py ojs`, and these with their actions."""
    from django.core.management import load_command_class

    parser = load_command_class(PACKAGE, "ojs").create_parser("manage.py", "ojs")
    (named,) = (each.choices for each in parser._actions if isinstance(each, _SubParsersAction))
    actions = [
        f"{name} {action}".strip() for name, each in named.items() for action in actions_of(each)
    ]
    return {"subcommands": sorted(named), "actions": sorted(actions)}


def actions_of(parser: ArgumentParser) -> list[str]:
    """Return the actions of a subcommand, and an empty one where it is an action itself."""
    for each in parser._actions:
        if each.dest == "action" and each.choices is not None:
            return [str(choice) for choice in each.choices]
    return [""]


if __name__ == "__main__":
    main()
