"""The overview: its tables of queues and types, and what it costs."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs.admin import formatting
from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.steps.models import Step, StepStatus
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.models import Incident
from django_ojs.operations import fetch, queues
from tests import factories
from tests.admin.markup import form_data
from tests.admin.test_pages import fill
from tests.admin.users import at, root, staff
from tests.browser.test_accessibility import incident
from tests.factories import WorkerFactory, active, push, push_many
from tests.model_factories import OutboxEntryFactory, RollupFactory, SubscriptionFactory, histogram
from tests.operations.cron import scenes as cron

pytestmark = [pytest.mark.django_db, pytest.mark.both]

#: Statements of the overview, those of session, user and time limit included; the begin and the end
#: of its transaction are none.
BUDGET = 20


def rows_of(client: Client, heading: str) -> dict[str, dict[str, str]]:
    """Return the rows of a table of the overview: the text of each cell by its column."""
    page = client.get(at("overview/")).content.decode()
    (table,) = re.findall(rf"<h2>{heading} .*?<table.*?</table>", page, re.DOTALL)
    head = [plain(each) for each in re.findall(r"<th scope=\"col\".*?</th>", table)]
    body = table.partition("<tbody>")[2]
    found = {}
    for row in re.findall(r"<tr>.*?</tr>", body, re.DOTALL):
        cells = [plain(each) for each in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        found[cells[0]] = dict(zip(head, cells, strict=True))
    return found


def plain(markup: str) -> str:
    text = unescape(re.sub(r"<title>.*?</title>|<[^>]+>", " ", markup, flags=re.DOTALL))
    return re.sub(r"\s+", " ", text).strip()


def listener(worker_id: str, *names: str, slots: int | None = 8) -> None:
    WorkerFactory(id=worker_id, queues=names, concurrency=slots)


def ran(
    type: str, *, minutes_ago: int = 1, queue: str = "email", ms: int = 0, **counts: int
) -> None:
    took = histogram(ms / 1000, counts["completed"]) if ms else histogram()
    RollupFactory(ago=timedelta(minutes=minutes_ago), queue=queue, type=type, ran=took, **counts)


def test_a_queue_has_its_busy_slots_and_the_type_that_holds_most_of_them() -> None:
    listener("web-1", "invoices", "email")
    listener("web-2", "invoices")
    for _ in range(2):
        claimed = active("web-1", queue="invoices", type="invoice.render")
        factories.age(claimed.id, timedelta(hours=8))
    factories.age(active("web-1", queue="invoices", type="invoice.send").id, timedelta(days=3))
    push_many(3, queue="invoices")
    listener("unsaid", "fax", slots=None)
    active("unsaid", queue="fax")
    push(queue="lonely")
    found = rows_of(root(), "Queues")
    assert found["invoices"]["Busy slots"] == "3/16 invoice.render 8 h"
    assert (found["invoices"]["State"], found["invoices"]["Ready"]) == ("● open", "3")
    # Its worker did not say how many slots it has.
    assert re.match(r"1 test\.job", found["fax"]["Busy slots"])
    assert found["lonely"]["Busy slots"] == "no worker"


def test_a_queue_has_a_bar_only_from_half_of_its_bound() -> None:
    queues.configure("half", {"backpressure": {"max_depth": 4}})
    queues.configure("roomy", {"backpressure": {"max_depth": 40}})
    for name in ("half", "roomy"):
        push_many(2, queue=name)
    found = rows_of(root(), "Queues")
    assert re.search(r"50.?% · 2 of 4", found["half"]["State"])
    assert found["roomy"]["State"] == "● open"
    assert "Drained in" not in found["half"]


def test_an_incident_draws_what_came_and_went_in_fifteen_minutes() -> None:
    listener("web-1", "email", "fine")
    for queue in ("email", "fine"):
        ran("mail.send", queue=queue, minutes_ago=14, enqueued=4, completed=2)
        ran("mail.send", queue=queue, minutes_ago=15, enqueued=30, completed=50)
        push(queue=queue)
    queues.pause("email")
    page = root().get(at("overview/")).content.decode()
    health, _, rest = page.partition("<h2>Queues")
    (title,) = re.findall(r'<svg class="ojs-spark"[^>]*aria-label="([^"]*)"', health)
    assert plain(title) == "In 15 min: 4 in, 2 out, at most 2 out per minute"
    titles = re.findall(r'<svg class="ojs-spark"[^>]*aria-label="([^"]*)"', rest)
    assert [plain(each) for each in titles] == [
        "In 1 h: 34 in, 52 out, at most 50 out per minute"
    ] * 2


@pytest.mark.both
def test_a_type_has_its_runs_failures_and_times_and_those_that_fail_come_first() -> None:
    ran("mail.send", completed=90, failed=10, lost=4)
    ran("mail.send", minutes_ago=30, completed=100, ms=1500)
    ran("mail.send", minutes_ago=30, queue="bulk", completed=100, ms=1500)
    ran("report.build", minutes_ago=20, completed=10, ms=60_000)
    ran("quick", completed=10, ms=3)
    # It completed over HTTP, and nobody said how long it ran.
    ran("untimed", completed=3)
    ran("lost", failed=2, lost=2)
    ran("yesterday", minutes_ago=61, completed=5)
    found = rows_of(root(), "Types")
    assert list(found) == ["mail.send", "report.build", "quick", "untimed"]
    mail = found["mail.send"]
    assert (mail["Runs in 5 min"], mail["Failed in 5 min"]) == ("96", "6")
    assert (mail["Runs in 1 h"], mail["Failed in 1 h"]) == ("296", "6")
    second = plain(formatting.octave(1.5))
    assert (mail["Ran p50"], mail["Ran p95"]) == (second, second)
    assert mail["Ran in total"] == "≈ 5 min 7 s"
    assert (found["report.build"]["Runs in 5 min"], found["report.build"]["Runs in 1 h"]) == (
        "0",
        "10",
    )
    untimed = found["untimed"]
    assert [untimed[name] for name in ("Ran p50", "Ran p95", "Ran in total")] == ["—"] * 3


def test_tables_come_before_charts() -> None:
    ran("mail.send", completed=1, ms=5)
    push(queue="email")
    page = root().get(at("overview/")).content.decode()
    places = [page.index(each) for each in ("<h2>Queues", "<h2>Types", 'class="ojs-charts"')]
    assert places == sorted(places)


@pytest.mark.both
def test_charts_mark_starts_of_workers_pauses_and_configurations() -> None:
    ran("mail.send", completed=1, ms=5)
    listener("web-1", "email")
    queues.configure("email", {"backpressure": {"max_depth": 4}})
    queues.pause("email")
    page = root().get(at("overview/")).content.decode()
    (marks,) = set(re.findall(r'<ul class="ojs-markers">.*?</ul>', page, re.DOTALL))
    told = plain(marks)
    for text in ("1 worker started, ", "email: configured, ", "email: paused, "):
        assert text in told
    assert 'class="ojs-marker"' in page


def test_what_is_refreshed_every_two_seconds_is_a_region_without_the_charts() -> None:
    push(queue="email")
    client = root()
    page = client.get(at("overview/")).content.decode()
    with CaptureQueriesContext(connection) as captured:
        region = client.get(at("overview/?live=1")).content.decode()
    for text in ('id="ojs-now"', "<h2>Queues", "ojs-verdict"):
        assert text in region
    for text in ("<html", 'id="ojs-hour"', "ojs-charts"):
        assert text in page
        assert text not in region
    assert not any('AS "sum_enqueued"' in each["sql"] for each in captured.captured_queries)
    assert staff("view_queue").get(at("overview/?live=1")).status_code == 403


def test_a_button_in_the_region_leads_back_to_the_whole_page() -> None:
    push(queue="email")
    queues.pause("email")
    client = root()
    region = client.get(at("overview/?live=1")).content.decode()
    form = form_data(region, "key")
    page = client.post(at("queue/action/resume/"), form, follow=True).content.decode()
    assert "<html" in page
    assert "Queue email is resumed" in page


def much_goes_wrong() -> None:
    """Make many queues, types and incidents of each kind."""
    incident()
    fill(20)
    for n in range(20):
        push_many(3, queue=f"unworked-{n}")
        queues.pause(f"unworked-{19 - n // 2}")
        ran(f"type.{n}", completed=10, failed=n, ms=10 * n + 1)
        fetch.fetch([f"queue-{n}"], worker_id=f"worker-{n}", due=False)
    # Optional apps may have incidents of their own, such as keys that are paused.
    LimitKey.primary.update(paused_until=None)
    factories.age_all(timedelta(minutes=30))
    rollups.flush()


@pytest.mark.statements
@pytest.mark.django_db(transaction=True)
def test_it_takes_at_most_twenty_statements_however_much_there_is_to_show() -> None:
    much_goes_wrong()
    client = root()
    texts, page = statements(client)
    assert kinds() >= {
        *("queue_full", "queue_late", "queue_paused", "queue_unworked"),
        *("type_failing", "dead_letters", "worker_stale"),
    }
    assert page.count('<li class="ojs-is-') >= 5
    assert page.count('data-label="Busy slots"') == page.count('data-label="Runs in 1 h"') == 12
    assert len(texts) <= BUDGET, "\n".join(f"{n} {text[:300]}" for n, text in enumerate(texts))


def statements(client: Client) -> tuple[list[str], str]:
    """Return the statements of the overview, once its incidents are known, and the page."""
    client.get(at("overview/"))
    with CaptureQueriesContext(connection) as captured:
        page = client.get(at("overview/")).content.decode()
    texts = [each["sql"] for each in captured.captured_queries]
    return [text for text in texts if text not in ("BEGIN", "COMMIT")], page


def kinds() -> set[str]:
    found = Incident.primary.values_list("identity", flat=True)
    return {identity.partition(":")[0] for identity in found}


def keys_are_paused() -> None:
    push(queue="email", rate_limit={"key": "acme", "concurrency": 3})
    limit_keys.pause(["acme"], timedelta(hours=1))
    LimitKey.primary.update(dropped_at=timezone.now(), dropped=2)


def schedules_are_late_and_skipped() -> None:
    for name in ("late", "skipped"):
        cron.register(name)
    for _ in range(3):  # The first one enqueues the job that holds the others.
        cron.tick("skipped")
    cron.make_due("late", ago=timedelta(minutes=5))


def the_outbox_is_rejected() -> None:
    OutboxEntryFactory(state="rejected")


def steps_may_be_dropped() -> None:
    queues.configure("steps", {"backpressure": {"max_depth": 5, "strategy": "drop_oldest"}})
    job = factories.in_state("scheduled", queue="steps")
    Step.primary.create(
        job_id=job.pk,
        number=1,
        name="wait",
        kind="sleep",
        outcome=StepStatus.WAITING,
        run=1,
        started_at=timezone.now(),
    )


def tenants_are_rejected() -> None:
    queues.configure("shared", {"tenant_limits": {"max_queue_depth": 1}})
    ran("mail.send", queue="shared", rejected=3)
    push(queue="shared")


def webhooks_are_disabled() -> None:
    SubscriptionFactory(active=False)
    Webhook.primary.update(disabled_at=timezone.now())


#: What each optional app finds, and the most statements that it adds; an advice is not kept.
OF_APPS = {
    keys_are_paused: ("limit_key_paused", 3),
    schedules_are_late_and_skipped: ("cron_skipped", 4),
    the_outbox_is_rejected: ("outbox_rejected", 1),
    steps_may_be_dropped: ("", 2),
    tenants_are_rejected: ("tenants_rejected", 2),
    webhooks_are_disabled: ("webhooks_disabled", 1),
}


@pytest.mark.django_db(transaction=True)
def test_each_optional_app_adds_few_statements_with_its_findings() -> None:
    listener("web-1", "default", "email", "shared", "steps")
    push(queue="email")
    client = root()
    before = len(statements(client)[0])
    for scene, (kind, most) in OF_APPS.items():
        scene()
        texts, _ = statements(client)
        assert not kind or kind in kinds()
        added = len(texts) - before
        assert added <= most, "\n".join([scene.__name__, *(text[:250] for text in texts)])
        before = len(texts)
