"""What is not installed is not there: a site without an extension, with it, and after it was taken
out while its jobs wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from django_ojs.not_installed import APPS, NAMES
from tests import sizes
from tests.cases import named
from tests.extensions.sites import SCHEMA, Site, site

CORE = ("django_ojs",)

#: The jobs of the site, and those that an extension which stores many at once leaves beside them.
JOBS = 100_000 if sizes.FULL else 1_000
MANY = JOBS // 10


@dataclass(frozen=True, kw_only=True)
class Optional:
    """An extension that is an app of its own."""

    name: str
    tables: frozenset[str]
    #: A page of the admin, a path of the HTTP API and a subcommand of `manage.py ojs`.
    page: str = ""
    path: str = ""
    #: What a GET of the path answers.
    found: int = 200
    subcommand: str = ""
    #: A word of the search for jobs.
    qualifier: str = ""
    #: Python code that asks for it, and is answered with the line to add while it is missing.
    asks: str
    #: Code that uses it and leaves jobs, and how many of these complete once it is taken out.
    use: str
    left: int
    #: What it then has of the tables of the core: "hold" and "marks" of jobs, "rules" of queues.
    has: frozenset[str] = frozenset()
    #: Code by which a site forgets what it has asked for.
    forget: str = ""

    @property
    def label(self) -> str:
        return f"ojs_{self.name}"

    @property
    def names(self) -> set[str]:
        """The public names of `django_ojs` that it brings."""
        theirs = (names for module, names in NAMES.items() if module.startswith(f"{self.app}."))
        return {name for names in theirs for name in names.split()}

    @property
    def app(self) -> str:
        return f"django_ojs.extensions.{self.name}"


OPTIONAL = (
    Optional(
        name="checkpoints",
        asks="ojs.JobContext(None, extensions=registry.context).checkpoint({})",
        tables=frozenset({"ojs_checkpoint"}),
        path="/ojs/v1/jobs/019539a4-b68c-7def-8000-1a2b3c4d5e6f/checkpoint",
        found=404,
        # Some wait after a run that has saved a checkpoint, and one is marked and has ended.
        has=frozenset({"marks"}),
        use="""
import django_ojs as ojs
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.operations import ack, fail, fetch
from django_ojs.operations.workers import rescue
from django_ojs.spec.failure import Failure
for number in (1, 2):
    ojs.enqueue("site.note", [number], retry=ojs.RetryPolicy(max_attempts=1))
first, second = fetch.fetch(["default"], count=2)
for job in (first, second):
    checkpoint.save(job.id, {"page": 4})
ack.ack(first.id)
fail.fail(second.id, Failure(type="Boom", message="boom"))
ojs.retry(second.id)
ojs.enqueue_batch([ojs.request("site.note", [each]) for each in range(MANY)])
claimed = fetch.fetch(["default"], count=100, worker_id="gone")
for job in claimed:
    checkpoint.save(job.id, {"page": 4})
assert rescue.give_back([(job.id, job.run) for job in claimed], worker_id="gone") == 100
""",
        left=2 + MANY,
    ),
    Optional(
        name="cron",
        asks='ojs.cron("0 9 * * *")',
        tables=frozenset({"ojs_cron_job", "ojs_cron_run"}),
        page="/admin/ojs_cron/cronjob/",
        path="/ojs/v1/cron",
        subcommand="cron",
        # The last of the four is held, because the run before it has not ended.
        use="""
from django_ojs.extensions.cron import operations as cron
template = {"type": "site.note", "args": [1]}
for policy in ("allow", "enqueue"):
    cron.register(
        cron.Definition(name=policy, expression="@yearly", template=template, overlap_policy=policy)
    )
    for _ in range(2):
        cron.trigger(policy, by="a test")
