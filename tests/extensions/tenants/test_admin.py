"""The tenants on the page of a queue: those with the most waiting jobs."""

from __future__ import annotations

from contextlib import redirect_stdout, suppress
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client, override_settings

from django_ojs.extensions.backpressure.operations import rejection_counts
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.tenants import admin as pages
from django_ojs.operations import queues
from django_ojs.spec.errors import QueueFull
from tests import factories
from tests.admin.users import VIEW, root, staff

pytestmark = pytest.mark.django_db

PAGE = "/admin/django_ojs/queue/shared/change/"


def text(client: Client) -> str:
    response = client.get(PAGE)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def add(tenant: str, number: int = 1) -> None:
    factories.push_many(number, queue="shared", meta={"tenant_id": tenant})


def test_the_page_shows_the_tenants_with_the_most_waiting_jobs_and_their_bounds() -> None:
    client = root()
    add("before")
    assert "<h2>Tenants" not in text(client)
    fairness = {"enabled": True, "weights": {"acme": 3}}
    limits = {"max_queue_depth": 9, "tenants": {"acme": {"max_queue_depth": 4}}}
    queues.configure("shared", {"tenant_limits": limits, "tenant_fairness": fairness})
    add("acme", 4)
    factories.push(queue="shared")
    shown = text(client)
    assert '>acme</th> <td data-label="Waiting">4 <small class="ojs-state ojs-is-bad">full' in shown
    assert '<td data-label="Bound">4</td> <td data-label="Jobs in a turn">3</td>' in shown
    assert "_default <small>jobs without a tenant" in shown
    assert shown.index(">acme<") < shown.index("_default") < shown.index(">before<")
    for n in range(pages.MAX_TENANTS):
        add(f"more{n}", 2)
    shown = text(client)
    assert "there may be more" in shown
    assert ">before<" not in shown
    queues.configure("shared", {"tenant_limits": None})
    assert "no bound" in text(client)


@pytest.mark.django_db(transaction=True)
def test_names_of_tenants_are_for_those_who_see_metadata() -> None:
    queues.configure("shared", {"tenant_limits": {"max_queue_depth": 1}})
    add("acme")
    with pytest.raises(QueueFull):
        add("acme")
    rejection_counts.recorder.reset()
    rollups.flush()
    viewer = text(staff(*VIEW))
    assert "You need the permission to see payloads for tenants" in viewer
    assert "acme" not in viewer
    reader = staff(*VIEW, "view_payload_job", name="reader")
    shown = text(reader)
    assert ">acme<" in shown
    assert '<span class="ojs-muted">tenant_id</span> acme' in shown, "in the event too"
    overview = reader.get("/admin/django_ojs/overview/").content.decode()
    assert "<b>Tenants of queue shared were at their bounds in the last hour" in overview
    with redirect_stdout(StringIO()) as said, suppress(SystemExit):
        call_command("ojs", "doctor")
    assert "Tenants of queue shared were at their bounds in the last hour" in said.getvalue()
    with override_settings(OJS={"ADMIN_REDACT": ["tenant_id"]}):
        assert "acme" not in text(reader)
