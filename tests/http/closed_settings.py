"""Settings of the servers that tests start and ask with API keys: all events, two streams."""

from __future__ import annotations

from tests.settings import *  # noqa: F403

OJS = {
    "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.ApiKeyAuthentication"],
    "KEEP_EVENTS": ["*"],
    "HTTP_EVENT_RATE": 10_000,
    "HTTP_EVENT_STREAMS": 2,
}