""",
        left=4,
    ),
    Optional(
        name="limits",
        asks="""ojs.enqueue("site.note", [1], rate_limit={"key": "acme", "concurrency": 1})""",
        tables=frozenset({"ojs_limited_queue", "ojs_limit_key", "ojs_limit_check"}),
        page="/admin/ojs_limits/limitkey/",
        path="/ojs/v1/rate-limits",
        subcommand="limits",
        # One job has run under the limit of its key, one waits for its queue, and the others
        # are held.
        has=frozenset({"hold", "rules"}),
        use="""
import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.operations import fetch, queues
from django_ojs.spec import hold
limit = ojs.RateLimitPolicy(key="acme", concurrency=1)
ojs.enqueue_batch([ojs.request("site.note", [each], rate_limit=limit) for each in range(MANY)])
(running,) = fetch.fetch(["default"], count=2)
while Job.primary.filter(state="available", hold__lt=hold.FIRST_HELD, hold__gt=hold.FREE).exists():
    assert fetch.fetch(["default"], count=1000) == []  # One claim holds a thousand.
assert Job.primary.filter(hold__gt=hold.FIRST_HELD).count() == MANY - 1
queues.configure("default", {"concurrency": 1, "rate_limit": {"limit": 1, "period": "PT1H"}})
ojs.enqueue("site.note", [3])
assert fetch.fetch(["default"]) == []
ojs.cancel(running.id)
""",
        left=MANY,
        forget="""
from django_ojs.models import Queue
assert not Queue.primary.exclude(rules=0).exists()
Queue.primary.filter(pk="default").delete()
""",
    ),
    Optional(
        name="outbox",
        asks="""ojs.enqueue("site.note", [1], on_full="outbox")""",
        tables=frozenset({"ojs_outbox"}),
        page="/admin/ojs_outbox/outboxentry/",
        # Jobs that had no room, and have it now, are stored before the table is dropped.
        use="""
import django_ojs as ojs
from django_ojs.extensions.outbox import operations as outbox
from django_ojs.enqueue_options import envelope_of
jobs = [envelope_of(ojs.request("site.note", [each])) for each in range(MANY)]
outbox.add(jobs, ["local"] * MANY, using="default", generated_ids=True)
""",
        left=MANY,
    ),
    Optional(
        name="steps",
        asks="import_module('django_ojs.extensions.steps').run",
        tables=frozenset({"ojs_step", "ojs_step_signal"}),
        path="/ojs/v1/signals",
        found=405,
        # One job sleeps for a second; without the app its handler is done when it wakes.
        use="""
import django_ojs as ojs
from django_ojs.extensions.steps.models import Step
from django_ojs.models import Job
job = ojs.enqueue("site.nap")
call_command("ojs_worker", "--once", "--queues", "default")
assert Step.objects.get(job_id=job.id).outcome == "waiting"
Job.primary.filter(pk=job.id).update(due_at=datetime.now(UTC))
""",
        left=1,
    ),
    Optional(
        name="tenants",
        asks="queues.configure('default', {'tenant_fairness': {'enabled': True}})",
        tables=frozenset(),
        use="""
import django_ojs as ojs
from django_ojs.operations import queues
from django_ojs.spec.errors import QueueFull
fields = {"tenant_fairness": {"enabled": True}, "tenant_limits": {"max_queue_depth": 2}}
queues.configure("default", fields)
for tenant in "aab":
    ojs.enqueue("site.note", [1], meta={"tenant_id": tenant})
try:
    ojs.enqueue("site.note", [1], meta={"tenant_id": "a"})
except QueueFull as full:
    assert full.part == ("tenant", "a")
queues.configure("default", {"tenant_fairness": {"enabled": True}, "tenant_limits": None})
tenants = [{"tenant_id": str(each % 7)} for each in range(MANY)]
ojs.enqueue_batch([ojs.request("site.note", [1], meta=meta) for meta in tenants])
""",
        left=3 + MANY,
        has=frozenset({"marks", "rules"}),
        forget="""
