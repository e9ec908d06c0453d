"""Placing an order: the rows and the jobs, in one transaction."""

from django.db import transaction

import django_ojs as ojs
from example_project.shop import stock
from example_project.shop.catalogue import Basket
from example_project.shop.jobs import charge, invoice, label, receipt
from example_project.shop.models import Order, OrderItem, Source


def place_order(basket: Basket, *, source: Source = Source.SITE) -> Order:
    """Store the order, its lines and its jobs, or none of them.

    The stock is reserved last, on purpose: by then the jobs are enqueued, and SoldOut rolls them
    back with the order. Raises SoldOut.
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
        order.charge_job = charge.options(priority=ojs.HIGH).enqueue(order.reference).id
        order.receipt_job = receipt.enqueue(order.reference).id
        order.invoice_job = invoice.enqueue(order.reference).id
        order.label_job = label.enqueue(order.reference).id
        order.save(update_fields=["charge_job", "receipt_job", "invoice_job", "label_job"])
        stock.reserve(basket.lines)
    return order
