"""Placing an order: the rows and the workflow, in one transaction."""

from django.db import transaction

import django_ojs as ojs
from example_project.shop import jobs, stock
from example_project.shop.catalogue import Basket
from example_project.shop.models import Order, OrderItem, Source


def place_order(basket: Basket, *, source: Source = Source.SITE) -> Order:
    """Store the order, its lines and its workflow, or none of them.

    What is sold out is found last, on purpose: by then the workflow is enqueued, and SoldOut rolls
    it back with the order. Raises SoldOut.
    """
    with transaction.atomic():
        order = Order.objects.create(
            reference=basket.reference,
            customer=basket.customer,
            email=basket.email,
            card=basket.card,
            total=basket.total,
            source=source,
            placed_at=basket.placed_at,
        )
        OrderItem.objects.bulk_create(
            OrderItem(
                order=order,
                product=line.product,
                quantity=line.quantity,
                unit_price=line.unit_price,
            )
            for line in basket.lines
        )
        order.workflow = fulfilment(basket).enqueue().id
        order.save(update_fields=["workflow"])
        stock.check(basket.lines)
    return order


def fulfilment(basket: Basket) -> ojs.WorkflowRequest:
    """Describe what is done for an order: all of it in this order, or its cancellation."""
    reference = basket.reference
    steps = ojs.chain(
        jobs.reserve.s(reference),
        jobs.charge.options(priority=ojs.HIGH).s(reference),
        ojs.group(*[jobs.label.s(reference, n) for n in range(1, basket.parcels + 1)]),
        jobs.handover.s(reference),
        ojs.group(jobs.receipt.s(reference), jobs.invoice.s(reference)),
    )
    return ojs.batch(steps, on_failure=jobs.cancel.s(reference), name="order")
