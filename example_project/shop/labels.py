"""Parcels, and the carrier who collects them.

The carrier is simulated. Its limits are not: the queue of the labels has them in the settings.
"""

import hashlib
from collections.abc import Sequence

#: What the carrier's API allows: so many requests at the same time, and so many in any second.
MAX_CONCURRENT, MAX_PER_SECOND = 8, 100

#: How many products fit into a parcel.
_PARCEL_SIZE = 4
_WEIGHTS = (8, 6, 4, 2, 3, 5, 9, 7)


def parcels(products: int) -> int:
    """Return how many parcels so many products need."""
    return -(-products // _PARCEL_SIZE)


def tracking(reference: str, parcel: int) -> str:
    """Return the number of a parcel: eight digits and their check digit."""
    serial = _eight_digits(f"{reference}/{parcel}")
    return f"CK{serial}{check_digit(serial)}BE"


def collection(numbers: Sequence[str]) -> str:
    """Return the number under which the carrier collects parcels with these numbers.

    `workers/node/handlers.mjs` has the same function; the demonstration compares.
    """
    return f"PU{_eight_digits(' '.join(numbers))}"


def check_digit(serial: str) -> int:
    """Return the check digit of eight digits."""
    digit = 11 - sum(w * int(d) for w, d in zip(_WEIGHTS, serial, strict=True)) % 11
    return {10: 0, 11: 5}.get(digit, digit)


def _eight_digits(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"{int.from_bytes(digest[:4], 'big') % 100_000_000:08}"
