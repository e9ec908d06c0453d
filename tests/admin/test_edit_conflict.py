"""Two users open the same form, and both save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from django_ojs.models import ApiKey, CronJob, LimitKey, Queue, Webhook
from django_ojs.operations import cron, limit_keys, queues
from django_ojs.operations.access import api_keys
from django_ojs.operations.cron import Definition
from django_ojs.operations.webhooks import subscriptions
from django_ojs.spec.errors import Conflict
from django_ojs.spec.scopes import Scope
from tests.admin.markup import form_data
from tests.admin.test_pages import BASE
from tests.admin.users import root
from tests.factories import push

pytestmark = pytest.mark.django_db

REJECTED = "Nothing is saved yet"


class Page:
    """A form that a user has opened."""

    def __init__(self, client: Client, address: str, field: str) -> None:
        self._client, self._address, self._field = client, address, field
        self.text = client.get(address).content.decode()
        self.data = form_data(self.text, field)

    def save(self, **typed: Any) -> bool:
        """Return whether the form was saved; if not, the page that is shown is the next one."""
        response = self._client.post(self._address, {**self.data, **typed})
        if response.status_code == 302:
            return True
        self.text = response.content.decode()
        self.data = form_data(self.text, self._field)
        return False


def queue() -> tuple[str, str, Callable[[], Any]]:
    push(queue="alpha")
    queues.listing()
    stored = {"backpressure": {"max_depth": 5}, "allowed_job_types": ["a.*", "b"], "colour": 3}
    queues.configure("alpha", {**stored, "default_timeout": 30})
    return (
        f"{BASE}queue/action/configure/?key=alpha",
        "max_depth",
        lambda: Queue.objects.get(pk="alpha").config,
    )


def test_who_saves_second_sees_what_the_first_has_stored_and_saves_again() -> None:
    address, field, config = queue()
    first, second = (Page(root(name), address, field) for name in ("ann", "bob"))
    assert first.save(max_depth="500", strategy="block", allowed_job_types="a.*\r\nc")
    stored = config()
    assert not second.save(max_depth="7", concurrency="2")
    assert config() == stored
    assert REJECTED in second.text
    assert "Stored now: 500. You have changed it too." in second.text
    assert "Stored now: a.*, c." in second.text
    assert "Stored now: block: an enqueue waits" in second.text
    # What the second has changed is still there, and so is what the first has stored.
    assert second.data["max_depth"] == ["7"]
    assert second.data["concurrency"] == ["2"]
    assert second.data["strategy"] == ["block"]
    assert second.data["allowed_job_types"] == ["a.*\r\nc"]
    # A third was faster again, with the value that the second is about to save.
    queues.configure("alpha", {"concurrency": 2, "default_timeout": 60})
    assert not second.save()
    assert "Stored now: 60." in second.text
    assert "Stored now: 2." not in second.text
    assert second.save()
    assert config() == {
        "colour": 3,
        "concurrency": 2,
        "default_timeout": 60,
        "allowed_job_types": ["a.*", "c"],
        "backpressure": {"max_depth": 7, "strategy": "block"},
    }


def test_a_change_between_the_check_and_the_write_is_not_overwritten() -> None:
    _address, _field, config = queue()
    old = config()
    queues.configure("alpha", {"concurrency": 1})
    with pytest.raises(Conflict, match="at the same time"):
        queues.configure("alpha", {"concurrency": 2}, stored=old)
    assert config()["concurrency"] == 1


def cron_job() -> tuple[str, str, Callable[[], Any]]:
    template = {"type": "report.send", "args": [1, {"a": 2}], "options": {"queue": "mail"}}
    cron.register(Definition(name="report", expression="0 9 * * *", template=template))

    def stored() -> Any:
        job = CronJob.objects.get(pk="report")
        return job.expression, job.description, job.template["args"]

    return f"{BASE}cronjob/report/edit/", "expression", stored


def limit_key() -> tuple[str, str, Callable[[], Any]]:
    limit_keys.override("api", {"concurrency": 3, "rate": {"limit": 5, "period": "PT1H"}})

    def stored() -> Any:
        key = LimitKey.objects.get(pk="api")
        return key.override.get("concurrency"), key.override.get("rate"), key.override_until

    return f"{BASE}limitkey/api/change/", "rate_period", stored


def webhook() -> tuple[str, str, Callable[[], Any]]:
    made, _secret = subscriptions.create(
        subscriptions.Subscription(
            url="https://93.184.216.34/hook", events=["job.*"], queues=["a", "b"]
        ),
    )

    def stored() -> Any:
        row = Webhook.objects.get(pk=made.pk)
        return row.events, row.queues, row.active

    return f"{BASE}webhook/{made.pk}/change/", "url", stored


def api_key() -> tuple[str, str, Callable[[], Any]]:
    made, _text = api_keys.create(
        name="shop", scopes=[Scope.READ, Scope.PRODUCER], queues=["a"], expires=None
    )

    def stored() -> Any:
        row = ApiKey.objects.get(pk=made.pk)
        return row.name, row.scopes, row.expires_at and row.expires_at.year

    return f"{BASE}apikey/{made.pk}/change/", "scopes", stored


UNTIL = {"expires_at_0": "2999-01-02", "expires_at_1": "03:04:05"}
#: What the first types, what the second types, what is stored then, and at last.
CASES: list[tuple[Any, dict[str, Any], dict[str, Any], Any, Any]] = [
    (
        cron_job,
        {"expression": "0 10 * * *", "args": "[2]"},
        {"description": "Daily."},
        ("0 10 * * *", None, [2]),
        ("0 10 * * *", "Daily.", [2]),
    ),
    (
        limit_key,
        {"concurrency": "", "rate": "9"},
        {"concurrency": "4"},
        (None, {"limit": 9, "period": "PT1H"}, None),
        (4, {"limit": 9, "period": "PT1H"}, None),
    ),
    (
        webhook,
        {"queues": "a", "active": []},
        {"events": "workflow.*"},
        (["job.*"], ["a"], False),
        (["workflow.*"], ["a"], False),
    ),
    (
        api_key,
        {"scopes": ["read"], **UNTIL},
        {"name": "store"},
        ("shop", ["read"], 2999),
        ("store", ["read"], 2999),
    ),
]


@pytest.mark.parametrize(
    ("made", "by_first", "by_second", "then", "at_last"),
    CASES,
    ids=["cron_job", "limit_key", "webhook", "api_key"],
)
def test_the_other_forms_do_the_same(
    made: Any, by_first: dict[str, Any], by_second: dict[str, Any], then: Any, at_last: Any
) -> None:
    address, field, stored = made()
    first, second = (Page(root(name), address, field) for name in ("ann", "bob"))
    old = stored()
    assert first.save(), first.text
    assert stored() == old  # Nothing was typed, and nothing changes.
    assert first.save(**by_first), first.text
    assert stored() == then
    assert not second.save(**by_second)
    assert REJECTED in second.text
    assert stored() == then
    assert second.save(), second.text
    assert stored() == at_last
