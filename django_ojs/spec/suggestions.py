"""The sentence of a message that proposes the name which was probably meant."""

import difflib
from collections.abc import Collection


def did_you_mean(name: object, known: Collection[str]) -> str:
    """Return "Did you mean …?" for the nearest known name; without one, list them all."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"Did you mean {near[0]}?" if near else f"The names are {', '.join(known)}."
