"""Parcel labels: a number for each order, the same in each language."""

import hashlib

_WEIGHTS = (8, 6, 4, 2, 3, 5, 9, 7)


def tracking(reference: str) -> str:
    """Return a parcel's number: eight digits and their check digit, as postal services have them.

    `workers/node/handlers.mjs` has the same function; the demonstration compares.
    """
    digest = hashlib.sha256(reference.encode()).digest()
    serial = f"{int.from_bytes(digest[:4], 'big') % 100_000_000:08}"
    return f"CK{serial}{check_digit(serial)}BE"


def check_digit(serial: str) -> int:
    """Return the check digit of eight digits."""
    digit = 11 - sum(w * int(d) for w, d in zip(_WEIGHTS, serial, strict=True)) % 11
    return {10: 0, 11: 5}.get(digit, digit)
