"""The ASGI application that serves WebSockets beside Django: see `with_websockets`."""

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_ojs.http.websocket import Receive, Send
    from django_ojs.http.websocket_server import Application, Scope


def with_websockets(application: "Application") -> "Application":
    """Serve the WebSockets of `ojs/v1/ws`, and let `application` serve everything else.

    A connection is opened by a GET request of that path, which `application` handles with all its
    middleware: it authenticates as every other request of the API. The streams of the process are
    told when its server stops. To be called after `get_asgi_application`.
    """
    # These import models, which only an application that is set up has.
    from django_ojs.http import server_stop, websocket_server

    watches = False

    async def serve(scope: "Scope", receive: "Receive", send: "Send") -> None:
        nonlocal watches
        if not watches:
            # Now the server has set its handlers of signals.
            watches = True
            if threading.current_thread() is threading.main_thread():
                server_stop.watch_signals(asyncio.get_running_loop())
        if websocket_server.is_ours(scope):
            await websocket_server.serve(application, scope, receive, send)
        else:
            await application(scope, receive, send)

    return serve
