"""The actions on queues: they run, they are logged, and skipped objects are counted."""

from __future__ import annotations

import re

import pytest
from django.contrib.messages import get_messages
from django.test import override_settings

from django_ojs.admin import queue_actions
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.events.models import Event
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.operations.maintenance import mode
from tests import factories
from tests.admin.markup import form_data
from tests.admin.test_pages import BASE
from tests.admin.users import root
from tests.cases import together
from tests.factories import jobs

pytestmark = [pytest.mark.django_db, pytest.mark.once]

DO = f"{BASE}queue/action/"
CONFIGURE = {"key": "alpha", "confirmed": "1", "strategy": ""}


def known(*names: str) -> None:
    for name in names:
        factories.push(queue=name)


def said(response: object) -> str:
    return " ".join(str(each) for each in get_messages(response.wsgi_request))  # type: ignore[attr-defined]


def test_pausing_several_counts_those_that_were_paused_and_says_why() -> None:
    known("alpha", "beta")
    queues.pause("beta")
    response = root().post(
        f"{DO}pause/", {"key": ["alpha", "beta", "gone"], "next": f"{BASE}queue/?q=a"}
    )
    assert response["Location"] == f"{BASE}queue/?q=a"
    text = said(response)
    assert "1 paused, 2 skipped" in text
    assert "already paused" in text
    assert "does not exist" in text
    assert Queue.objects.get(pk="alpha").paused


def test_an_action_is_in_the_history_of_what_it_was_done_to() -> None:
    known("alpha")
    client = root()
    client.post(f"{DO}pause/", {"key": "alpha"})
    client.post(f"{DO}resume/", {"key": "alpha"})
    page = client.get(f"{BASE}queue/alpha/history/").content.decode()
    assert page.index("queue.resumed") < page.index("queue.paused")
    assert "queue." not in client.get(f"{BASE}queue/beta/history/").content.decode()
    assert Event.objects.get(type="queue.paused").data["paused_by"] == "root"


@pytest.mark.parametrize("action", ["pause", "drain", "configure", "purge"])
def test_a_queue_that_nobody_has_listed_yet_can_be_acted_on(action: str) -> None:
    factories.push(queue="alpha")
    assert not Queue.objects.filter(pk="alpha").exists()
    client, order = root(), {"key": "alpha", "confirmed": "1", "confirm_name": "alpha"}
    if action != "pause":  # It asks nothing.
        asked = client.get(f"{DO}{action}/", {"key": "alpha"}).content.decode()
        assert "not exist" not in asked
    values = {"states": ["available"], "max_depth": "7", "strategy": ""}
    response = client.post(f"{DO}{action}/", {**order, **values})
    assert "alpha" in said(response)
    assert AuditEntry.primary.get().object_id == "alpha"


def test_purging_needs_the_name_typed_and_takes_the_chosen_states() -> None:
    known("alpha")
    factories.in_state("scheduled", queue="alpha")
    client, order = root(), {"key": "alpha", "confirmed": "1", "states": ["available"]}
    for wrong in ({}, {"confirm_name": "alph"}, {"confirm_name": "alpha", "states": ["active"]}):
        response = client.post(f"{DO}purge/", {**order, **wrong})
        assert response.status_code == 200
        assert jobs().filter(queue="alpha").count() == 2
    response = client.post(f"{DO}purge/", {**order, "confirm_name": "alpha"})
    assert "1 job of alpha (available) deleted." in said(response)
    assert list(jobs().filter(queue="alpha").values_list("state", flat=True)) == ["scheduled"]


def test_a_purge_that_was_not_asked_about_asks_first() -> None:
    known("alpha")
    response = root().post(
        f"{DO}purge/", {"key": "alpha", "confirm_name": "alpha", "states": ["available"]}
    )
    assert response.status_code == 200
    assert "1 available" in response.content.decode()
    assert jobs().filter(queue="alpha").exists()


def test_a_purge_says_when_more_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_actions, "_PURGE_LIMIT", 2)
    factories.push_many(3, queue="alpha")
    response = root().post(
        f"{DO}purge/",
        {"key": "alpha", "confirmed": "1", "confirm_name": "alpha", "states": ["available"]},
    )
    assert "purge the queue again" in said(response)
    assert jobs().filter(queue="alpha").count() == 1


