"""Read the Retry-After header of a response of another server (RFC 9110 §10.2.3)."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of Retry-After, a number or a date; None when it is missing or invalid."""
    text, date = headers.get("retry-after"), headers.get("date")
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return float(text)
    moment = _moment(text)
    if moment is None:
        return None
    # The server's clock counts if it sends a Date header, because ours may differ from it.
    now = (_moment(date) if date is not None else None) or datetime.now(UTC)
    return max(0.0, (moment - now).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return None if moment.tzinfo is None else moment
