"""The audit log of access and of operators' actions (ojs-security §11).

The logger `django_ojs.audit` gets one record for each event, with the fields as attributes. Neither
secrets nor request bodies are logged.
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
    """Log one event; a failure as a warning."""
    # A principal that another authentication class names may contain line breaks.
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
