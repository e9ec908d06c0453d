"""The pages violate no rule of axe: WCAG 2.2 at level AA, and axe's best practices."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import django_ojs as ojs
from django_ojs.extension import Actor
from django_ojs.extensions.limits import limit_keys
from django_ojs.models import ActorKind
from django_ojs.models.bulk_operation import BulkActionName
from django_ojs.operations import ack, fail, queues
from django_ojs.operations.access import operator
from django_ojs.operations.jobs import bulk_execution, bulk_operations
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.failure import Failure
from tests.admin.users import at
from tests.factories import WorkerFactory, active, claim, hourly, in_state, push, push_many, silence
from tests.model_factories import ApiKeyFactory
from tests.operations.cron.scenes import register

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

ADMIN = "/admin/django_ojs/"

#: What Django's own templates render, the same on every site.
DJANGO = [["#header"], [".breadcrumbs"], ["#changelist-search"], ["#nav-sidebar"], [".quiet"]]


def incident() -> list[str]:
    """Create something of each kind, and return the addresses of all pages."""
    policy = hourly(1, on_exhaustion="dead_letter")
    dead = active(queue="email", type="email.send", retry=policy)
    fail.fail(dead.id, Failure(type="smtp.Rejected", message="550", backtrace=("a.py:1",)))
    queues.configure("email", {"backpressure": {"max_depth": 4}})
    push_many(4, queue="email")
    for state in ("scheduled", "retryable", "completed", "cancelled"):
        in_state(state, queue="report")
    register("weekdays", "0 9 * * MON-FRI", timezone="Europe/Paris")
    WorkerFactory(id="web-1", queues=("held",), concurrency=2, labels=("eu",), release="v1")
    in_state("completed", queue="held")
    ack.ack(active("web-1", queue="held").id)
    claim(push(queue="held", args=[{"user": 1}]), "web-1")
    key, _ = ApiKeyFactory()
    WorkerFactory(id="gone")
    silence("gone", timedelta(hours=2))
    ended = in_state("completed", type="testapp.add", args=[1, 2])
    with operator.acting(Actor(kind=ActorKind.API_KEY, name="shop (k3v9x0a2bq)")):
        queues.pause("report")
        queues.configure("report", {"backpressure": {"max_depth": 900, "strategy": "block"}})
    workflow = ojs.chain(
        ojs.request("order.charge"),
        ojs.group(*[ojs.request("order.label")] * 9),
        ojs.request("order.ship"),
        name="order",
    ).enqueue()
    limit_keys.override("acme", {"concurrency": 3})
    push(queue="held", rate_limit={"key": "acme", "concurrency": 3})
    limit_keys.pause(["acme"], timedelta(hours=1))
    stopped = bulk_operations.order(BulkActionName.CANCEL, JobFilter(queue="report"), by="root")
    bulk_execution.work_once()
    return [
        *("overview/", "queue/", "queue/email/change/", "queue/action/configure/?key=email"),
        *("job/", "job/?q=is:active", "job/?q=user@example.com", f"job/{dead.id}/change/"),
        "job/type/?type=email.send",
        *("job/gone/change/", "deadletterjob/", "bulkoperation/"),
        f"bulkoperation/{stopped.pk}/change/",
        *("bulkoperation/create/retry/?q=is:dead", "event/", "outboxentry/"),
        *("worker/", "worker/web-1/change/", "worker/action/quiet/?key=web-1"),
        *("cronjob/", "cronjob/weekdays/change/", "cronjob/create/"),
        *(
            "auditentry/?by=all",
            "auditentry/?q=actr:x",
            "job/enqueue/",
            "job/enqueue/?type=testapp.add",
        ),
        *("job/enqueue/?type=other.go", f"job/enqueue/?copy={ended.id}"),
        *("workflow/", f"workflow/{workflow.id}/change/"),
        f"workflow/action/cancel/?key={workflow.id}",
        *("limitkey/", "limitkey/add/", "limitkey/acme/change/"),
        "limitkey/action/pause/?key=acme",
        *("apikey/", "apikey/add/", f"apikey/{key.pk}/change/", f"apikey/{key.pk}/replace/"),
        *("job/?q=queue:email&all=1", "queue/held/change/"),
    ]


def violations(page: Any) -> list[str]:
    """Return the rules that the page violates, with the first element of each.

    Only these leave the browser: the results that axe returns hold all that was looked at.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    # Colours change slowly after a change of the scheme.
    page.evaluate("() => Promise.allSettled(document.getAnimations().map(each => each.finished))")
    found = page.evaluate(
        """async context => {
            const results = await axe.run(context, {resultTypes: ["violations"]});
            return results.violations.map(each => [each.id, each.nodes[0].html]);
        }""",
        {"exclude": DJANGO},
    )
    return [f"{rule}: {html[:200]}" for rule, html in found]


def test_no_page_violates_a_rule_of_accessibility(page: Any) -> None:
    addresses = incident()
    wrong = []
    looks = [(1280, "light"), (390, "dark")]
    # One test, because to start a browser takes longer than to look at all pages.
    for address in addresses:
        assert page.goto(at(address)).status < 500
        # Only style sheets depend on these: a page need not be loaded for each of them, and it
        # begins with those of the page before.
        for width, scheme in looks:
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme=scheme)
            wrong += [f"{address} at {width} pixels, {scheme}: {each}" for each in violations(page)]
        looks.reverse()
    assert wrong == []
