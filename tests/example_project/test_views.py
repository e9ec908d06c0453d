"""The pages of the shop."""

from __future__ import annotations

import random

import pytest
from django.test import Client

from django_ojs.extensions.workflows.models import WorkflowStep
from django_ojs.models import Job
from example_project.shop.management.commands.serve import create_login
from example_project.shop.models import Order
from example_project.shop.services import place_order
from example_project.shop.stock import SOLD_OUT
from tests.example_project.factories import BasketFactory, PaymentFactory

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.urls"), pytest.mark.once]


def test_an_empty_shop_says_what_to_do(client: Client) -> None:
    response = client.get("/")
    assert response.status_code == 200
    assert "make demo" in response.content.decode()


def test_the_list_shows_orders_with_the_steps_that_have_started(client: Client) -> None:
    order = place_order(BasketFactory())
    PaymentFactory(order=order)

    page = client.get("/").content.decode()

    assert "T-1" in page
    assert "28.95 €" in page
    assert "reserve · available" in page
    assert "waiting" not in page


def test_the_list_asks_the_database_the_same_number_of_times_however_long_it_is(
    client: Client, django_assert_max_num_queries: object
) -> None:
    for number in range(12):
        place_order(BasketFactory(reference=f"T-{number}"))
    with django_assert_max_num_queries(8):  # type: ignore[operator]  # pytest-django has no public type for it
        client.get("/")


def test_an_order_shows_its_lines_and_all_steps(client: Client) -> None:
    order = place_order(BasketFactory())
    page = client.get("/orders/T-1").content.decode()
    assert "Olive wood spoon" in page
    assert "order.invoice" in page
    assert page.count(">waiting<") == 6
    assert f'href="/admin/ojs_workflows/workflow/{order.workflow}/change/"' in page
    username, password = create_login()
    client.login(username=username, password=password)
    assert client.get(f"/admin/ojs_workflows/workflow/{order.workflow}/change/").status_code == 200


def test_an_order_whose_workflow_is_not_kept_is_shown(client: Client) -> None:
    order = place_order(BasketFactory())
    Job.objects.all().delete()
    WorkflowStep.objects.filter(workflow_id=order.workflow).delete()
    assert "no longer kept" in client.get("/orders/T-1").content.decode()
    assert client.get("/").status_code == 200


def test_an_unknown_order_is_not_found(client: Client) -> None:
    assert client.get("/orders/T-0").status_code == 404


def test_the_button_places_an_order(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "choice", lambda _: BasketFactory())
    response = client.post("/orders/random")
    order = Order.objects.get()
    assert response.headers["Location"] == f"/orders/{order.reference}"
    assert Job.objects.count() == 1


def test_the_button_reports_an_order_that_rolled_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "choice", lambda _: BasketFactory(line__product=min(SOLD_OUT)))
    response = client.post("/orders/random", follow=True)
    assert "was rolled back" in response.content.decode()
    assert not Order.objects.exists()
    assert not Job.objects.exists()


def test_a_get_places_nothing(client: Client) -> None:
    assert client.get("/orders/random").status_code == 405


def test_the_demo_login_opens_the_admin(client: Client) -> None:
    place_order(BasketFactory())
    username, password = create_login()
    assert client.login(username=username, password=password)
    assert "T-1" in client.get("/admin/shop/order/").content.decode()


def test_the_admin_has_no_button_to_change_an_order(client: Client) -> None:
    order = place_order(BasketFactory())
    username, password = create_login()
    client.login(username=username, password=password)
    page = client.get(f"/admin/shop/order/{order.pk}/change/").content.decode()
    assert "T-1" in page
    assert 'name="_save"' not in page
