"""A simulated partner, such as a card network or a carrier, that honours idempotency keys.

Its books are a file of its own: a rollback in the shop's database undoes nothing here.
"""

import fcntl
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the shop asked for, by which key, and the number of what was done."""

    what: str
    key: str
    number: str


def ask(what: str, key: str) -> str:
    """Do something once for a key, and return its number: a later request gets the same one."""
    with books().open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = {request.key: request.number for request in _read(file.read())}
        number = known.get(key) or f"{what}-{len(set(known.values())) + 1}"
        file.write(json.dumps(asdict(Request(what=what, key=key, number=number))) + "\n")
    return number


def requests() -> list[Request]:
    """Return all requests, in order."""
    return _read(books().read_text()) if books().exists() else []


def books() -> Path:
    """Return the file of the books."""
    return Path(settings.VAR_DIR) / "partner.jsonl"


def _read(text: str) -> list[Request]:
    return [Request(**json.loads(line)) for line in text.splitlines()]
