"""An order and its jobs are stored together or not at all."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_ojs.models import Job
from django_ojs.testing import Drained, TestContext
from example_project.shop import cards, jobs
from example_project.shop.models import Order, OrderItem, Payment, Status
from example_project.shop.services import place_order
from example_project.shop.stock import SOLD_OUT, SoldOut
from tests.example_project.factories import basket

pytestmark = pytest.mark.django_db


def test_an_order_brings_its_lines_and_its_jobs() -> None:
    order = place_order(basket("T-1"))

    assert str(order.total) == "28.95"
    assert list(order.items.values_list("quantity", flat=True)) == [3, 1]
    placed = Job.objects.in_bulk(
        [order.charge_job, order.receipt_job, order.invoice_job, order.label_job]
    )
    assert sorted(job.type for job in placed.values()) == [
        "order.charge",
        "order.invoice",
        "order.label",
        "order.receipt",
    ]
    assert all(job.args == ["T-1"] and job.state == "available" for job in placed.values())


def test_a_slow_network_costs_two_attempts_and_the_customer_pays_once(ojs: TestContext) -> None:
    order = place_order(basket("T-1", card=cards.SLOW_NETWORK))
    ojs.assert_enqueued(jobs.charge, args=["T-1"], queue=jobs.PAYMENTS, count=1)

    assert ojs.drain(jobs.PAYMENTS, with_retries=True) == Drained(retryable=2, completed=1)

    [charged] = ojs.assert_completed(jobs.charge)
    assert (charged.pk, charged.result) == (order.charge_job, {"amount": "28.95"})
    assert Payment.objects.filter(order=order).count() == 1
    order.refresh_from_db()
    assert order.status == Status.PAID
    ojs.refute_performed(jobs.receipt)


def test_a_malformed_card_is_not_tried_again(ojs: TestContext) -> None:
    place_order(basket(card=cards.MALFORMED))

    assert ojs.drain(jobs.PAYMENTS, with_retries=True) == Drained(discarded=1)

    [charge] = ojs.assert_failed(jobs.charge)
    assert charge.error["type"] == "MalformedCard"
    assert not Payment.objects.exists()


def test_a_product_that_is_sold_out_takes_order_and_jobs_back() -> None:
    with pytest.raises(SoldOut):
        place_order(basket(product=min(SOLD_OUT)))

    assert not Order.objects.exists()
    assert not OrderItem.objects.exists()
    assert not Job.objects.exists()


def test_the_callers_rollback_takes_order_and_jobs_back() -> None:
    def place_and_fail() -> None:
        with transaction.atomic():
            place_order(basket())
            raise RuntimeError("later step")

    with pytest.raises(RuntimeError):
        place_and_fail()

    assert not Order.objects.exists()
    assert not Job.objects.exists()
