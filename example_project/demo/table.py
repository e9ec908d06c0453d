"""The ledger as an aligned table."""

from collections.abc import Iterator

from example_project.demo.ledger import Entry, Ledger


def lines(ledger: Ledger) -> Iterator[str]:
    """Yield the lines of the table: a tick or a cross where something was checked."""
    entries = [entry for _, section in ledger.sections for entry in section]
    label = max(len(entry.label) for entry in entries)
    value = max(len(entry.value) for entry in entries)
    for title, section in ledger.sections:
        yield title
        for entry in section:
            yield f"  {entry.label:<{label}}  {entry.value:>{value}}  {_check_mark(entry)}".rstrip()
        yield ""


def _check_mark(entry: Entry) -> str:
    if not entry.checked:
        return ""
    return "✗" if entry.problem else "✓"
