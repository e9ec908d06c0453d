"""Open WebSockets: the handshake is a request that Django handles (ojs-realtime §3.1, §6)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from django_ojs.http.websocket import (
    HANDSHAKE,
    OPENED,
    SUBPROTOCOL,
    Connection,
    Event,
    Handshake,
    Receive,
    Send,
)

Scope: TypeAlias = dict[str, Any]
#: Frameworks differ in how they declare what ASGI has.
Application: TypeAlias = Callable[..., Awaitable[None]]

_PATH: Final = "/ojs/v1/ws"
_KEPT: Final = (b"ojs-version", b"x-request-id")


def is_ours(scope: Scope) -> bool:
    """Whether this is a WebSocket of the API."""
    return scope["type"] == "websocket" and str(scope["path"]).endswith(_PATH)


async def serve(application: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one WebSocket from its begin to its end."""
    await receive()  # websocket.connect
    handshake = Handshake()
    response = await _ask(application, scope, handshake)
    try:
        # A middleware may have replaced the response.
        if handshake.access is None or response[0]["status"] != OPENED:
            await _reject(scope, send, response)
            return
        chosen = SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None
        accept = {"type": "websocket.accept", "subprotocol": chosen, "headers": _kept(response)}
        await send(accept)
        await Connection(handshake.access, receive, send).run()
    finally:
        if handshake.slot is not None:
            handshake.slot.release()


async def _ask(application: Application, scope: Scope, handshake: Handshake) -> list[Event]:
    """Let the application handle the request of a connection, and return its response."""
    request = {
        **scope,
        "type": "http",
        "method": "GET",
        "scheme": {"ws": "http", "wss": "https"}.get(scope.get("scheme", "ws"), "http"),
        # Those of the connection, which servers name otherwise for a request.
        "extensions": {},
        HANDSHAKE: handshake,
    }
    body: list[Event] = [{"type": "http.request", "body": b"", "more_body": False}]
    response: list[Event] = []

    async def receive() -> Event:
        if body:
            return body.pop()
        # A request waits for its client to disconnect, which is then the connection's to notice.
        return await asyncio.Event().wait() and {}

    async def send(message: Event) -> None:
        response.append(message)

    await application(request, receive, send)
    return response


def _kept(response: list[Event]) -> list[tuple[bytes, bytes]]:
    """Return the headers of the response of a request that a WebSocket has too."""
    given = ((name.lower(), value) for name, value in response[0]["headers"])
    return [(name, value) for name, value in given if name in _KEPT]


async def _reject(scope: Scope, send: Send, response: list[Event]) -> None:
    """Reject a connection with the response of the request, where the server can send it."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    for message in response:
        await send({**message, "type": f"websocket.{message['type']}"})
