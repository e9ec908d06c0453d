"""The ledger: the counts of a run, with the result of each checked promise."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django_ojs.spec.states import State
from example_project.demo import checks
from example_project.demo.monitor import Run
from example_project.demo.placement import Placement
from example_project.demo.snapshot import Snapshot

#: The number of references that a problem names.
_SAMPLE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A line of the ledger. `checked`: a promise is checked; `problem`: how it was broken."""

    label: str
    value: str
    checked: bool = False
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """The sections of the ledger, in order."""

    sections: tuple[tuple[str, tuple[Entry, ...]], ...]

    @property
    def problems(self) -> list[str]:
        """The broken promises, a sentence each."""
        return [entry.problem for _, entries in self.sections for entry in entries if entry.problem]


def build_ledger(snapshot: Snapshot, placed: Placement, run: Run) -> Ledger:
    """Build the ledger of a run."""
    return Ledger(
        sections=(
            ("Orders", _order_lines(snapshot, placed)),
            ("Payments", _payment_lines(snapshot)),
            ("Jobs", _job_lines(snapshot, placed, run)),
            ("Dead letters", _dead_letter_lines(snapshot)),
            ("Documents", _document_lines(snapshot)),
            ("Labels, one queue for Python and Node", _label_lines(snapshot)),
            ("Time", _time_lines(snapshot, run)),
        )
    )


def _order_lines(snapshot: Snapshot, placed: Placement) -> tuple[Entry, ...]:
    return (
        _line("placed", len(placed.committed) + len(placed.rolled_back)),
        _check(
            "committed",
            len(snapshot.orders),
            "order is missing",
            checks.lost_orders(snapshot, placed),
        ),
        _check(
            "rolled back after enqueueing",
            len(placed.rolled_back),
            "order is stored though it rolled back",
            checks.rolled_back_orders_stored(snapshot, placed),
        ),
        _check(
            "jobs of rolled-back orders",
            len(checks.rolled_back_jobs_stored(snapshot, placed)),
            "job of an order that rolled back",
            checks.rolled_back_jobs_stored(snapshot, placed),
        ),
    )


def _payment_lines(snapshot: Snapshot) -> tuple[Entry, ...]:
    due = [order for order in snapshot.orders if checks.chargeable(order)]
    once = [order for order in due if len(order.payments) == 1]
    unpayable = len(snapshot.orders) - len(due)
    return (
        _check(
            "orders to be paid, paid exactly once",
            f"{len(once):,} of {len(due):,}",
            "order is not paid",
            checks.unpaid(snapshot),
        ),
        _check(
            "orders paid twice",
            len(checks.paid_twice(snapshot)),
            "order is paid too often",
            checks.paid_twice(snapshot),
        ),
        _check(
            f"payments from the {unpayable} cards that never pay",
            len(checks.paid_despite_declined_card(snapshot)),
            "order is paid though its card was declined",
            checks.paid_despite_declined_card(snapshot),
        ),
    )


def _job_lines(snapshot: Snapshot, placed: Placement, run: Run) -> tuple[Entry, ...]:
    states = Counter(job.state for job in snapshot.jobs)
    return (
        _check(
            "enqueued", len(snapshot.jobs), "order lacks a job", checks.lost_jobs(snapshot, placed)
        ),
        *(_line(state, states[state]) for state in State if states[state]),
        _check(
            "not finished",
            len(checks.jobs_left(snapshot)),
            "job is not finished",
            checks.jobs_left(snapshot),
        ),
        _line("attempts", sum(job.attempt for job in snapshot.jobs)),
        _line("of these, failed", snapshot.failed_runs),
        _line("in flight on the killed worker", len(run.killed.jobs) if run.killed else 0),
        _line("recovered from a dead worker", len(snapshot.recovered)),
    )


def _dead_letter_lines(snapshot: Snapshot) -> tuple[Entry, ...]:
    errors = Counter(f"{job.type}  {job.error}" for job in checks.dead_letters(snapshot))
    return (
        *(_line(error, count) for error, count in errors.most_common()),
        _check(
            "discarded jobs",
            len(checks.dead_letters(snapshot)),
            "job was discarded wrongly, or wrongly not discarded",
            checks.wrongly_discarded(snapshot),
        ),
    )


def _document_lines(snapshot: Snapshot) -> tuple[Entry, ...]:
    return (
        _check(
            "e-mails",
            len(snapshot.emails),
            "order lacks its e-mail",
            checks.without_email(snapshot),
        ),
        _check(
            "invoices", len(snapshot.pdfs), "order lacks its invoice", checks.without_pdf(snapshot)
        ),
        _line("e-mails sent again after the kill", len(checks.emails_again(snapshot))),
        _line("invoices drawn again after the kill", len(checks.pdfs_again(snapshot))),
        _check(
            "written again without a kill",
            len(checks.again_without_reason(snapshot)),
            "document was written again without a reason",
            checks.again_without_reason(snapshot),
        ),
    )


def _label_lines(snapshot: Snapshot) -> tuple[Entry, ...]:
    by = Counter(job.result.get("by") for job in checks.labels(snapshot))
    return (
        _check("labels", by.total(), "order lacks its label", checks.without_label(snapshot)),
        _line("made by Python, in the database", by["python"]),
        _line("made by Node, over HTTP", by["node"]),
        _check(
            "made again without a dead worker",
            len(checks.labels_again(snapshot)),
            "label was made again without a reason",
            checks.labels_again(snapshot),
        ),
    )


def _time_lines(snapshot: Snapshot, run: Run) -> tuple[Entry, ...]:
    finished = len(snapshot.jobs) - len(checks.jobs_left(snapshot))
    return (
        _line("seconds of work", f"{run.seconds:.1f}"),
        _line("jobs/s", f"{finished / max(run.seconds, 0.001):,.0f}"),
    )


def _line(label: str, value: int | str) -> Entry:
    return Entry(label=label, value=f"{value:,}" if isinstance(value, int) else value)


def _check(label: str, value: int | str, problem: str, broken: Sequence[str]) -> Entry:
    sample = ", ".join(broken[:_SAMPLE]) + (", …" if len(broken) > _SAMPLE else "")
    text = f"{label}: {problem} ({sample}); {len(broken)} in all" if broken else ""
    return Entry(label=label, value=_line(label, value).value, checked=True, problem=text)