from django_ojs.models import Queue
assert not Queue.primary.exclude(rules=0).exists()
Queue.primary.filter(pk="default").delete()
""",
    ),
    Optional(
        name="webhooks",
        asks="with override_settings(OJS={'WEBHOOK_HTTP': True}): conf.settings()",
        tables=frozenset({"ojs_webhook", "ojs_webhook_delivery"}),
        page="/admin/ojs_webhooks/webhook/",
        path="/ojs/v1/webhooks/subscriptions",
        subcommand="webhooks",
        # The delivery, for which there is no handler any more, is cancelled.
        use="""
import django_ojs as ojs
from django_ojs.extensions.webhooks.models import WebhookDelivery
from django_ojs.extensions.webhooks.operations import dispatch, subscriptions
subscriptions.create(
    subscriptions.Subscription(url="https://receiver.example/", events=["job.completed"])
)
ojs.enqueue("site.note", [1])
call_command("ojs_worker", "--once", "--queues", "default")
while dispatch.dispatch():  # A pass reads a hundred events of the jobs before.
    pass
assert WebhookDelivery.objects.count() == 1
""",
        left=1,
    ),
    Optional(
        name="workflows",
        asks="ojs.chain()",
        tables=frozenset({"ojs_workflow", "ojs_workflow_step", "ojs_workflow_ended_job"}),
        page="/admin/ojs_workflows/workflow/",
        path="/ojs/v1/workflows",
        subcommand="workflows",
        qualifier="workflow",
        # The second step of the chain has no job yet: it goes with its workflow.
        use="""
import django_ojs as ojs
ojs.chain(ojs.request("site.note", [1]), ojs.request("site.note", [2])).enqueue()
ojs.group(*[ojs.request("site.note", [each]) for each in range(MANY)]).enqueue()
""",
        left=1 + MANY,
        has=frozenset({"marks"}),
    ),
)

#: The jobs of the site: one is done, half of the others are scheduled, and half are in a paused
#: queue.
SET_UP = """
import django_ojs as ojs
from datetime import datetime, UTC
from django_ojs.operations import queues
call_command("migrate", verbosity=0)
ojs.enqueue("site.note", [1])
queues.pause("closed")
later = datetime(2100, 1, 1, tzinfo=UTC)
for first in range(0, JOBS, 1000):
    some = range(first, min(first + 1000, JOBS), 2)
    ojs.enqueue_batch([ojs.request("site.note", [each], queue="closed") for each in some])
    ojs.enqueue_batch([ojs.request("site.note", [each], scheduled_at=later) for each in some])
"""
#: Print all that a site shows of itself.
LOOK = """
import hashlib, inspect, sys
import django_ojs as ojs
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management import load_command_class
from django.test import Client
from django_ojs.not_installed import NAMES
from django_ojs.models import Job, Queue
from django_ojs.operations.jobs import search_query
from django_ojs.storage.figures import counts

call_command("check")
assert not counts.differences()
users = get_user_model().objects
client = Client()
client.force_login(users.filter(username="root").first() or users.create_superuser("root"))
lines = {{}}
for name in (name for names in NAMES.values() for name in names.split()):
    try:
        getattr(ojs, name)
    except ImproperlyConfigured as error:
        lines[name] = str(error)
parser = load_command_class("django_ojs", "ojs").create_parser("manage.py", "ojs")
with connection.cursor() as cursor:
    cursor.execute({schema!r}, [])
    schema = dict(cursor.fetchall())
tables = sorted(connection.introspection.table_names())
rows = {{}}
for table in tables:
    if table not in {moving!r}:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {{table}}")
            found = sorted(map(repr, cursor.fetchall()))
        # Of a large table a digest says as much.
        digest = hashlib.sha256("".join(found).encode()).hexdigest()
        rows[table] = found if len(found) < 200 else [len(found), digest]
