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
from tests.cases import named
from tests.extensions.sites import SCHEMA, Site, site

CORE = ("django_ojs",)


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
    #: Code that uses it and leaves jobs, and how many of these complete once it is taken out.
    use: str
    left: int = 0
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
        tables=frozenset({"ojs_checkpoint"}),
        path="/ojs/v1/jobs/019539a4-b68c-7def-8000-1a2b3c4d5e6f/checkpoint",
        found=404,
        # One waits after a run that has saved a checkpoint, and one is marked and has ended.
        use="""
import django_ojs as ojs
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.operations import ack, fail, fetch
from django_ojs.spec.failure import Failure
for number in (1, 2):
    ojs.enqueue("site.note", [number], retry=ojs.RetryPolicy(max_attempts=1))
first, second = fetch.fetch(["default"], count=2)
for job in (first, second):
    checkpoint.save(job.id, {"page": 4})
ack.ack(first.id)
fail.fail(second.id, Failure(type="Boom", message="boom"))
ojs.retry(second.id)
""",
        left=2,
    ),
    Optional(
        name="cron",
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
        tables=frozenset({"ojs_limited_queue", "ojs_limit_key", "ojs_limit_check"}),
        page="/admin/ojs_limits/limitkey/",
        path="/ojs/v1/rate-limits",
        subcommand="limits",
        # One job has run under the limit of its key, one is held, and one waits for its queue.
        use="""
import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.operations import fetch, queues
from django_ojs.spec import hold
limit = ojs.RateLimitPolicy(key="acme", concurrency=1)
for number in (1, 2):
    ojs.enqueue("site.note", [number], rate_limit=limit)
(running,) = fetch.fetch(["default"], count=2)
assert Job.primary.filter(hold__gt=hold.FIRST_HELD).count() == 1
queues.configure("default", {"concurrency": 1, "rate_limit": {"limit": 1, "period": "PT1H"}})
ojs.enqueue("site.note", [3])
assert fetch.fetch(["default"]) == []
ojs.cancel(running.id)
""",
        left=2,
        forget="""
from django_ojs.models import Queue
assert not Queue.primary.exclude(rules=0).exists()
Queue.primary.filter(pk="default").delete()
""",
    ),
    Optional(
        name="outbox",
        tables=frozenset({"ojs_outbox"}),
        page="/admin/ojs_outbox/outboxentry/",
        # A job that had no room, and has it now, is stored before the table is dropped.
        use="""
import django_ojs as ojs
from django_ojs.extensions.outbox import operations as outbox
from django_ojs.options import envelope_of
job = envelope_of(ojs.request("site.note", [1]))
outbox.add([job], ["local"], using="default", generated_ids=True)
""",
        left=1,
    ),
    Optional(
        name="tenants",
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
""",
        left=3,
        forget="""
from django_ojs.models import Queue
assert not Queue.primary.exclude(rules=0).exists()
Queue.primary.filter(pk="default").delete()
""",
    ),
    Optional(
        name="webhooks",
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
dispatch.dispatch()
assert WebhookDelivery.objects.count() == 1
""",
        left=1,
    ),
    Optional(
        name="workflows",
        tables=frozenset({"ojs_workflow", "ojs_workflow_step", "ojs_workflow_ended_job"}),
        page="/admin/ojs_workflows/workflow/",
        path="/ojs/v1/workflows",
        subcommand="workflows",
        # The second step of the chain has no job yet: it goes with its workflow.
        use="""
import django_ojs as ojs
ojs.chain(ojs.request("site.note", [1]), ojs.request("site.note", [2])).enqueue()
ojs.group(ojs.request("site.note", [3]), ojs.request("site.note", [4])).enqueue()
""",
        left=3,
    ),
)

