"""The envelope of an event (ojs-events §2)."""

from typing import Final

from django_ojs.http.schema.values import (
    BOOLEAN,
    OBJECT,
    STRING,
    TIMESTAMP,
    Schema,
    array,
    enum,
    object_,
    ref,
)
from django_ojs.spec.events import SPECVERSION, EventType

SCHEMAS: Final[dict[str, Schema]] = {
    "Event": object_(
        {
            "specversion": enum(SPECVERSION),
            "id": STRING,
            "type": enum(*EventType),
            "source": {"type": "string", "format": "uri"},
            "time": TIMESTAMP,
            "subject": STRING,
            "data": OBJECT,
        },
        ["specversion", "id", "type", "source", "time", "subject", "data"],
    ),
    "EventsAnswer": object_(
        {"events": array(ref("Event")), "cursor": STRING, "has_more": BOOLEAN},
        ["events", "cursor", "has_more"],
    ),
}
