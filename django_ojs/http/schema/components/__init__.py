"""What the operations refer to: objects, headers, parameters, error answers, ways to be known."""

from typing import Any, Final

from django_ojs.http.schema.components import (
    admin,
    basics,
    dead_letter,
    events,
    headers,
    jobs,
    queues,
    system,
    workers,
)
from django_ojs.http.schema.operation import error_responses
from django_ojs.http.schema.values import Schema

SCHEMAS: Final[dict[str, Schema]] = {
    name: schema
    for part in (basics, jobs, workers, queues, dead_letter, events, admin, system)
    for name, schema in part.SCHEMAS.items()
}

SECURITY: Final[dict[str, Any]] = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "ojs_<prefix>_<secret>",
        "description": "An API key, made by `manage.py ojs_apikey`.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "sessionid",
        "description": "The session of a user who is staff; Django permissions decide.",
    },
    "csrf": {
        "type": "apiKey",
        "in": "header",
        "name": "X-CSRFToken",
        "description": "Django's CSRF token, with a session and for what changes something.",
    },
}

COMPONENTS: Final[dict[str, Any]] = {
    "schemas": dict(sorted(SCHEMAS.items())),
    "headers": headers.HEADERS,
    "parameters": headers.PARAMETERS,
    "responses": error_responses(),
    "securitySchemes": SECURITY,
}
