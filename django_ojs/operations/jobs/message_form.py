"""The form of an error's message: what messages of one cause have in common.

`Order 17 of "ann" failed.` and `Order 18 of "bob" failed.` have the form `Order … of … failed.`
"""

import re
from typing import Any, Final

from django.db.models.lookups import Contains, Lookup

#: Stands for a number or a quotation, and at the end for whatever follows.
PLACE: Final = "…"
#: Characters of a message that are compared.
MAX_LENGTH: Final = 200

#: A quotation, or a word with a digit in it: a number, an id, an address.
_VARIES: Final = re.compile(
    r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|(?<!\w)'[^']*'(?!\w)|\u2018[^\u2019]*\u2019"
    r"|[\w@:/+-]*\d[\w@:/+-]*(?:[.,][\w@:/+-]+)*"
)


def form(message: str | None) -> str:
    """Return the form of a message, or of the first characters of one.

    It is printable text of one line: what follows a line is left out.
    """
    text = message or ""
    whole = text[: MAX_LENGTH - 1]
    end = next((n for n, each in enumerate(whole) if not each.isprintable()), len(whole))
    shown = _VARIES.sub(PLACE, whole[:end])
    return shown if end == len(text) or shown.endswith(PLACE) else f"{shown}{PLACE}"


def is_whole(message: str | None) -> bool:
    """Return whether a message can be searched for as it is."""
    return bool(message) and len(message or "") < MAX_LENGTH and (message or "").isprintable()


class HasForm(Contains):
    """Whether a text has a form: it is what stands between the places, in this order."""

    def process_rhs(self, *args: Any) -> Any:
        # The text without the `%` at both ends that a search for a part has.
        sql, params = Lookup.process_rhs(self, *args)
        parts, escaped = str(params[0]).split(PLACE), args[1].ops.prep_for_like_query
        return sql, ["%".join(map(escaped, parts)), *params[1:]]
