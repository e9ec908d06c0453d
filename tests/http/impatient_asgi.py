"""The example project's ASGI application, which waits half a second for a slow WebSocket."""

from __future__ import annotations

from django_ojs.http import websocket
from example_project.asgi import application as application

websocket.SEND_TIMEOUT = 0.5
