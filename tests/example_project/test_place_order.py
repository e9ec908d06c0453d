"""An order and its jobs are stored together or not at all."""

from __future__ import annotations

from email import message_from_bytes, policy
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.db import transaction

from django_ojs import get_workflow
from django_ojs.extensions.workflows.models import Workflow, WorkflowStep
from django_ojs.models import Job
from django_ojs.testing import Drained, TestContext
from example_project.shop import cards, jobs
from example_project.shop.labels import collection, tracking
from example_project.shop.models import Order, OrderItem, Payment, Status, Stock
from example_project.shop.services import place_order
from example_project.shop.stock import SOLD_OUT, SoldOut
from tests.example_project.factories import BasketFactory, StockFactory, write_into

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def folders(settings: LazySettings, tmp_path: Path) -> None:
    write_into(settings, tmp_path)


@pytest.fixture
def in_stock() -> None:
    for product in ("Olive wood spoon", "Enamel mug"):
        StockFactory(product=product)


def left() -> list[int]:
    return list(Stock.objects.order_by("-product").values_list("quantity", flat=True))


def states(order: Order) -> list[tuple[str | None, str]]:
    steps = WorkflowStep.objects.filter(workflow_id=order.workflow, type__isnull=False)
    return list(steps.order_by("position").values_list("type", "state"))


def test_an_order_brings_its_lines_and_its_workflow() -> None:
    order = place_order(BasketFactory())

    assert str(order.total) == "28.95"
    assert list(order.items.values_list("quantity", flat=True)) == [3, 1]
    assert states(order) == [
        ("order.reserve", "enqueued"),
        ("order.charge", "waiting"),
        ("order.label", "waiting"),
        ("order.handover", "waiting"),
        ("order.receipt", "waiting"),
        ("order.invoice", "waiting"),
        ("order.cancel", "waiting"),
    ]
    (first,) = Job.objects.all()
    assert (first.type, first.args, first.state) == ("order.reserve", ["T-1"], "available")


@pytest.mark.usefixtures("in_stock")
def test_each_step_of_an_order_runs_once_and_uses_the_results_before_it(
    ojs: TestContext, tmp_path: Path
) -> None:
    order = place_order(BasketFactory(line__quantity=5))
    ojs.drain()

    assert order.workflow is not None
    assert get_workflow(order.workflow).state == "completed"
    assert [state for _, state in states(order)] == ["completed"] * 7 + ["skipped"]
    numbers = [tracking("T-1", 1), tracking("T-1", 2)]
    [handed_over] = ojs.assert_completed(jobs.handover)
    assert handed_over.result == {
        "collection": collection(numbers),
        "parcels": numbers,
        "by": "python",
    }
    assert f"Your parcels: {numbers[0]}, {numbers[1]}." in receipt_of("T-1", tmp_path)
    assert left() == [5, 9]


def receipt_of(reference: str, folder: Path) -> str:
    content = (folder / "mail" / f"{reference}.eml").read_bytes()
    text: str = message_from_bytes(content, policy=policy.default).get_content()
    return text


@pytest.mark.usefixtures("in_stock")
def test_a_slow_network_costs_two_attempts_and_the_customer_pays_once(ojs: TestContext) -> None:
    order = place_order(BasketFactory(card=cards.SLOW_NETWORK))
    ojs.assert_enqueued(jobs.reserve, args=["T-1"], queue=jobs.PAYMENTS, count=1)

    assert ojs.drain(jobs.PAYMENTS, with_retries=True) == Drained(retryable=2, completed=2)

    [charged] = ojs.assert_completed(jobs.charge)
    assert charged.result == {"amount": "28.95"}
    assert Payment.objects.filter(order=order).count() == 1
    order.refresh_from_db()
    assert order.status == Status.PAID
    ojs.refute_performed(jobs.receipt)


@pytest.mark.usefixtures("in_stock")
def test_an_order_that_cannot_be_paid_is_cancelled_and_its_products_are_put_back(
    ojs: TestContext,
) -> None:
    order = place_order(BasketFactory(card=cards.MALFORMED))

    assert ojs.drain(with_retries=True) == Drained(discarded=1, completed=2)

    [charge] = ojs.assert_failed(jobs.charge)
    assert charge.error["type"] == "MalformedCard"
    [cancel] = ojs.assert_completed(jobs.cancel)
    assert cancel.result == {"products": 4}
    order.refresh_from_db()
    assert order.status == Status.CANCELLED
    assert left() == [10, 10]
    assert not Payment.objects.exists()
    assert order.workflow is not None
    assert get_workflow(order.workflow).state == "completed"


def test_an_order_without_stock_is_cancelled_and_nothing_is_put_back(ojs: TestContext) -> None:
    StockFactory()
    order = place_order(BasketFactory())
    ojs.drain(with_retries=True)
    order.refresh_from_db()
    assert order.status == Status.CANCELLED
    # What was there of the other product is not reserved either.
    assert left() == [10]


def test_a_product_that_is_sold_out_takes_order_and_jobs_back() -> None:
    with pytest.raises(SoldOut):
        place_order(BasketFactory(line__product=min(SOLD_OUT)))

    assert not Order.objects.exists()
    assert not OrderItem.objects.exists()
    assert not Job.objects.exists()
    assert not Workflow.objects.exists()


def test_the_callers_rollback_takes_order_and_jobs_back() -> None:
    def place_and_fail() -> None:
        with transaction.atomic():
            place_order(BasketFactory())
            raise RuntimeError("later step")

    with pytest.raises(RuntimeError):
        place_and_fail()

    assert not Order.objects.exists()
    assert not Job.objects.exists()
    assert not Workflow.objects.exists()
