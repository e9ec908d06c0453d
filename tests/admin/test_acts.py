"""An act of an operator is one row of the audit trail and one line of the log, by each door."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client, TestCase, override_settings

import django_ojs
from django_ojs.extension import Actor
from django_ojs.extensions.audit import storage as audit
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.models import ActorKind
from django_ojs.models.bulk_operation import BulkActionName
from django_ojs.operations import queues
from django_ojs.operations.access import operator
from django_ojs.operations.jobs import bulk_operations
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.maintenance import mode
from django_ojs.storage import database
from django_ojs.storage.figures import counts
from tests import factories
from tests.admin.users import at, root
from tests.command_line.run import ojs
from tests.model_factories import ApiKeyFactory, SubscriptionFactory
from tests.operations.cron.scenes import register
from tests.testapp.testing_jobs import send

# An act is one operation whichever door it comes through; the databases differ below these.
pytestmark = [pytest.mark.django_db, pytest.mark.once]

BASE = "/admin/django_ojs/"
AUTHENTICATION = [
    "django_ojs.http.authentication.StaffSessionAuthentication",
    "django_ojs.http.authentication.ApiKeyAuthentication",
]
SURE = {"confirm": True}
HOOK: dict[str, Any] = {"url": "https://hooks.example.com/secret-path", "events": ["job.*"]}


@dataclass(frozen=True, kw_only=True)
class Act:
    """An act. `scene` makes what it is done to, and returns its key, `{}` in what follows.

    `admin` is an address below the pages and a form; `http` a method, a path and a body; `command`
    what follows `manage.py`. What is None is no way to do it. `changes` is what the row says.
    """

    action: str
    scene: Callable[[], Any] = lambda: "mail"
    admin: tuple[str, dict[str, Any]] | None = None
    http: tuple[str, str, dict[str, Any]] | None = None
    command: str | None = None
    changes: dict[str, Any] | None = None


def on_page(model: str, action: str, **values: Any) -> tuple[str, dict[str, Any]]:
    return f"{model}/action/{action}/", {"key": "{}", "confirmed": "1", **values}


def selected(model: str, action: str, **values: Any) -> tuple[str, dict[str, Any]]:
    return f"{model}/", {"action": action, "_selected_action": "{}", **values}


def job(state: str) -> Callable[[], Any]:
    return lambda: factories.in_state(state, queue="mail").pk


def queue(*changes: Callable[..., Any]) -> Callable[[], str]:
    def scene() -> str:
        factories.push(queue="mail")
        for change in changes:
            change("mail")
        return "mail"

    return scene


def created_queue() -> str:
    queues.create("mail")
    return "mail"


def schedule(enabled: bool = True) -> Callable[[], str]:
    def scene() -> str:
        register("report")
        cron.set_enabled("report", enabled)
        return "report"

    return scene


def worker() -> str:
    return factories.WorkerFactory(id="w", queues=("mail",)).pk


def stale_worker() -> str:
    factories.silence(worker(), timedelta(days=1))
    return "w"


def workflow() -> Any:
    return django_ojs.chain(send.s("ada"), send.s("eve")).enqueue().id


def api_key() -> Any:
    return ApiKeyFactory()[0].pk


def api_key_prefix() -> str:
    return ApiKeyFactory()[0].prefix


def webhook() -> Any:
    return SubscriptionFactory(**HOOK)[0].pk


def limit(*changes: Callable[[], object]) -> Callable[[], str]:
    def scene() -> str:
        factories.push(queue="mail", rate_limit={"key": "acme", "concurrency": 1})
        for change in changes:
            change()
        return "acme"

    return scene


def override() -> None:
    limit_keys.override("acme", {"concurrency": 2})


def pause_key() -> None:
    limit_keys.pause(["acme"], timedelta(hours=1))


def bulk_operation() -> Any:
    factories.push_many(2, queue="mail")
    return bulk_operations.order(BulkActionName.CANCEL, JobFilter(queue="mail"), by="x").pk


def in_maintenance() -> str:
    mode.enable(reason="a move")
    return "1"


def rejected() -> Any:
    outbox = {"far": {"url": "http://127.0.0.1:9", "types": ["*"]}}
    with override_settings(OJS={"OUTBOX": outbox}):
        django_ojs.enqueue("test.job", [])
    OutboxEntry.objects.update(state="rejected", position=1, error_code="X", error_message="no")
    return OutboxEntry.objects.get().pk


def wrong_counter() -> str:
    factories.push(queue="mail")
    counts.fold()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ojs_count SET n = 7 WHERE queue = 'mail'")
    return "counters"


KEY = {"name": "billing", "scopes": ["producer"], "queues": "", "expires_at_0": ""}
CRON = {
    "name": "report",
    "expression": "0 5 * * *",
    "timezone": "UTC",
    "type": "report.send",
    "queue": "mail",
    "args": '["secret-argument"]',
    "overlap_policy": "allow",
}
PAGE_HOOK = HOOK | {"events": "job.*", "active": "on"}
CHANGED_HOOK = {
    "url": "https://hooks.example.com/other-secret-path",
    "events": "job.discarded",
    "active": "on",
}
HTTP_CRON = {"name": "report", "cron": "0 5 * * *", "type": "report.send", "args": []}

ACTS = [
    Act(action="job.enqueued", scene=job("completed"), admin=on_page("job", "run-again")),
    Act(
        action="job.retried",
        scene=job("discarded"),
        admin=on_page("job", "retry"),
        http=("POST", "v1/admin/jobs/{}/retry", {}),
    ),
    Act(
        action="job.cancelled",
        scene=job("available"),
        admin=on_page("job", "cancel"),
        http=("DELETE", "v1/jobs/{}", {}),
    ),
    Act(
        action="job.deleted",
        scene=job("discarded"),
        admin=on_page("job", "delete"),
        http=("DELETE", "v1/dead-letter/{}", {}),
    ),
    Act(
        action="job.run_now",
        scene=job("scheduled"),
        admin=on_page("job", "run-now"),
        changes={"state": ["scheduled", "available"]},
    ),
    Act(
        action="job.retried",
        scene=job("discarded"),
        admin=on_page("job", "retry-with", queue="slow", priority="5"),
        changes={
            "state": ["discarded", "available"],
            "queue": ["mail", "slow"],
            "priority": [0, 5],
        },
    ),
    Act(
        action="job.activated",
        scene=job("pending"),
        admin=on_page("job", "activate"),
        http=("POST", "v1/jobs/{}/activate", {}),
    ),
    Act(
        action="job.history_deleted",
        scene=job("discarded"),
        admin=on_page("job", "delete-history"),
        http=("DELETE", "v1/jobs/{}/history", {}),
    ),
    Act(
        action="jobs.retry",
        scene=job("discarded"),
        http=("POST", "v1/admin/jobs/bulk/retry", SURE | {"job_ids": ["{}"]}),
        command="ojs retry {}",
    ),
    Act(
        action="jobs.cancel",
        scene=job("available"),
        http=("POST", "v1/admin/jobs/bulk/cancel", SURE | {"job_ids": ["{}"]}),
        command="ojs cancel {}",
    ),
    Act(
        action="jobs.delete",
        scene=job("completed"),
        http=("POST", "v1/admin/jobs/bulk/delete", SURE | {"job_ids": ["{}"]}),
    ),
    Act(action="jobs.run_now", scene=job("scheduled"), command="ojs run-now {}"),
    Act(action="jobs.exported", scene=job("completed"), command="ojs export"),
    Act(action="jobs.imported", command="ojs import {file}"),
    Act(
        action="bulk.ordered",
        scene=job("discarded"),
        admin=("bulkoperation/create/retry/", {"q": "state:discarded"}),
        command="ojs retry state:discarded --yes",
    ),
    Act(
        action="bulk.stopped",
        scene=bulk_operation,
        admin=on_page("bulkoperation", "stop"),
        changes={"state": ["pending", "stopped"]},
    ),
    Act(action="doctor.repaired", scene=wrong_counter, command="ojs doctor --only={} --repair"),
    Act(action="queue.created", http=("POST", "v1/queues", {"name": "{}"})),
    Act(
        action="queue.configured",
        scene=queue(),
        admin=on_page("queue", "configure", max_depth="9", strategy="block"),
        http=("PUT", "v1/queues/{}/config", {"backpressure": {"max_depth": 9}}),
    ),
    Act(
        action="queue.paused",
        scene=queue(),
        admin=on_page("queue", "pause"),
        http=("POST", "v1/queues/{}/pause", {}),
        command="ojs pause {}",
        changes={"state": [["active"], ["paused"]]},
    ),
    Act(
        action="queue.drained",
        scene=queue(queues.pause),
        admin=on_page("queue", "drain"),
        http=("POST", "v1/queues/{}/drain", {}),
        command="ojs drain {}",
        changes={"state": [["paused"], ["paused", "draining"]]},
    ),
    Act(
        action="queue.resumed",
        scene=queue(queues.pause, queues.drain),
        admin=on_page("queue", "resume"),
        http=("POST", "v1/queues/{}/resume", {}),
        command="ojs resume {}",
        changes={"state": [["paused", "draining"], ["active"]]},
    ),
    Act(
        action="queue.purged",
        scene=queue(),
        admin=on_page("queue", "purge", states=["available"], confirm_name="{}"),
        http=("DELETE", "v1/admin/queues/{}/jobs", SURE | {"states": ["available"]}),
        command="ojs purge {} --state available --yes",
    ),
    Act(action="queue.deleted", scene=created_queue, http=("DELETE", "v1/queues/{}", {})),
    Act(
        action="cron.created",
        admin=("cronjob/create/", CRON),
        http=("POST", "v1/cron", HTTP_CRON),
    ),
    Act(action="cron.changed", scene=schedule(), admin=("cronjob/{}/edit/", CRON)),
    Act(
        action="cron.removed",
        scene=schedule(),
        admin=on_page("cronjob", "remove"),
        http=("DELETE", "v1/cron/{}", {}),
    ),
    Act(
        action="cron.paused",
        scene=schedule(),
        admin=on_page("cronjob", "pause"),
        http=("PATCH", "v1/cron/{}", {"enabled": False}),
        command="ojs cron pause {}",
        changes={"enabled": [True, False]},
    ),
    Act(
        action="cron.resumed",
        scene=schedule(enabled=False),
        admin=on_page("cronjob", "resume"),
        http=("PATCH", "v1/cron/{}", {"enabled": True}),
        command="ojs cron resume {}",
        changes={"enabled": [False, True]},
    ),
    Act(
        action="cron.run",
        scene=schedule(),
        admin=on_page("cronjob", "run"),
        command="ojs cron run {}",
    ),
    Act(
        action="worker.directed",
        scene=worker,
        admin=on_page("worker", "quiet"),
        http=("POST", "v1/admin/workers/{}/quiet", {}),
    ),
    Act(
        action="worker.deregistered",
        scene=stale_worker,
        admin=on_page("worker", "deregister"),
        http=("DELETE", "v1/admin/workers/{}", {}),
    ),
    Act(
        action="workflow.cancelled",
        scene=workflow,
        admin=on_page("workflow", "cancel"),
        http=("DELETE", "v1/workflows/{}", {}),
        command="ojs workflows cancel {} --yes",
    ),
    Act(
        action="api_key.created",
        admin=("apikey/add/", KEY),
        command="ojs_apikey create --name=shop --scope=read",
    ),
    Act(
        action="api_key.changed",
        scene=api_key,
        admin=("apikey/{}/change/", KEY | {"name": "bills"}),
        changes={"name": ["shop", "bills"], "scopes": [["read"], ["producer"]]},
    ),
    Act(action="api_key.replaced", scene=api_key, admin=("apikey/{}/replace/", {"grace": "1"})),
    Act(action="api_key.replaced", scene=api_key_prefix, command="ojs_apikey replace {}"),
    Act(action="api_key.revoked", scene=api_key, admin=selected("apikey", "revoke")),
    Act(action="api_key.revoked", scene=api_key_prefix, command="ojs_apikey revoke {}"),
    Act(action="api_key.deleted", scene=api_key, admin=("apikey/{}/delete/", {"post": "yes"})),
    Act(
        action="limit_key.overridden",
        admin=("limitkey/add/", {"key": "acme", "concurrency": "3"}),
        changes={"concurrency": [None, 3]},
    ),
    Act(
        action="limit_key.overridden",
        scene=limit(),
        admin=("limitkey/{}/change/", {"concurrency": "3"}),
        http=("PUT", "v1/rate-limits/{}", {"concurrency": 3}),
    ),
    Act(
        action="limit_key.override_removed",
        scene=limit(override),
        admin=selected("limitkey", "remove_overrides"),
        http=("DELETE", "v1/rate-limits/{}", {}),
    ),
    Act(
        action="limit_key.paused",
        scene=limit(),
        admin=on_page("limitkey", "pause", duration="1h"),
        command="ojs limits pause {} --for 1h",
    ),
    Act(
        action="limit_key.opened",
        scene=limit(pause_key),
        admin=on_page("limitkey", "resume"),
        command="ojs limits resume {}",
    ),
    Act(
        action="webhook.created",
        admin=("webhook/add/", PAGE_HOOK),
        http=("POST", "v1/webhooks/subscriptions", HOOK),
    ),
    Act(
        action="webhook.changed",
        scene=webhook,
        admin=("webhook/{}/change/", CHANGED_HOOK),
        changes={"events": [["job.*"], ["job.discarded"]]},
    ),
    Act(
        action="webhook.changed",
        scene=webhook,
        http=("PATCH", "v1/webhooks/subscriptions/{}", {"active": False}),
        command="ojs webhooks disable {}",
        changes={"active": [True, False]},
    ),
    Act(
        action="webhook.removed",
        scene=webhook,
        admin=("webhook/{}/delete/", {"post": "yes"}),
        http=("DELETE", "v1/webhooks/subscriptions/{}", {}),
    ),
    Act(
        action="webhook.secret_rotated",
        scene=webhook,
        admin=("webhook/{}/change/", PAGE_HOOK | {"_rotate": "1"}),
        http=("POST", "v1/webhooks/subscriptions/{}/rotate-secret", {}),
    ),
    Act(
        action="maintenance.started",
        scene=lambda: "1",
        admin=on_page("overview", "start-maintenance", reason="a move"),
        http=("POST", "v1/admin/system/maintenance", {"enabled": True, "reason": "a move"}),
        changes={"maintenance": ["off", "on"], "reason": [None, "a move"]},
    ),
    Act(
        action="maintenance.ended",
        scene=in_maintenance,
        admin=on_page("overview", "end-maintenance"),
        http=("POST", "v1/admin/system/maintenance", {"enabled": False}),
        changes={"maintenance": ["on", "off"], "reason": ["a move", None]},
    ),
    Act(action="outbox.requeued", scene=rejected, admin=selected("outboxentry", "requeue")),
    Act(
        action="outbox.deleted",
        scene=rejected,
        admin=selected("outboxentry", "delete_selected", post="yes"),
    ),
]


def filled(value: Any, key: object) -> Any:
    """Return a form or a body with the key of the scene."""
    if isinstance(value, dict):
        return {name: filled(each, key) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, key) for each in value]
    return value.replace("{}", str(key)) if isinstance(value, str) else value


def in_admin(act: Act, key: object, tmp_path: Path) -> None:
    assert act.admin is not None
    address, form = act.admin
    response = root("ann").post(at(f"{filled(address, key)}"), filled(form, key))
    # A page shows the secret of a webhook and of a key; others lead on.
    status = 200 if act.action in SHOWING_A_SECRET else 302
    assert response.status_code == status, response.content.decode()


def over_http(act: Act, key: object, client: Client, **headers: Any) -> None:
    assert act.http is not None
    method, path, body = act.http
    response = client.generic(
        method,
        f"/ojs/{filled(path, key)}",
        json.dumps(filled(body, key)),
        content_type="application/json",
        HTTP_X_REQUEST_ID="req_1",
        **headers,
    )
    assert response.status_code < 300, response.content


def over_http_by_session(act: Act, key: object, tmp_path: Path) -> None:
    over_http(act, key, root("ann"))


def over_http_by_key(act: Act, key: object, tmp_path: Path) -> None:
    _, secret = ApiKeyFactory(scopes=["admin"])
    over_http(act, key, Client(), HTTP_AUTHORIZATION=f"Bearer {secret}")


def by_command(act: Act, key: object, tmp_path: Path) -> None:
    assert act.command is not None
    file = tmp_path / "jobs.jsonl"
    file.write_text(json.dumps({"type": "test.job", "args": [], "options": {"queue": "mail"}}))
    name, *arguments = filled(act.command, key).replace("{file}", str(file)).split()
    if name == "ojs":
        run = ojs(*arguments)
        assert run.code == 0, run.err
    else:
        call_command(name, *arguments, stdout=io.StringIO(), stderr=io.StringIO())


SHOWING_A_SECRET = {
    *("webhook.created", "webhook.secret_rotated", "api_key.created", "api_key.replaced"),
}
DOORS = {
    "admin": (in_admin, "user"),
    "session": (over_http_by_session, "user"),
    "key": (over_http_by_key, "api_key"),
    "command": (by_command, "command"),
}
WAYS = {"admin": "admin", "session": "http", "key": "http", "command": "command"}
CASES = [
    pytest.param(act, door, id=f"{act.action}-{door}")
    for act in ACTS
    for door, way in WAYS.items()
    if getattr(act, way) is not None
]


@pytest.mark.parametrize(("act", "door"), CASES)
def test_an_act_is_one_row_and_one_line(
    act: Act, door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    do, kind = DOORS[door]
    key = act.scene()
    with ExitStack() as stack:
        stack.enter_context(override_settings(OJS={"HTTP_AUTHENTICATION": AUTHENTICATION}))
        stack.enter_context(caplog.at_level(logging.INFO))
        using = database.alias()
        stack.enter_context(TestCase.captureOnCommitCallbacks(using=using, execute=True))
        do(act, key, tmp_path)
    entry = AuditEntry.primary.get()
    assert (entry.action, entry.actor_kind) == (act.action, kind)
    assert entry.object_type in audit.OBJECT_TYPES
    assert act.changes is None or entry.changes == act.changes
    # It says more than the name of the act, and no argument, address or secret.
    assert entry.changes or entry.detail or act.action == "doctor.repaired"
    assert "secret-" not in f"{entry.changes} {entry.detail}"
    (line,) = [vars(record) for record in caplog.records if hasattr(record, "event_type")]
    assert (line["name"], line["levelname"]) == ("django_ojs", "INFO")
    assert (line["event_type"], line["principal"]) == (act.action, entry.actor)
    assert (line["outcome"], line["source_ip"]) == ("success", entry.source_ip)
    assert line["correlation_id"] == ("req_1" if WAYS[door] == "http" else "")
    assert line["detail"] == {
        "object": f"{entry.object_type}/{entry.object_id}",
        "door": entry.actor_kind,
    }
    assert not LogEntry.objects.exists()
    assert entry.actor in caplog.text


#: Those of steps are in tests/extensions/steps/test_admin.py.
_OF_STEPS = {"job.signalled", "job.wait_ended", "job.steps_forgotten"}


def test_each_act_is_in_the_table() -> None:
    assert {act.action for act in ACTS} | _OF_STEPS >= {*audit.ACTIONS}


def test_each_act_that_the_package_records_can_be_searched_for() -> None:
    package = Path(django_ojs.__file__).parent
    texts = [path.read_text() for path in package.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r'acted\(\s*"([^"]+)"', text)}
    assert found >= _OF_STEPS
    assert found <= {*audit.ACTIONS}


def test_an_act_that_is_rolled_back_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    using = database.alias()
    with (
        caplog.at_level(logging.INFO),
        operator.acting(Actor(kind=ActorKind.USER, name="ann")),
        TestCase.captureOnCommitCallbacks(using=using, execute=True),
        transaction.atomic(using=using),
    ):
        queues.pause("mail")
        transaction.set_rollback(True, using=using)
    assert not [record for record in caplog.records if hasattr(record, "event_type")]
    assert not AuditEntry.primary.exists()