def test_configuring_changes_what_was_filled_in_and_keeps_what_the_form_does_not_show() -> None:
    known("alpha")
    queues.configure("alpha", {"colour": 3, "max_envelope_bytes": 5000})
    client = root()
    client.post(
        f"{DO}configure/",
        {**CONFIGURE, "max_depth": "500", "strategy": "block", "warning_threshold": "70"},
    )
    assert Queue.objects.get(pk="alpha").config == {
        "colour": 3,
        "backpressure": {"max_depth": 500, "strategy": "block", "warning_threshold": 0.7},
    }
    shown = client.get(f"{DO}configure/", {"key": "alpha"}).content.decode()
    assert 'value="500"' in shown
    assert 'value="70"' in shown
    client.post(f"{DO}configure/", CONFIGURE)
    assert Queue.objects.get(pk="alpha").config == {"colour": 3}


def test_an_operator_limits_a_queue_and_sets_its_defaults_without_a_request_over_http() -> None:
    known("alpha")
    stored = {
        "concurrency": 2,
        # As the route of the limits stores it.
        "rate_limit": {"max_per_second": 5, "rate": {"limit": 3, "period": "PT1H"}},
        "default_retry": {"max_attempts": 2, "initial_interval": "PT5S"},
        "default_timeout": "PT1M",
        "retention": {"completed": "PT1H"},
        "tenant_fairness": {"enabled": True},
    }
    queues.configure("alpha", stored)
    client = root()
    page = client.get(f"{DO}configure/", {"key": "alpha"})
    form = {**CONFIGURE, **dict.fromkeys(page.context["form"].fields, "")}
    initial = {name: value for name, value in page.context["form"].initial.items() if value}
    assert initial.pop("in_force")["backpressure.strategy"] == "reject"
    assert initial == {
        "concurrency": 2,
        "rate": 3,
        "rate_period": "PT1H",
        "default_max_attempts": 2,
        "default_timeout": "PT1M",
        "keep_completed": "PT1H",
    }
    response = client.post(f"{DO}configure/", {**form, **initial})
    assert "Queue alpha is unchanged." in said(response)
    filled_in = {
        "throttle": "4",
        "throttle_period": "PT1S",
        "allowed_job_types": "email.*\nsms.send",
        "producers": "shop",
        "default_timeout": "30",
        "default_max_attempts": "2",
        "keep_discarded": "P7D",
    }
    for wrong, error in (
        ({"rate": "3"}, "rate_limit.period is required beside limit."),
        ({"keep_completed": "tomorrow"}, "retention.completed must be an ISO 8601 duration"),
        ({"default_timeout": "soon"}, "default_timeout must be an ISO 8601 duration"),
    ):
        response = client.post(f"{DO}configure/", {**form, **filled_in, **wrong})
        (errors,) = response.context["form"].errors.values()
        assert error in errors[0]
        assert not response.context["form"].non_field_errors(), "it stands at its field"
    response = client.post(f"{DO}configure/", {**form, **filled_in})
    assert "Queue alpha is configured" in said(response)
    assert Queue.objects.get(pk="alpha").config == {
        "rate_limit": {"max_per_second": 5, "throttle": {"limit": 4, "period": "PT1S"}},
        "allowed_job_types": ["email.*", "sms.send"],
        "producers": ["shop"],
        "default_timeout": 30,
        "default_retry": {"max_attempts": 2, "initial_interval": "PT5S"},
        "retention": {"discarded": "P7D"},
        "tenant_fairness": {"enabled": True},
    }


