"""The ledger: what happened, beside what was promised."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django_ojs.spec.states import State
from example_project.demo import checks
from example_project.demo.facts import Facts
from example_project.demo.place import Placement
from example_project.demo.watch import Run

#: So many references say enough about what is wrong.
_SAMPLE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A line of the ledger. `checked`: it is a promise; `problem`: how it was broken."""

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
        """What is wrong, a sentence each."""
        return [entry.problem for _, entries in self.sections for entry in entries if entry.problem]


def draw_up(facts: Facts, placed: Placement, run: Run) -> Ledger:
    """Draw up the ledger of a run."""
    return Ledger(
        sections=(
            ("Orders", _order_lines(facts, placed)),
            ("Payments", _payment_lines(facts)),
            ("Jobs", _job_lines(facts, placed, run)),
            ("Dead letters", _dead_letter_lines(facts)),
            ("Documents", _document_lines(facts)),
            ("Labels, one queue for Python and Node", _label_lines(facts)),
            ("Time", _time_lines(facts, run)),
        )
    )


def _order_lines(facts: Facts, placed: Placement) -> tuple[Entry, ...]:
    return (
        _line("placed", len(placed.committed) + len(placed.rolled_back)),
        _check(
            "committed", len(facts.orders), "order is missing", checks.lost_orders(facts, placed)
        ),
        _check(
            "rolled back after enqueueing",
            len(placed.rolled_back),
            "order is there though it rolled back",
            checks.ghost_orders(facts, placed),
        ),
        _check(
            "jobs of rolled-back orders",
            len(checks.ghost_jobs(facts, placed)),
            "job of an order that rolled back",
            checks.ghost_jobs(facts, placed),
        ),
    )


def _payment_lines(facts: Facts) -> tuple[Entry, ...]:
    due = [order for order in facts.orders if checks.chargeable(order)]
    once = [order for order in due if len(order.payments) == 1]
    hopeless = len(facts.orders) - len(due)
    return (
        _check(
            "orders to be paid, paid exactly once",
            f"{len(once):,} of {len(due):,}",
            "order is not paid",
            checks.unpaid(facts),
        ),
        _check(
            "orders paid twice",
            len(checks.paid_twice(facts)),
            "order is paid too often",
            checks.paid_twice(facts),
        ),
        _check(
            f"payments from the {hopeless} cards that never pay",
            len(checks.paid_by_nobody(facts)),
            "order is paid though its card was declined",
            checks.paid_by_nobody(facts),
        ),
    )


def _job_lines(facts: Facts, placed: Placement, run: Run) -> tuple[Entry, ...]:
    states = Counter(job.state for job in facts.jobs)
    return (
        _check("enqueued", len(facts.jobs), "order lacks a job", checks.lost_jobs(facts, placed)),
        *(_line(state, states[state]) for state in State if states[state]),
        _check(
            "left", len(checks.jobs_left(facts)), "job is not finished", checks.jobs_left(facts)
        ),
        _line("attempts", sum(job.attempt for job in facts.jobs)),
        _line("of these failed", facts.failed_runs),
        _line("in the hands of the killed worker", len(run.killed.jobs) if run.killed else 0),
        _line("rescued from a dead worker", len(facts.rescued)),
    )


def _dead_letter_lines(facts: Facts) -> tuple[Entry, ...]:
    errors = Counter(f"{job.type}  {job.error}" for job in checks.dead_letters(facts))
    return (
        *(_line(error, count) for error, count in errors.most_common()),
        _check(
            "jobs given up",
            len(checks.dead_letters(facts)),
            "job was given up wrongly, or wrongly not",
            checks.wrongly_discarded(facts),
        ),
    )


def _document_lines(facts: Facts) -> tuple[Entry, ...]:
    return (
        _check("e-mails", len(facts.emails), "order lacks its e-mail", checks.without_email(facts)),
        _check("invoices", len(facts.pdfs), "order lacks its invoice", checks.without_pdf(facts)),
        _line("e-mails sent again after the kill", len(checks.emails_again(facts))),
        _line("invoices drawn again after the kill", len(checks.pdfs_again(facts))),
        _check(
            "written again without a kill",
            len(checks.again_without_reason(facts)),
            "document was written again without a reason",
            checks.again_without_reason(facts),
        ),
    )


def _label_lines(facts: Facts) -> tuple[Entry, ...]:
    by = Counter(job.result.get("by") for job in checks.labels(facts))
    return (
        _check("labels", by.total(), "order lacks its label", checks.without_label(facts)),
        _line("made by Python, in the database", by["python"]),
        _line("made by Node, over HTTP", by["node"]),
        _check(
            "made again without a dead worker",
            len(checks.labels_again(facts)),
            "label was made again without a reason",
            checks.labels_again(facts),
        ),
    )


def _time_lines(facts: Facts, run: Run) -> tuple[Entry, ...]:
    finished = len(facts.jobs) - len(checks.jobs_left(facts))
    return (
        _line("seconds of work", f"{run.seconds:.1f}"),
        _line("jobs/s", f"{finished / max(run.seconds, 0.001):,.0f}"),
    )


def _line(label: str, value: int | str) -> Entry:
    return Entry(label=label, value=f"{value:,}" if isinstance(value, int) else value)


def _check(label: str, value: int | str, problem: str, broken: Sequence[str]) -> Entry:
    sample = ", ".join(broken[:_SAMPLE]) + (", …" if len(broken) > _SAMPLE else "")
    said = f"{label}: {problem} ({sample}); {len(broken)} in all" if broken else ""
    return Entry(label=label, value=_line(label, value).value, checked=True, problem=said)
