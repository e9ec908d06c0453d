"""A snapshot of the database and of the folders after the jobs are finished."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from django.conf import settings

from django_ojs.models import Attempt, Job
from example_project.demo.cleanup import JOB_TYPES
from example_project.shop.models import Invoice, Order, Receipt

#: Outcomes of runs that ended with their worker, not with their handler.
RECOVERED = ("lost", "lapsed")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """A job of the shop; `reference` is the order it was enqueued for."""

    id: UUID
    type: str
    reference: str
    state: str
    attempt: int = 1
    spent: int = 1
    dead_letter: bool = False
    error: str = ""
    result: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderRecord:
    """An order, the payments taken for it, and how often its documents were written."""

    reference: str
    card: str
    total: Decimal
    payments: tuple[Decimal, ...] = ()
    receipts: int = 0
    invoices: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The data of the ledger. `emails`, `pdfs`: the references that have such a file."""

    orders: tuple[OrderRecord, ...]
    jobs: tuple[JobRecord, ...]
    recovered: frozenset[UUID] = frozenset()
    failed_runs: int = 0
    emails: frozenset[str] = field(default_factory=frozenset)
    pdfs: frozenset[str] = field(default_factory=frozenset)


def read() -> Snapshot:
    """Read the snapshot from the database and the folders."""
    attempts = Attempt.objects.filter(job__type__in=JOB_TYPES)
    return Snapshot(
        orders=tuple(_orders()),
        jobs=tuple(_jobs()),
        recovered=frozenset(
            attempts.filter(outcome__in=RECOVERED).values_list("job_id", flat=True)
        ),
        failed_runs=attempts.exclude(outcome__in=RECOVERED).count(),
        emails=_complete_files(Path(settings.RECEIPT_FOLDER), "*.eml", b"\n\n"),
        pdfs=_complete_files(Path(settings.MEDIA_ROOT) / "invoices", "*.pdf", b"%%EOF"),
    )


def _orders() -> Iterable[OrderRecord]:
    receipts = dict(Receipt.objects.values_list("order_id", "written"))
    invoices = dict(Invoice.objects.values_list("order_id", "written"))
    for order in Order.objects.order_by("id").prefetch_related("payments"):
        yield OrderRecord(
            reference=order.reference,
            card=order.card,
            total=order.total,
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
            dead_letter=job.dead_letter,
            error=_describe(job.error),
            result=job.result or {},
        )


def _describe(error: dict[str, str] | None) -> str:
    if not error:
        return ""
    return f"{error.get('type') or error.get('code')}: {error.get('message', '')}"


def _complete_files(folder: Path, pattern: str, end: bytes) -> frozenset[str]:
    # A truncated file lacks this byte sequence.
    return frozenset(path.stem for path in folder.glob(pattern) if end in path.read_bytes())
