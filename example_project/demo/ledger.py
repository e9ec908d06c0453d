"""The ledger: the counts of a run, with the result of each checked promise."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django_ojs.spec.states import State
from example_project.demo import checks
from example_project.demo.monitor import Run
from example_project.demo.placement import Placement
from example_project.demo.snapshot import Snapshot
from example_project.demo.stock_import import Imported
from example_project.shop import stock
from example_project.shop.labels import MAX_CONCURRENT, MAX_PER_SECOND
from example_project.shop.models import Status

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

    def with_section(self, section: tuple[str, tuple[Entry, ...]]) -> "Ledger":
        """Return it with one more section, before the last one."""
        return Ledger(sections=(*self.sections[:-1], section, self.sections[-1]))

    @property
    def problems(self) -> list[str]:
        """The broken promises, a sentence each."""
        return [entry.problem for _, entries in self.sections for entry in entries if entry.problem]


def build_ledger(snapshot: Snapshot, placed: Placement, run: Run, imported: Imported) -> Ledger:
    """Build the ledger of a run."""
    return Ledger(
        sections=(
            ("Orders", _order_lines(snapshot, placed)),
            ("Stock, imported from a file by one long job", _stock_lines(snapshot, imported)),
            ("Workflows, one per order", _workflow_lines(snapshot)),
            ("Payments", _payment_lines(snapshot)),
            ("Jobs", _job_lines(snapshot, run)),
            ("Dead letters", _dead_letter_lines(snapshot)),
            ("Labels, from a carrier whose API has limits", _label_lines(snapshot)),
            ("Handovers, each with the results of the steps before it", _handover_lines(snapshot)),
            ("Documents", _document_lines(snapshot)),
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


def _stock_lines(snapshot: Snapshot, imported: Imported) -> tuple[Entry, ...]:
    rows = stock.deliveries()
    delivered: Counter[str] = Counter()
    for row in rows:
        delivered[row.product] += row.quantity
    killed_at, continued = imported.killed_at, imported.continued_after
    began_again = killed_at is not None and continued < killed_at
    sold, left = snapshot.reserved.total(), snapshot.stock.total()
    return (
        _line("deliveries in the file", len(rows)),
        _line(
            "imported when its worker was killed", "not killed" if killed_at is None else killed_at
        ),
        _check(
            "imported when the next run continued",
            continued,
            "the import did not continue at its checkpoint",
            [f"{killed_at} and {continued}"] if began_again else [],
        ),
        _check(
            f"products delivered: {sold:,} sold + {left:,} left",
            delivered.total(),
            "a delivery or an order is not counted once",
            checks.wrong_stock(snapshot, delivered),
        ),
        _check(
            "customers alerted, by a task of django.tasks",
            f"{len(snapshot.alerted):,} of {len(snapshot.alerts):,}",
            "a customer was not alerted, or twice",
            checks.not_alerted_once(snapshot),
        ),
    )


def _workflow_lines(snapshot: Snapshot) -> tuple[Entry, ...]:
    completed = snapshot.workflows[State.COMPLETED]
    cancelled = sum(order.status == Status.CANCELLED for order in snapshot.orders)
    return (
        _check(
            "started = completed",
            f"{snapshot.workflows.total():,} = {completed:,}",
            "workflow is not completed",
            checks.not_completed(snapshot),
        ),
        _check(
            "orders with a step too few or too many",
            len(checks.wrong_steps(snapshot)),
            "a step has no job, or two",
            checks.wrong_steps(snapshot),
        ),
        _check(
            "cancelled by the callback, as the card never pays",
            cancelled,
            "order is cancelled wrongly, or wrongly not cancelled",
            checks.not_cancelled(snapshot),
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


def _job_lines(snapshot: Snapshot, run: Run) -> tuple[Entry, ...]:
    states = Counter(job.state for job in snapshot.jobs)
    return (
        _line("enqueued", len(snapshot.jobs)),
        *(_line(state, states[state]) for state in State if states[state]),
        _check(
            "not finished",
            len(checks.jobs_left(snapshot)),
            "job is not finished",
            checks.jobs_left(snapshot),
        ),
        *_attempt_lines(snapshot),
        _line("runs that failed", snapshot.failed_runs),
        _line("in flight on the killed worker", len(run.killed.jobs) if run.killed else 0),
        _line("recovered from a dead worker", len(snapshot.recovered)),
        _check(
            "run again without a written reason",
            len(checks.again_without_reason(snapshot)),
            "job was run again without a reason",
            checks.again_without_reason(snapshot),
        ),
    )


def _attempt_lines(snapshot: Snapshot) -> Iterator[Entry]:
    attempts = sum(job.attempt for job in snapshot.jobs)
    parts = {
        "the first of a job": sum(job.attempt > 0 for job in snapshot.jobs),
        "retries after a failure": snapshot.retries,
        "repeated after a dead worker": snapshot.taken_back,
        # A worker that has claimed more than it can begin soon, or stops, gives the others back.
        "returned by the worker": sum(job.returned for job in snapshot.jobs),
    }
    yield _line("attempts", attempts)
    for label, number in parts.items():
        yield _line(f"of these, {label}", number)
    unexplained = attempts - sum(parts.values())
    yield _check(
        "of these, none of the above",
        unexplained,
        "the attempts are not the sum of their lines",
        [f"{unexplained:+}"] if unexplained else [],
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


def _label_lines(snapshot: Snapshot) -> tuple[Entry, ...]:
    at_once = checks.most_at_once(snapshot.carrier)
    per_second = checks.most_in_a_second(snapshot.carrier)
    return (
        _check(
            "parcels with their label",
            len(checks.labels(snapshot)),
            "order lacks a label, or has a wrong one",
            checks.wrong_labels(snapshot),
        ),
        _at_most("most requests at the same time", at_once, MAX_CONCURRENT),
        _at_most("most requests in any one second", per_second, MAX_PER_SECOND),
    )


def _handover_lines(snapshot: Snapshot) -> tuple[Entry, ...]:
    by = Counter(job.result.get("by") for job in checks.handovers(snapshot))
    return (
        _check(
            "orders handed over with all their labels",
            by.total(),
            "parcels are missing, wrong or in another order",
            checks.wrong_handovers(snapshot),
        ),
        _line("by a worker in Python", by["python"]),
        _line("by the worker in Node, over HTTP", by["node"]),
    )


def _document_lines(snapshot: Snapshot) -> tuple[Entry, ...]:
    return (
        _check(
            "e-mails",
            len(snapshot.emails),
            "order lacks its e-mail, or has one and was not sent",
            checks.wrong_emails(snapshot),
        ),
        _check(
            "invoices",
            len(snapshot.pdfs),
            "order lacks its invoice, or has one and was not sent",
            checks.wrong_pdfs(snapshot),
        ),
        _line("e-mails sent again after the kill", len(checks.emails_again(snapshot))),
        _line("invoices drawn again after the kill", len(checks.pdfs_again(snapshot))),
        _check(
            "written again without a reason",
            len(checks.documents_again_without_reason(snapshot)),
            "document was written again without a reason",
            checks.documents_again_without_reason(snapshot),
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


def _at_most(label: str, value: int, limit: int) -> Entry:
    problem = f"{label}: {value}, which is more than {limit}" if value > limit else ""
    return Entry(label=label, value=f"{value:,} of {limit:,}", checked=True, problem=problem)


def _check(label: str, value: int | str, problem: str, broken: Sequence[str]) -> Entry:
    sample = ", ".join(broken[:_SAMPLE]) + (", …" if len(broken) > _SAMPLE else "")
    text = f"{label}: {problem} ({sample}); {len(broken)} in all" if broken else ""
    return Entry(label=label, value=_line(label, value).value, checked=True, problem=text)
