"""An order and its jobs are stored together or not at all."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_ojs.models import Job
from example_project.shop.models import Order, OrderItem
from example_project.shop.services import place_order
from example_project.shop.stock import SOLD_OUT, SoldOut
from tests.example_project.factories import basket

pytestmark = pytest.mark.django_db


def test_an_order_brings_its_lines_and_its_jobs() -> None:
    order = place_order(basket("T-1"))

    assert str(order.total) == "28.95"
    assert list(order.items.values_list("quantity", flat=True)) == [3, 1]
    jobs = Job.objects.in_bulk(
        [order.charge_job, order.receipt_job, order.invoice_job, order.label_job]
    )
    assert sorted(job.type for job in jobs.values()) == [
        "order.charge",
        "order.invoice",
        "order.label",
        "order.receipt",
    ]
    assert all(job.args == ["T-1"] and job.state == "available" for job in jobs.values())


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
