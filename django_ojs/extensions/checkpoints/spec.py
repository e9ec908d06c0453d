"""Checkpoints (ojs-durable-execution §4): where another run of a job can continue."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django_ojs.spec import json
from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge, size_details

#: The limit of a state as JSON (§9.1).
MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedCheckpoint:
    """The latest checkpoint of a job. `sequence` counts the checkpoints of the job, from 1."""

    state: json.JSON
    sequence: int
    created_at: datetime


def encode(state: object, *, exact_integers: bool = False) -> str:
    """Return a state as JSON.

    Raises InvalidRequest where JSON cannot represent it, and PayloadTooLarge.
    """
    json.check(state, "state", exact_integers=exact_integers, error=InvalidRequest)
    text = json.dumps(state)
    size = len(text.encode())
    if size > MAX_BYTES:
        raise PayloadTooLarge.of(
            "state",
            f"must be at most {MAX_BYTES} bytes of JSON",
            hint="Store large values elsewhere, and a reference to them in the checkpoint.",
            **size_details(size, MAX_BYTES),
        )
    return text
