"""A snapshot of the database and of the folders after the jobs are finished."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Sum

from django_ojs.extensions.workflows.models import Workflow
from django_ojs.models import Attempt, Job
from django_ojs.spec.states import State
from example_project.demo.cleanup import JOB_TYPES, STOCK_ALERT_JOB
from example_project.shop import labels
from example_project.shop.mail import STOCK_ALERT
from example_project.shop.models import (
    Invoice,
    Order,
    OrderItem,
    Receipt,
    Status,
    Stock,
    StockAlert,
)

#: Outcomes of runs that ended with their worker, not with their handler.
RECOVERED = ("lost", "lapsed")
#: Outcomes of handlers. A response to the worker in Node that is lost on a busy
#: machine leaves its jobs with it until they time out.
_FAILED = ("failed", "timeout")
#: Outcomes after which a job may run again.
_EXPLAINED = (*RECOVERED, *_FAILED)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """A job of the shop; `reference` is the order it was enqueued for.

    `returned`: how many claims of it a worker has given back without an attempt.
    """

    id: UUID
    type: str
    reference: str
    state: str
    attempt: int = 1
    spent: int = 1
    returned: int = 0
    dead_letter: bool = False
    error: str = ""
    args: tuple[Any, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderRecord:
    """An order, the payments taken for it, and how often its documents were written."""

    reference: str
    card: str
    total: Decimal
    parcels: int = 1
    status: str = Status.PAID
    payments: tuple[Decimal, ...] = ()
    receipts: int = 0
    invoices: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """From when to when a job of the carrier's queue was active."""

    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The data of the ledger.

    `workflows`: how many there are in each state. `explained`: by job, how many of its runs ended
    in a way after which there may be another. `retries`, `taken_back`: how many attempts followed
    a failure, and a dead worker. `carrier`: the runs of the labels. `stock`,
    `reserved`: by product, what is left, and what was sold. `alerts`: the customers who wait for
    an arrival; `alerted`: by customer, how many jobs wrote to them. `emails`, `pdfs`: the
    references that have such a file.
    """

    orders: tuple[OrderRecord, ...]
    jobs: tuple[JobRecord, ...]
    workflows: Counter[str] = field(default_factory=Counter)
    recovered: frozenset[UUID] = frozenset()
    explained: Counter[UUID] = field(default_factory=Counter)
    failed_runs: int = 0
    retries: int = 0
    taken_back: int = 0
    carrier: tuple[Period, ...] = ()
    stock: Counter[str] = field(default_factory=Counter)
    reserved: Counter[str] = field(default_factory=Counter)
    alerts: frozenset[int] = field(default_factory=frozenset)
    alerted: Counter[int] = field(default_factory=Counter)
    emails: frozenset[str] = field(default_factory=frozenset)
    pdfs: frozenset[str] = field(default_factory=frozenset)


def read() -> Snapshot:
    """Read the snapshot from the database and the folders."""
    attempts = Attempt.objects.filter(job__type__in=JOB_TYPES)
    before_the_last = attempts.filter(attempt__lt=F("job__attempt"))
    workflows = Workflow.objects.filter(name="order").values_list("state", flat=True)
    sold = OrderItem.objects.exclude(order__status=Status.CANCELLED)
    alerted = Job.objects.filter(type=STOCK_ALERT_JOB, state=State.COMPLETED)
    emails = _complete_files(Path(settings.RECEIPT_FOLDER), "*.eml", b"\n\n")
    return Snapshot(
        orders=tuple(_orders()),
        jobs=tuple(_jobs()),
        workflows=Counter(workflows),
        recovered=frozenset(
            attempts.filter(outcome__in=RECOVERED).values_list("job_id", flat=True)
        ),
        explained=Counter(attempts.filter(outcome__in=_EXPLAINED).values_list("job_id", flat=True)),
        failed_runs=attempts.filter(outcome__in=_FAILED).count(),
        retries=before_the_last.filter(outcome__in=_FAILED).count(),
        taken_back=before_the_last.filter(outcome__in=RECOVERED).count(),
        carrier=tuple(_carrier()),
        stock=Counter(dict(Stock.objects.values_list("product", "quantity"))),
        reserved=Counter(dict(sold.values_list("product").annotate(Sum("quantity")))),
        alerts=frozenset(StockAlert.objects.values_list("pk", flat=True)),
        alerted=Counter(args[0] for args in alerted.values_list("args", flat=True)),
        emails=frozenset(name for name in emails if not name.startswith(STOCK_ALERT)),
        pdfs=_complete_files(Path(settings.MEDIA_ROOT) / "invoices", "*.pdf", b"%%EOF"),
    )


def _orders() -> Iterable[OrderRecord]:
    receipts = dict(Receipt.objects.values_list("order_id", "written"))
    invoices = dict(Invoice.objects.values_list("order_id", "written"))
    for order in Order.objects.order_by("id").prefetch_related("payments", "items"):
        yield OrderRecord(
            reference=order.reference,
            card=order.card,
            total=order.total,
            parcels=labels.parcels(sum(item.quantity for item in order.items.all())),
            status=order.status,
            payments=tuple(payment.amount for payment in order.payments.all()),
            receipts=receipts.get(order.pk, 0),
            invoices=invoices.get(order.pk, 0),
        )


def _jobs() -> Iterable[JobRecord]:
    for job in Job.objects.filter(type__in=JOB_TYPES).order_by("created_at", "id"):
        yield JobRecord(
            id=job.pk,
            type=job.type,
            reference=job.args[0],
            state=job.state,
            attempt=job.attempt,
            spent=job.spent,
            # A run that ended with its worker may spend no attempt either; it has its own line.
            returned=job.returned - job.lost_with_others,
            dead_letter=job.dead_letter,
            error=_describe(job.error),
            args=tuple(job.args),
            result=job.result or {},
        )


def _carrier() -> Iterable[Period]:
    runs = [
        *Job.objects.filter(type="order.label").values_list("started_at", "finished_at"),
        *Attempt.objects.filter(job__type="order.label").values_list("started_at", "finished_at"),
    ]
    for started_at, ended_at in runs:
        if started_at and ended_at:
            yield Period(started_at=started_at, ended_at=ended_at)


def _describe(error: dict[str, str] | None) -> str:
    if not error:
        return ""
    return f"{error.get('type') or error.get('code')}: {error.get('message', '')}"


def _complete_files(folder: Path, pattern: str, end: bytes) -> frozenset[str]:
    # A truncated file lacks this byte sequence.
    return frozenset(path.stem for path in folder.glob(pattern) if end in path.read_bytes())
