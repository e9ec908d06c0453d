"""A stranger's extension: all that it brings, on the doors that it brings it to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.test import override_settings

import django_ojs as ojs
from django_ojs.hooks import registry
from django_ojs.http import metrics
from django_ojs.models import Job
from django_ojs.operations import fail, fetch
from django_ojs.spec.errors import InvalidRequest
from example_project.job_orders.extension import OrdersExtension
from example_project.shop.services import place_order
from tests.admin.users import root
from tests.command_line.run import ojs as command
from tests.example_project.factories import BasketFactory, OrderFactory
from tests.factories import BOOM
from tests.http.api import Api, make_key
from tests.test_doors import make_urls_anew

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def orders() -> Iterator[None]:
    extension = OrdersExtension()
    registry.register(extension)
    make_urls_anew()
    yield
    registry.remove(extension)
    make_urls_anew()


def about(reference: str) -> Job:
    key = ojs.enqueue("shop.note", [1], extra={"order": reference}).id
    return Job.objects.get(pk=key)


def test_the_jobs_of_an_order_say_which_one_it_is() -> None:
    place_order(BasketFactory())
    (first,) = Job.objects.all()
    assert first.options["extra"] == {"order": "T-1"}


@pytest.mark.parametrize("sent", [{"order": "A-7"}, {"options": {"order": "A-7", "queue": "q"}}])
def test_a_client_may_say_it_and_sees_it(sent: dict[str, Any]) -> None:
    with override_settings(OJS={}):
        api = Api(make_key("admin"))
        made = api.post("jobs", {"type": "shop.note", "args": [], **sent})
        assert made["job"]["order"] == "A-7"
        assert api.get(f"jobs/{made['job']['id']}")["job"]["order"] == "A-7"


@pytest.mark.parametrize("wrong", [7, "", "x" * 33, ["A-7"]])
def test_a_wrong_value_is_rejected_by_name(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="order must be the reference of an order"):
        ojs.enqueue("shop.note", [1], extra={"order": wrong})
    with override_settings(OJS={}):
        body = {"type": "shop.note", "args": [], "order": wrong}
        Api(make_key("admin")).post("jobs", body).error(400, "invalid_request", field="order")


def test_the_list_of_jobs_has_a_column_and_a_qualifier() -> None:
    mine, other = about("A-7"), about("A-8")
    none = ojs.enqueue("shop.note", [1]).id
    user, path = root(), "/admin/django_ojs/job/"
    shown = user.get(path).content.decode()
    assert "A-7" in shown
    assert "A-8" in shown
    assert ">Order</th>" in shown
    found = user.get(f"{path}?q=order:A-7").content.decode()
    assert str(mine.pk) in found
    assert str(other.pk) not in found
    assert str(none) not in found
    assert "order:A-1001" in found  # The help.
    assert str(mine.pk) in command("jobs", "order:A-7").out


def test_a_route_and_a_subcommand_return_the_jobs_of_an_order() -> None:
    mine, _ = about("A-7"), about("A-8")
    with override_settings(OJS={}):
        found = Api(make_key("admin")).get("orders/A-7/jobs")
    assert [each["id"] for each in found["jobs"]] == [str(mine.pk)]
    assert command("order", "A-7").out == f"{mine.pk}  shop.note  available\n"


def test_a_dead_letter_of_an_order_is_found_and_counted() -> None:
    order = OrderFactory()
    assert "shop_orders_waiting 0.0" in metrics.render(None).decode()
    assert registry.brought("findings") == []
    retry = {"on_exhaustion": "dead_letter"}
    ojs.enqueue("shop.note", [1], extra={"order": order.reference}, retry=retry)
    (job,) = fetch.fetch(["default"], worker_id="w")
    fail.fail(job.id, replace(BOOM, retryable=False))
    assert "shop_orders_waiting 1.0" in metrics.render(None).decode()
    assert (
        "Orders with dead letters: 1." in root().get("/admin/django_ojs/overview/").content.decode()
    )


def test_alike_jobs_of_several_orders_say_each_its_own() -> None:
    made = ojs.enqueue_batch([ojs.request("order.note", [each]) for each in ("A-7", "A-8")])
    found = Job.objects.filter(pk__in=[each.id for each in made])
    assert sorted(each.options["extra"]["order"] for each in found) == ["A-7", "A-8"]
