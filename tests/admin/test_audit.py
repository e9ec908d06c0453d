"""The audit trail: who did what to which object, over the admin, over HTTP and over a shell."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.test import Client, override_settings
from django.utils import timezone
from django.utils.http import urlencode

from django_ojs.extension import Actor
from django_ojs.extensions.audit import storage as audit
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.cron import operations as cron
from django_ojs.models import Job, Queue
from django_ojs.operations import keyset, queues
from django_ojs.operations.access import operator
from django_ojs.operations.cancel import cancel
from django_ojs.operations.jobs.bulk_step import CANCEL, BulkStep
from django_ojs.spec import ids
from django_ojs.storage import database
from tests import factories
from tests.admin.markup import HOSTILE, structure
from tests.admin.test_plans import plans_of
from tests.admin.users import VIEW, at, root, staff
from tests.command_line.run import ojs
from tests.model_factories import ApiKeyFactory, AuditEntryFactory
from tests.operations.cron.scenes import register
from tests.sizes import FULL

pytestmark = pytest.mark.django_db

BASE = "/admin/django_ojs/"
TRAIL = f"{BASE}auditentry/"
ENTRIES = 1_000_000 if FULL else 50_000
API = "/ojs/v1"
KEYS = {"HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"]}


def trail() -> list[tuple[str, str, str]]:
    rows = AuditEntry.primary.order_by("pk")
    return [(row.actor_kind, row.action, row.object_id) for row in rows]


def changes() -> dict[str, Any]:
    entry = AuditEntry.primary.latest("pk")
    return dict(entry.changes)


def act(client: Client, model: str, action: str, key: object, **values: Any) -> None:
    body = {"key": str(key), "confirmed": "1", **values}
    response = client.post(at(f"{model}/action/{action}/"), body, REMOTE_ADDR="192.0.2.7")
    assert response.status_code == 302, response.content.decode()


def found(client: Client, q: str = "", by: str = "") -> str:
    response = client.get(TRAIL, {"q": q, "by": by})
    assert response.status_code == 200
    return response.content.decode()


def test_three_ways_to_operate_are_on_one_page_with_what_changed() -> None:
    ann = root("ann")
    queues.configure("email", {"backpressure": {"max_depth": 100}})
    assert trail() == [], "what code does by itself is no operator's"
    bounds = {"max_depth": "200", "strategy": "block"}
    act(ann, "queue", "configure", "email", **bounds)
    assert changes() == {
        "backpressure.max_depth": [100, 200],
        "backpressure.strategy": [None, "block"],
    }
    act(ann, "queue", "configure", "email", **bounds)
    key, secret = ApiKeyFactory(scopes=["admin"])
    with override_settings(OJS=KEYS):
        job = factories.push(queue="email")
        sent = {"HTTP_AUTHORIZATION": f"Bearer {secret}", "content_type": "application/json"}
        assert Client().post(f"{API}/queues/email/pause", **sent).status_code == 200
        assert Client().delete(f"{API}/jobs/{job.pk}", **sent).status_code == 200
        assert Client().get(f"{API}/jobs/{job.pk}", **sent).status_code == 200
        rejected = Client().delete(f"{API}/jobs/{ids.uuid7()}", **sent)
        assert rejected.status_code == 404
    assert ojs("resume", "email").code == 0
    assert trail() == [
        ("user", "queue.configured", "email"),
        ("api_key", "queue.paused", "email"),
        ("api_key", "job.cancelled", str(job.pk)),
        ("command", "queue.resumed", "email"),
    ]
    # People come first, with those at a shell.
    program = f">shop ({key.prefix})<"
    page = found(ann)
    assert "192.0.2.7" in page
    assert "queue.resumed</a>" in page
    assert program not in page
    programs = found(ann, by="programs")
    assert program in programs
    assert "192.0.2.7" not in programs
    page = found(ann, by="all")
    assert "192.0.2.7" in page
    assert program in page
    assert secret not in page
    assert "manage.py ojs" in page
    assert re.search(r"backpressure.max_depth:</span> 100 .*→.* 200", page)
    assert f'href="{BASE}queue/email/change/"' in page
    assert f'href="{BASE}job/{job.pk}/change/"' in page
    # The page of the job has its own entries.
    assert "job.cancelled" in ann.get(f"{BASE}job/{job.pk}/change/").content.decode()

    def numbers(q: str) -> int:
        return found(ann, q).count('<td class="ojs-nowrap" data-label="When">')

    for moment in (datetime(2026, 1, 30, 23, 59, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)):
        AuditEntryFactory(pk=ids.first_of(moment), actor="bob", object_id="old")
    assert numbers("actor:ann") == 1
    assert numbers(f'actor:"shop ({key.prefix})" action:queue.*') == 1
    assert numbers("actor:shop*") == numbers("actor:b*") == 2
    assert numbers("object:queue/email") == numbers("object:email") == 3
    assert numbers("object:old day:2026-01-30") == numbers("actor:b* day:2026-01-31") == 1
    assert numbers("day:2026-02-01") == 0
    for wrong in ("actr:ann", "ann", "day:soon", "action:queue.eaten", "actor:a actor:b"):
        assert "Nothing was searched" in found(ann, wrong), wrong
    assert "Did you mean actor" in found(ann, "actr:ann")


@pytest.mark.both
def test_an_entry_and_its_change_are_stored_together_or_not_at_all() -> None:
    actor = Actor(kind="user", name="ann")  # type: ignore[arg-type]  # its value
    job = factories.push()

    def rolled_back() -> None:
        with transaction.atomic(using=database.alias()):
            cancel(job.pk)
            queues.pause("email")
            assert len(trail()) == 2
            transaction.set_rollback(True, using=database.alias())

    with operator.acting(actor):
        rolled_back()
    assert trail() == []
    assert Job.primary.get(pk=job.pk).state == "available"
    assert not Queue.primary.filter(pk="email", paused_at__isnull=False).exists()


def test_an_action_on_many_jobs_has_one_entry_over_http_and_over_a_shell() -> None:
    one, *_ = [factories.in_state("discarded", queue="email").pk for _ in range(4)]
    assert ojs("retry", one).code == 0
    ((kind, action, key),) = trail()
    assert (kind, action, key) == ("command", "jobs.retry", str(one))
    body = {"filter": {"queue": "email", "state": "discarded"}, "confirm": True}
    sent = Client().post(f"{API}/admin/jobs/bulk/retry", body, content_type="application/json")
    assert sent.status_code == 200, sent.content
    entry = AuditEntry.primary.latest("pk")
    assert (entry.actor_kind, entry.actor) == ("other", "anybody")
    detail = {"queue": "email", "states": ["discarded"], "jobs": 3, "skipped": 0}
    assert (entry.action, entry.detail) == ("jobs.retry", detail)
    call_command("ojs_apikey", "create", name="shop", scopes=["read"], stdout=io.StringIO())
    assert AuditEntry.primary.latest("pk").action == "api_key.created"
    # The queues were none and are none: that is no change.
    assert changes() == {"name": [None, "shop"], "scopes": [None, ["read"]]}
    assert len(trail()) == 3


@pytest.mark.both
def test_a_bulk_action_has_one_entry_and_an_old_entry_is_pruned() -> None:
    keys = [factories.push(queue="email").pk for _ in range(3)]
    register("report")
    with operator.acting(Actor(kind="command", name="ann")):  # type: ignore[arg-type]
        BulkStep(CANCEL).run(keys)
        cron.set_enabled("report", True)
    assert trail() == []
    old = timezone.now() - timedelta(days=400)
    for moment in (old, timezone.now()):
        AuditEntryFactory(pk=ids.first_of(moment), object_id="email")
    assert audit.prune() == 1
    assert audit.prune() == 0
    assert AuditEntry.primary.count() == 1


def test_the_page_needs_its_permission_and_links_only_what_its_user_may_see() -> None:
    act(root("ann"), "queue", "pause", "email")
    assert staff(*(set(VIEW) - {"view_auditentry"}), name="bob").get(TRAIL).status_code == 403
    page = found(staff("view_auditentry", name="eve"))
    assert "queue.paused" in page
    assert f"{BASE}queue/" not in page


@pytest.mark.once
def test_hostile_texts_change_no_page() -> None:
    def page(text: str) -> tuple[Any, ...]:
        AuditEntry.primary.all().delete()
        User.objects.all().delete()
        AuditEntryFactory(
            actor_kind="api_key",
            actor=text,
            action="queue.configured",
            source_ip=text[:64],
            object_id=text,
            changes={text: [text, [text]]},
            detail={text: text, "reason": text},
        )
        response = root().get(TRAIL, {"by": "all"})
        assert response.status_code == 200
        found = structure(response.content.decode())
        return found.tags, found.forbidden

    plain = page("harmless")
    for text in HOSTILE:
        if "\0" not in text:
            assert page(text) == plain, text
            assert root("other").get(TRAIL, {"q": text}).status_code == 200
            User.objects.all().delete()


@pytest.mark.postgresql
@pytest.mark.sized
def test_no_search_reads_the_whole_trail() -> None:
    """With a million entries no page takes too long; with fewer, the plans show why."""
    with database.connection().cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO ojs_audit_entry (id, actor_kind, actor, source_ip, action, object_type,
                                         object_id, changes, detail)
            SELECT ('0192' || lpad(to_hex(n), 8, '0') || '70008000' || lpad(to_hex(n), 12, '0'))
                     ::uuid,
                   'user', 'user-' || n %% 7, '', CASE WHEN n = 5 THEN 'queue.deleted' WHEN n %% 2
                     = 0 THEN 'job.cancelled' ELSE 'job.retried' END,
                   'job', 'job-' || n, '{}', '{}'
            FROM generate_series(1, %s) AS n
            """,
            [ENTRIES],
        )
        cursor.execute("ANALYZE ojs_audit_entry")
    client = root()
    wanted = (
        *("", "actor:user-3", "actor:none", "actor:use*", "actor:none*", "action:queue.deleted"),
        *("action:queue.*", "action:job.* actor:user-2", "object:job/job-77", "object:none"),
        *("day:2024-01-01", "actor:user-1 action:queue.deleted", "day:2026-01-01 actor:user-1"),
    )
    for q, by in (*((each, "") for each in wanted), ("", "programs"), ("action:job.*", "programs")):
        assert "took too long" not in found(client, q, by), q
        address = f"auditentry/?{urlencode({'q': q, 'by': by})}"
        plans = list(plans_of(client, address, "ojs_audit_entry"))
        assert plans
        if by or "*" in q:
            continue  # Without an index: such a search reads until its limit of time.
        for statement, plan in plans:
            assert "Seq Scan on ojs_audit_entry" not in plan, f"{q}\n{statement}\n{plan}"
    middle = AuditEntry.primary.order_by("-pk").values_list("pk")[ENTRIES // 2]
    assert ">Next" in client.get(TRAIL, {"after": keyset.write(middle)}).content.decode()
