"""What the search box suggests: the qualifiers, and the values that there are."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.statistics import rollups
from django_ojs.handler_registry import registry
from django_ojs.handlers import positions
from django_ojs.operations.jobs import filter_json
from django_ojs.operations.jobs.search_query import parse, qualifiers
from django_ojs.reports import search_suggestions
from django_ojs.spec.states import State
from tests.admin.test_jobs import LIST, text
from tests.admin.users import VIEW, root, staff
from tests.command_line.run import ojs as ojs_command
from tests.factories import WorkerFactory, push

pytestmark = pytest.mark.django_db

ADDRESS = f"{LIST}suggestions/"


def suggested(*permissions: str) -> dict[str, Any]:
    response = staff(*permissions).get(ADDRESS)
    assert response.status_code == 200
    found: dict[str, Any] = json.loads(response.content)
    return found


@pytest.mark.both
def test_the_values_are_those_that_there_are_and_none_of_a_payload() -> None:
    push(queue="mail", type="mail.send", args=["a-secret"], meta={"tenant": "acme"})
    rollups.add(rollups.ENQUEUED, {("mail", "mail.send"): 1})
    rollups.flush()
    WorkerFactory(id="w", hostname="web-1", job_types=("mail.bounce",))
    found = suggested(*VIEW)
    assert found["qualifiers"] == qualifiers()
    values = found["values"]
    assert "mail" in values["queue"]
    assert {"mail.send", "mail.bounce"} <= set(values["type"])
    assert values["host"] == ["web-1"]
    assert values["state"] == list(State)
    assert "secret" not in str(values)
    assert "acme" not in str(values)
    for qualifier, of_qualifier in values.items():
        assert all(parse(f"{qualifier}:{value}").filter for value in of_qualifier)


def test_the_number_of_values_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_suggestions, "MAX_VALUES", 3)
    for n in range(5):
        push(queue=f"queue-{n}")
        rollups.add(rollups.ENQUEUED, {(f"queue-{n}", f"type.t{n}"): 1})
        WorkerFactory(id=f"w{n}", hostname=f"web-{n}")
    rollups.flush()
    values = suggested(*VIEW)["values"]
    assert {len(values[name]) for name in ("queue", "type", "host")} == {3}


def test_only_users_who_may_see_jobs_get_them() -> None:
    assert staff("view_queue").get(ADDRESS).status_code == 403


def test_without_javascript_the_syntax_is_a_text_on_the_page() -> None:
    page = text(root())
    assert f'data-ojs-suggestions="{ADDRESS}"' in page
    assert all(f"<code>{example}</code>" in page for example in qualifiers().values())


@pytest.mark.both
def test_a_search_that_finds_nothing_offers_those_that_find_something() -> None:
    push(queue="mail", type="mail.send", args=["ann@example.com", 3])
    push(queue="mail", type="mail.send", tags=["vip"])
    client = root()
    for search, offered in (
        ("ann@example.com", "args:ann@example.com"),
        ("queue:mail ann@example.com", "queue:mail args:ann@example.com"),
        ("vip", "tag:vip"),
    ):
        page = text(client, q=search)
        (address,) = re.findall(r'<a href="([^"]*)"><code>' + re.escape(offered), page)
        assert "mail.send" in text(client, LIST + address)
    # Nothing is offered that finds nothing, and none of what a user may not search.
    assert "This search finds jobs" not in text(client, q="bob@example.com")
    assert "This search finds jobs" not in text(staff(*VIEW), q="ann@example.com")


@pytest.mark.both
@override_settings(OJS={"ADMIN_REDACT": ["phone"]})
def test_a_value_of_a_member_is_offered_with_the_name_of_the_member() -> None:
    customer = {"email": "ann@example.com", "phone": "555-1", "address": {"city": 'Zürich "1"'}}
    push(queue="mail", type="mail.send", args=["x", customer])
    push(queue="mail", type="mail.send", args=[{"email": "annx@example.com", "order": 4711}])
    client = root()
    for search, offered in (
        ("ann@example.com", "args.email:ann@example.com"),
        ("queue:mail ann@example.com", "queue:mail args.email:ann@example.com"),
        ("args:ann@example.com", "args.email:ann@example.com"),
        ("args:4711", "args.order:4711"),
        ('args:"Zürich \\"1\\""', 'args.address.city:"Zürich \\"1\\""'),
    ):
        page = text(client, q=search)
        ((address, shown),) = re.findall(
            r'<a href="([^"]*)"><code>(args\..*?|queue.*?)</code>', page
        )
        assert html.unescape(shown) == offered
        assert "1 job" in text(client, LIST + html.unescape(address))
    # What is redacted or nowhere is not offered, nor anything to who may not see payloads.
    for search in (
        "555-1",
        "args:555-1",
        "bob@example.com",
        "args:ann@example",
        "queue:x args:4711",
    ):
        assert "This search finds jobs" not in text(client, q=search)
    assert "This search finds jobs" not in text(staff(*VIEW), q="ann@example.com")


@pytest.mark.both
def test_the_name_of_a_parameter_finds_its_argument(request: pytest.FixtureRequest) -> None:
    @ojs.job("shop.mail")
    def mail(text: str, customer: str) -> None:
        """Take a customer."""

    request.addfinalizer(lambda: registry.remove("shop.mail"))
    push(type="shop.mail", args=["hello", "ann@example.com"])
    push(type="shop.mail", args=["ann@example.com", "bob@example.com"])
    push(type="other.mail", args=["hello", "ann@example.com"])
    push(type="other.mail", args=[{"customer": "ann@example.com"}])
    assert "2 jobs" in text(root(), q="args.customer:ann@example.com")
    # A bulk operation that is stored finds the same.
    which = parse("args.customer:ann@example.com").filter
    assert which is not None
    located = which.located(positions)
    assert filter_json.read(json.loads(json.dumps(filter_json.render(located)))) == located
    assert sorted(located.jobs().values_list("type", flat=True)) == ["other.mail", "shop.mail"]
    # So it does on the command line.
    found = ojs_command("jobs", "args.customer:ann@example.com", "--json").json["jobs"]
    assert {each["type"] for each in found} == {"other.mail", "shop.mail"}
    assert "customer" in suggested(*VIEW)["parameters"]
