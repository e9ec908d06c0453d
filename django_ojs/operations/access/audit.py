"""The audit trail of who was let in and who was not, as log records (ojs-security §11).

The logger `django_ojs.audit` has one record an event, its fields as attributes of the record. No
secret gets here, and neither does what was sent.
"""

import logging
from typing import Any

logger = logging.getLogger("django_ojs.audit")


def note(
    event_type: str,
    *,
    principal: str,
    outcome: str = "success",
    source_ip: str = "",
    correlation_id: str = "",
    **detail: Any,
) -> None:
    """Write one event. What failed is a warning."""
    # A third party may let in whoever has a line break in the name.
    principal = "".join(each if each.isprintable() else "?" for each in principal)
    logger.log(
        logging.INFO if outcome == "success" else logging.WARNING,
        "%s: %s (%s)",
        event_type,
        outcome,
        principal,
        extra={
            "event_type": event_type,
            "principal": principal,
            "outcome": outcome,
            "source_ip": source_ip,
            "correlation_id": correlation_id,
            "detail": detail,
        },
    )