def test_what_the_form_does_not_show_as_it_is_stored_stays_when_something_else_changes() -> None:
    known("alpha")
    stored = {
        "allowed_job_types": [],  # None at all, which is not the default.
        "producers": ["Warehouse till", "shop"],
        "backpressure": {"warning_threshold": 0.855},
    }
    queues.configure("alpha", stored)
    client = root()
    shown = client.get(f"{DO}configure/", {"key": "alpha"}).context["form"]
    form = {**CONFIGURE, **{field.name: field.value() or "" for field in shown}}
    assert form["producers"] == "Warehouse till\nshop"
    typed = form["producers"].replace("\n", "\r\n") + "\r\n"
    response = client.post(f"{DO}configure/", {**form, "producers": typed, "concurrency": "2"})
    assert "Queue alpha is configured: concurrency changed." in said(response)
    assert Queue.objects.get(pk="alpha").config == {**stored, "concurrency": 2}


def test_what_another_user_has_changed_since_the_form_was_read_stays() -> None:
    stored = {"backpressure": {"max_depth": 100}, "allowed_job_types": ["a.b", "c.d"]}
    queues.configure("alpha", stored)
    client = root()
    page = client.get(f"{DO}configure/", {"key": "alpha"}).content.decode()
    form = form_data(page, "max_depth")
    queues.configure("alpha", {"backpressure": {"max_depth": 500}, "allowed_job_types": ["x.y"]})
    response = client.post(f"{DO}configure/", {**form, "concurrency": "0", "rate": "3"})
    assert response.context["form"].errors
    form = form_data(response.content.decode(), "max_depth")
    response = client.post(f"{DO}configure/", {**form, "concurrency": "3", "rate": ""})
    assert "Queue alpha is configured: concurrency changed." in said(response)
    assert Queue.objects.get(pk="alpha").config == {
        "backpressure": {"max_depth": 500},
        "allowed_job_types": ["x.y"],
        "concurrency": 3,
    }


@pytest.mark.parametrize("changed", [{"rate": "200"}, {"rate_period": "PT2M"}])
def test_a_limit_and_its_period_are_changed_together(changed: dict[str, str]) -> None:
    read = {"limit": 100, "period": "PT1M", "throttle": {"limit": 7, "period": "PT1M"}}
    queues.configure("alpha", {"rate_limit": read})
    client = root()
    page = client.get(f"{DO}configure/", {"key": "alpha"}).content.decode()
    form = form_data(page, "max_depth")
    since = {"limit": 5, "period": "PT1S", "throttle": {"limit": 3, "period": "PT1S"}}
    queues.configure("alpha", {"rate_limit": since})
    client.post(f"{DO}configure/", {**form, **changed})
    wanted = {
        "limit": int(changed.get("rate", 100)),
        "period": changed.get("rate_period", "PT1M"),
        "throttle": since["throttle"],
    }
    assert Queue.objects.get(pk="alpha").config == {"rate_limit": wanted}


def test_a_deleted_queue_that_has_kept_jobs_does_not_exist_any_more() -> None:
    factories.in_state("completed", queue="alpha")
    queues.configure("alpha", {"backpressure": {"max_depth": 5}})
    queues.delete("alpha")
    client = root()
    page = client.get(f"{DO}configure/", {"key": "alpha"}).content.decode()
    assert "1 of the selected does not exist any more." in page
    assert "does not exist" in said(client.post(f"{DO}pause/", {"key": "alpha"}))
    factories.push(queue="alpha")  # This makes it a queue again, with nothing of what it had.
    page = client.get(f"{DO}configure/", {"key": "alpha"}).content.decode()
    assert "In force: no bound." in page


@override_settings(OJS={"QUEUES": {"alpha": {"backpressure": {"max_depth": 900}}}})
def test_the_form_of_the_bounds_says_what_is_in_force_and_what_waits() -> None:
    known("alpha")
    client = root()
    page = client.get(f"{DO}configure/", {"key": "alpha"}).content.decode()
    assert "In force: at most 900 jobs, then reject; a warning at 80 %." in page
    factories.push_many(2, queue="alpha")
    queues.configure("alpha", {"backpressure": {"max_depth": 0}})
    page = client.get(f"{DO}configure/", {"key": "alpha"}).content.decode()
    assert "In force: no bound." in page
    # Each value says where it comes from, and what it hides.
    queues.configure_default({"backpressure": {"strategy": "block"}, "colour": "<b>"})
    page = client.get(f"{DO}configure/", {"key": "alpha"}).content.decode()
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th>(.*?)</tr>", page)
    cells = {name: re.findall(r"<td[^>]*>(.*?)</td>", rest) for name, rest in rows}
    settings = "settings, OJS[&quot;QUEUES&quot;][&quot;alpha&quot;]"
    assert cells["Maximum jobs"] == [
        "no bound",
        "stored for this queue",
        f"900 ({settings}); no bound (built in)",
    ]
    assert cells["When full"] == ["block", "stored default policy", "reject (built in)"]
    assert cells["Warning threshold"] == ["80 %", "built in", "—"]
    assert cells["colour"] == ["&lt;b&gt;", "stored default policy", "—"]
    assert "jobs wait in the queue now." in page