shown = {{
    "schema": schema,
    "rows": rows,
    "tables": [each for each in tables if each.startswith("ojs_")],
    "index": client.get("/admin/").content.decode(),
    "paths": {{path: client.get(path).status_code for path in {paths!r}}},
    "commands": parser.format_help(),
    "qualifiers": list(search_query.qualifiers()),
    "lines": lines,
    "names": [name for name, _ in inspect.getmembers(ojs)],
    "modules": [each for each in sys.modules if each.startswith("django_ojs.extensions.")],
    "states": sorted(set(Job.primary.values_list("state", flat=True))),
}}
"""
#: Print what those who ask for each extension are told, and how a job with attributes that nobody
#: may know is shown. Nothing of it is stored.
ASK = """
from importlib import import_module
from django.db import transaction
from django.test import override_settings
from django_ojs import conf
from django_ojs.hooks import registry
from django_ojs.operations import queues
told = {{}}
for name, code in {asks!r}.items():
    try:
        with transaction.atomic():
            exec(code)
            transaction.set_rollback(True)
    except Exception as error:
        told[name] = str(error)
with transaction.atomic():
    sent = {{"type": "site.note", "args": [1], "colour": "red", "rate_limit": {{"concurrency": 1}}}}
    made = client.post("/ojs/v1/jobs", sent, content_type="application/json").json()["job"]
    found = client.get("/ojs/v1/jobs/" + made["id"]).json()["job"]
    transaction.set_rollback(True)
