"""Values for the tests of the shop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import django
from django.conf import LazySettings
from factory import Factory, LazyAttribute, SubFactory, Trait
from factory.django import DjangoModelFactory

from django_ojs.spec import ids
from example_project.demo import checks
from example_project.demo.monitor import Run
from example_project.demo.placement import Placement
from example_project.demo.snapshot import JobRecord, OrderRecord, Period, Snapshot
from example_project.demo.stock_import import Imported
from example_project.shop import stock
from example_project.shop.cards import DECLINED
from example_project.shop.catalogue import Basket, Line
from example_project.shop.labels import collection, tracking
from example_project.shop.models import Order, Payment, Stock, StockAlert

CHARGE, LABEL, HANDOVER = "order.charge", "order.label", "order.handover"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SOLD = {"Whetstone 1000/6000": 5}
TOTAL = Decimal("12.50")
MUG = Line(product="Enamel mug", quantity=1, unit_price=Decimal("9.75"))
PLACED = Placement(committed=frozenset({"A", "B", "D"}), rolled_back=frozenset({"R"}))
RUN = Run(seconds=2.0, killed=None)
IMPORTED = Imported(killed_at=500, continued_after=520)


class LineFactory(Factory[Line]):
    class Meta:
        model = Line

    product = "Olive wood spoon"
    quantity = 3
    unit_price = Decimal("6.40")


class BasketFactory(Factory[Basket]):
    """A basket of two products; the first one is `line`."""

    class Meta:
        model = Basket

    class Params:
        line = SubFactory(LineFactory)

    reference = "T-1"
    placed_at = NOON
    customer = "Zażółć Ωμέγα Đặng"
    email = "zazolc@example.org"
    card = "card_ok"
    lines = LazyAttribute(lambda basket: (basket.line, MUG))


class OrderRecordFactory(Factory[OrderRecord]):
    """An order for which everything went well, or whose card was declined."""

    class Meta:
        model = OrderRecord

    class Params:
        declined = Trait(card=DECLINED, status="cancelled", payments=(), receipts=0, invoices=0)

    reference = "A"
    card = "card_ok"
    total = TOTAL
    parcels = 2
    payments = (TOTAL,)
    receipts = 1
    invoices = 1


class OrderFactory(DjangoModelFactory[Order]):
    """The row of an order alone; `place_order` stores an order with its workflow."""

    class Meta:
        model = Order

    reference = "A-7"
    total = 1
    placed_at = NOON


class PaymentFactory(DjangoModelFactory[Payment]):
    class Meta:
        model = Payment

    order = SubFactory(OrderFactory)
    amount = LazyAttribute(lambda payment: payment.order.total)
    attempt = 1


class StockFactory(DjangoModelFactory[Stock]):
    class Meta:
        model = Stock

    product = "Enamel mug"
    quantity = 10


class StockAlertFactory(DjangoModelFactory[StockAlert]):
    class Meta:
        model = StockAlert

    product = "Enamel mug"
    email = "ada@example.com"


def good_snapshot() -> Snapshot:
    """Build the snapshot of a run in which A and B were paid and the card of D was declined."""
    paid = (OrderRecordFactory(reference=reference) for reference in "AB")
    orders = (*paid, OrderRecordFactory(reference="D", declined=True))
    in_stock = delivered()
    in_stock.subtract(SOLD)
    return Snapshot(
        orders=orders,
        jobs=tuple(
            _job(order, type_, number)
            for order in orders
            for type_, count in checks.steps(order).items()
            for number in range(1, count + 1)
        ),
        workflows=Counter(completed=3),
        carrier=(Period(started_at=NOON, ended_at=NOON + timedelta(seconds=1)),),
        stock=in_stock,
        reserved=Counter(SOLD),
        emails=frozenset({"A", "B"}),
        pdfs=frozenset({"A", "B"}),
    )


def delivered() -> Counter[str]:
    """Return what was delivered of each product."""
    found: Counter[str] = Counter()
    for delivery in stock.deliveries():
        found[delivery.product] += delivery.quantity
    return found


def _job(order: OrderRecord, type_: str, number: int) -> JobRecord:
    numbers = [tracking(order.reference, n) for n in range(1, order.parcels + 1)]
    results: dict[str, dict[str, object]] = {
        LABEL: {"tracking": numbers[number - 1]},
        HANDOVER: {"collection": collection(numbers), "parcels": numbers, "by": "node"},
    }
    is_dead = type_ == CHARGE and not checks.chargeable(order)
    return JobRecord(
        id=ids.uuid7(),
        type=type_,
        reference=order.reference,
        state="discarded" if is_dead else "completed",
        dead_letter=is_dead,
        result=results.get(type_, {}),
    )


def job_of(snapshot: Snapshot, reference: str, type_: str) -> JobRecord:
    """Return the first job of a type of an order."""
    return next(j for j in snapshot.jobs if (j.reference, j.type) == (reference, type_))


def with_job(snapshot: Snapshot, job: JobRecord) -> Snapshot:
    """Replace the job of the same id."""
    return with_jobs(snapshot, [job if old.id == job.id else old for old in snapshot.jobs])


def with_order(snapshot: Snapshot, order: OrderRecord) -> Snapshot:
    """Replace the order of the same reference."""
    orders = tuple(order if old.reference == order.reference else old for old in snapshot.orders)
    return replace(snapshot, orders=orders)


def with_jobs(snapshot: Snapshot, jobs: Sequence[JobRecord]) -> Snapshot:
    """Replace the jobs."""
    return replace(snapshot, jobs=tuple(jobs))


def write_into(settings: LazySettings, folder: Path) -> None:
    """Let the shop write e-mails and invoices into a folder, as the settings of the example do."""
    settings.MEDIA_ROOT = folder / "media"
    settings.RECEIPT_FOLDER = folder / "mail"
    backend = "example_project.shop.mail.ReceiptFileBackend"
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": backend}}
    else:
        settings.EMAIL_BACKEND = backend
    settings.STORAGES = {
        "default": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"allow_overwrite": True},
        },
    }