@together(
    "wrong",
    [
        {"max_depth": "-1"},
        {"max_depth": "many"},
        {"strategy": "explode"},
        {"warning_threshold": "101"},
        {"max_envelope_bytes": str(2**40)},
        {"max_size_bytes": "9" * 40},
    ],
    undo=True,
)
def test_a_wrong_bound_is_rejected_with_what_was_typed(wrong: dict[str, str]) -> None:
    known("alpha")
    response = root().post(f"{DO}configure/", {**CONFIGURE, **wrong})
    assert response.status_code == 200
    assert not Queue.objects.filter(pk="alpha").exists()
    assert not AuditEntry.primary.exists()


@pytest.mark.parametrize("keys", [[], ["alpha", "beta"]])
def test_what_is_for_one_at_a_time_is_done_to_no_other_number(keys: list[str]) -> None:
    known("alpha", "beta")
    response = root().post(f"{DO}purge/", {"key": keys, "confirmed": "1", "states": ["available"]})
    assert response.status_code == 302
    assert jobs().filter(queue__in=["alpha", "beta"]).count() == 2


def test_maintenance_mode_is_started_with_a_reason_and_shown_to_everybody() -> None:
    client, actions = root(), f"{BASE}overview/action/"
    assert (
        "No job of any queue"
        in client.get(f"{actions}start-maintenance/", {"key": "1"}).content.decode()
    )
    client.post(
        f"{actions}start-maintenance/",
        {"key": "1", "confirmed": "1", "reason": "a <b>new</b> disk"},
    )
    assert mode.status().reason == "a <b>new</b> disk"
    page = client.get(f"{BASE}overview/").content.decode()
    assert "a &lt;b&gt;new&lt;/b&gt; disk" in page
    assert "End maintenance mode" in page
    client.post(f"{actions}end-maintenance/", {"key": "1"})
    again = client.post(f"{actions}end-maintenance/", {"key": "1"})
    assert "already off" in said(again)
    assert not mode.status().enabled
    assert AuditEntry.primary.count() == 2


@pytest.mark.both
def test_the_form_has_groups_and_the_value_in_force_where_a_field_is_empty() -> None:
    queues.configure("q", {"concurrency": 7})
    address = f"{BASE}queue/action/configure/?key=q"
    default = {"_default": {"backpressure": {"max_depth": 500}}}
    with override_settings(OJS={"QUEUES": default}):
        page = root().get(address).content.decode()
    opened = re.findall(r'<details class="ojs-group" open><summary>([^<]*)<', page)
    assert opened == ["Bounds"]
    assert re.search(r'name="max_depth"[^>]* placeholder="500"', page)
    assert '<option value="" selected>reject</option>' in page
    assert len(re.findall(r'<details class="ojs-group"', page)) == 6
    page = root("other").get(f"{address}&open=limits").content.decode()
    opened = re.findall(r'<details class="ojs-group" open><summary>([^<]*)<', page)
    assert opened == ["Limits of runs"]
    # A group with an error is open.
    body = {"key": "q", "confirmed": "1", "rate": "5", "keep_completed": "soon"}
    page = root("third").post(f"{BASE}queue/action/configure/", body).content.decode()
    opened = re.findall(r'<details class="ojs-group" open><summary>([^<]*)<', page)
    assert "How long jobs are kept" in opened or "Limits of runs" in opened