kept = [{{name: job[name] for name in sent}} for job in (made, found)]
shown |= {{"told": told, "keeps": kept == [sent, sent]}}
"""
#: Tables whose rows change as jobs run, workers come and go, and users log in. `ojs_count` and its
#: changes are compared with the jobs.
MOVING = (
    *("ojs_count", "ojs_count_change"),
    "django_session",
    "auth_user",
    "ojs_event",
    "ojs_incident",
    "ojs_lease",
    "ojs_rollup",
    "ojs_worker",
)
#: Print how much an extension has of the tables of the core.
KEPT = """
from django_ojs.models import Job, Queue
from django_ojs.storage import remains
kept = {
    "hold": Job.primary.exclude(hold=0).count(),
    "marks": Job.primary.exclude(marks=0).count(),
    "rules": Queue.primary.exclude(rules=0).count(),
}
print(json.dumps(kept))
"""
#: A site that has the tables from an older release has nothing to create.
AGAIN = """
from django.db.migrations.recorder import MigrationRecorder
MigrationRecorder(connection).record_unapplied({label!r}, "0001_initial")
call_command("migrate", {label!r}, fake_initial=True, verbosity=0)
"""
OUT = 'call_command("migrate", {label!r}, "zero", verbosity=0)\n'
#: Forget the jobs that an extension has left, once they are done, and what Django keeps of its
#: models.
FORGET = """
from django_ojs.models import Job
done = Job.primary.filter(state="completed").count()
first = min(Job.primary.filter(state="completed").values_list("pk", flat=True))
Job.primary.filter(state__in=["completed", "cancelled"]).exclude(pk=first).delete()
call_command(
    "remove_stale_contenttypes", include_stale_apps=True, interactive=False, verbosity=0
)
"""
WORK = 'call_command("ojs_worker", once=True)\n'


def shown(project: Site, apps: tuple[str, ...], before: str = "", after: str = "") -> Any:
    """Return what a site with these apps shows of itself, between two pieces of code.

    What `after` prints as its last line of JSON comes with it.
    """
    paths = [each.path for each in OPTIONAL if each.path]
    look = LOOK.format(schema=SCHEMA, paths=paths, moving=MOVING)
    ask = ASK.format(asks={each.name: each.asks for each in OPTIONAL})
    return project.ask(apps, f"{before}{look}{ask}{after}\nprint(json.dumps(shown))")


def check_absent(found: Any, extension: Optional) -> None:
    assert not extension.tables.intersection(found["tables"])
    if extension.page:
        assert extension.page not in found["index"]
    assert "/admin/django_ojs/job/" in found["index"]
    assert not extension.names.intersection(found["names"])
    for name in extension.names:
        assert f'Add "{extension.app}" to INSTALLED_APPS' in found["lines"][name]
    assert f'Add "{extension.app}" to INSTALLED_APPS' in found["told"][extension.name]
    assert found["keeps"]
    if extension.path:
        assert found["paths"][extension.path] == 422
    if extension.subcommand:
        assert f"\n    {extension.subcommand} " not in found["commands"]
    assert extension.qualifier not in found["qualifiers"]
    assert not [each for each in found["modules"] if f"{each}.".startswith(f"{extension.app}.")]


def check_present(found: Any, extension: Optional) -> None:
    assert extension.tables <= set(found["tables"])
    assert not extension.names.intersection(found["lines"])
    assert extension.names <= set(found["names"])
    assert "INSTALLED_APPS" not in found["told"].get(extension.name, "")
    assert found["keeps"]
    assert extension.page in found["index"]
    if extension.path:
        assert found["paths"][extension.path] == extension.found
    if extension.subcommand:
        assert f"\n    {extension.subcommand} " in found["commands"]
    if extension.qualifier:
        assert extension.qualifier in found["qualifiers"]


@pytest.fixture
def project(tmp_path: Path, transactional_db: None) -> Iterator[Site]:
    with site(tmp_path) as made:
        yield made


def test_each_optional_app_is_tried() -> None:
    assert tuple(each.name for each in OPTIONAL) == APPS


@pytest.mark.smoke
@pytest.mark.sized
def test_what_is_not_installed_is_not_there_and_what_is_taken_out_leaves_nothing(
    project: Site,
) -> None:
    alone = shown(project, CORE, f"JOBS = {JOBS}\n{SET_UP}{WORK}")
    assert alone["states"] == ["available", "completed", "scheduled"]
    for extension in OPTIONAL:
        with named(extension.name):
            check_absent(alone, extension)
            label = extension.label
            installed = shown(
                project,
                (*CORE, extension.app),
                'call_command("migrate", verbosity=0)\n' + AGAIN.format(label=label),
                f"MANY = {MANY}\n{extension.use}{KEPT}shown |= kept\n{OUT.format(label=label)}",
            )
            check_present(installed, extension)
            assert installed["schema"].keys() > alone["schema"].keys()
            assert {name for name in ("hold", "marks", "rules") if installed[name]} == extension.has
            after = shown(
                project,
                CORE,
                f"{KEPT}assert not any(kept.values())\nassert not remains.objects()\n"
                f"{WORK}{FORGET}{extension.forget}",
                'shown["done"] = done',
            )
            check_absent(after, extension)
            assert after["done"] == 1 + extension.left
            assert after["schema"] == alone["schema"]
            assert after["rows"].keys() == alone["rows"].keys()
            for table, rows in alone["rows"].items():
                assert after["rows"][table] == rows, table


#: Print what a worker logs at its start, and what `doctor` says.
TOLD = """
import io, logging
log, said = io.StringIO(), io.StringIO()
logging.getLogger("django_ojs").addHandler(logging.StreamHandler(log))
call_command("ojs_worker", once=True)
call_command("ojs", "doctor", "--only", "remains", stdout=said)
print(json.dumps([log.getvalue(), said.getvalue()]))
"""


@pytest.mark.smoke
def test_what_was_taken_out_without_its_tables_is_named_by_workers_and_doctor(
    project: Site,
) -> None:
    (outbox,) = (each for each in OPTIONAL if each.name == "outbox")
    before = 'call_command("migrate", verbosity=0)\n'
    project.run((*CORE, outbox.app), f"{before}MANY = 1\n{outbox.use}")
    log, said = project.ask(CORE, TOLD)
    assert "extensions that are not installed here: outbox. What they" in log
    assert "The database has the extension outbox, which is not installed here." in said
    log, said = project.ask((*CORE, outbox.app), TOLD)
    assert "not installed" not in log + said