#: One job that is done, and one that waits.
SET_UP = """
import django_ojs as ojs
from datetime import datetime, UTC
call_command("migrate", verbosity=0)
ojs.enqueue("site.note", [1])
ojs.enqueue("site.note", [2], scheduled_at=datetime(2100, 1, 1, tzinfo=UTC))
"""
#: Print all that a site shows of itself.
LOOK = """
import sys
import django_ojs as ojs
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management import load_command_class
from django.test import Client
from django_ojs.not_installed import NAMES
from django_ojs.models import Job, Queue

call_command("check")
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
shown = {{
    "schema": schema,
    "tables": [each for each in connection.introspection.table_names() if each.startswith("ojs_")],
    "index": client.get("/admin/").content.decode(),
    "paths": {{path: client.get(path).status_code for path in {paths!r}}},
    "commands": parser.format_help(),
    "lines": lines,
    "modules": [each for each in sys.modules if each.startswith("django_ojs.extensions.")],
    "rows": [list(map(repr, each.primary.order_by("pk").values_list())) for each in (Job, Queue)],
    "states": sorted(Job.primary.values_list("state", flat=True)),
}}
"""
#: Forget the jobs that an extension has left, once they are done.
FORGET = """
from django_ojs.models import Job
done = Job.primary.filter(state="completed").count()
first = min(Job.primary.filter(state="completed").values_list("pk", flat=True))
Job.primary.filter(state__in=["completed", "cancelled"]).exclude(pk=first).delete()
"""
WORK = 'call_command("ojs_worker", once=True)\n'


def shown(project: Site, apps: tuple[str, ...], before: str = "", after: str = "") -> Any:
    """Return what a site with these apps shows of itself, after it has run some code."""
    look = LOOK.format(schema=SCHEMA, paths=[each.path for each in OPTIONAL if each.path])
    return project.ask(apps, f"{before}{look}{after}\nprint(json.dumps(shown))")


def check_absent(found: Any, extension: Optional) -> None:
    assert not extension.tables.intersection(found["tables"])
    if extension.page:
        assert extension.page not in found["index"]
    assert "/admin/django_ojs/job/" in found["index"]
    for name in extension.names:
        assert f'Add "{extension.app}" to INSTALLED_APPS' in found["lines"][name]
    if extension.path:
        assert found["paths"][extension.path] == 422
    if extension.subcommand:
        assert f"\n    {extension.subcommand} " not in found["commands"]
    assert not [each for each in found["modules"] if f"{each}.".startswith(f"{extension.app}.")]


def check_present(found: Any, extension: Optional) -> None:
    assert extension.tables <= set(found["tables"])
    assert not extension.names.intersection(found["lines"])
    assert extension.page in found["index"]
    if extension.path:
        assert found["paths"][extension.path] == extension.found
    if extension.subcommand:
        assert f"\n    {extension.subcommand} " in found["commands"]


@pytest.fixture
def project(tmp_path: Path, transactional_db: None) -> Iterator[Site]:
    with site(tmp_path) as made:
        yield made


def test_each_optional_app_is_tried() -> None:
    assert tuple(each.name for each in OPTIONAL) == APPS


@pytest.mark.smoke
def test_what_is_not_installed_is_not_there_and_what_is_taken_out_leaves_nothing(
    project: Site,
) -> None:
    alone = shown(project, CORE, SET_UP + WORK)
    assert alone["states"] == ["completed", "scheduled"]
    for extension in OPTIONAL:
        with named(extension.name):
            check_absent(alone, extension)
            installed = shown(
                project,
                (*CORE, extension.app),
                'call_command("migrate", verbosity=0)\n',
                extension.use
                + f'call_command("migrate", "{extension.label}", "zero", verbosity=0)',
            )
            check_present(installed, extension)
            assert installed["schema"].keys() > alone["schema"].keys()
            after = shown(project, CORE, WORK + FORGET + extension.forget, "shown['done'] = done")
            assert after["done"] == 1 + extension.left
            check_absent(after, extension)
            assert (after["schema"], after["rows"]) == (alone["schema"], alone["rows"])
