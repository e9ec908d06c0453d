"""A check, and what it finds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django_ojs.finding import Finding


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A check. `about` names what is in order when the check finds nothing.

    `repair` has steps that remove what it finds, each with its own transaction. Checks without a
    repair only say what to do. `applies` returns whether this database can have the fault. If
    `is_repaired_alone`, the repair removes something, so it runs only if `--only` names the check.
    """

    name: str
    about: str
    run: Callable[[], Iterable[Finding]]
    repair: tuple[Callable[[], object], ...] = ()
    applies: Callable[[], bool] = lambda: True
    is_repaired_alone: bool = False
