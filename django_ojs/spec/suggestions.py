"""Propose the name that was probably meant, or list the names that are allowed."""

import difflib
import re
from collections.abc import Collection, Iterable


def nearest(name: object, known: Collection[str]) -> str | None:
    """Return the known name that is most similar to a name, or None if none is similar."""
    near = difflib.get_close_matches(str(name), known, n=1)
    # The first word alone, such as "rate" for rate_limit, is not similar enough to the whole name.
    longer = [each for each in known if each.startswith(f"{name}_")]
    if not near and len(longer) == 1:
        near = longer
    return near[0] if near else None


def is_misspelt(name: object, known: Collection[str]) -> bool:
    """Whether a name differs from a known one by about a letter, so that it is probably misspelt.

    This is for objects that may also have members that this server does not know.
    """
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.85)
    return bool(near) and str(name) not in known and abs(len(near[0]) - len(str(name))) <= 1


def did_you_mean(name: object, known: Collection[str]) -> str:
    """Return "Did you mean …?" for the nearest known name; without one, list them all."""
    near = nearest(name, known)
    if near is None:
        return f"The names are {', '.join(known)}."
    return f"Did you mean {near}?"


def allowed_name(text: object) -> str:
    """Return a text as the name of a queue or a cron job: a-z, digits, dots and hyphens."""
    return re.sub(r"[^a-z0-9.]+", "-", str(text).lower()).strip("-.")


def one_of(names: Iterable[str]) -> str:
    """Return names as alternatives: "active or available"."""
    first, *rest = names
    text: str = first
    for name in rest:
        text = f"{text} or {name}"
    return text
