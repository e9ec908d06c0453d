"""Open WebSockets: the handshake is a request that Django handles (ojs-realtime §3.1, §6)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from django_ojs.http.websocket import (
    HANDSHAKE,
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


def is_ours(scope: Scope) -> bool:
    """Whether this is a WebSocket of the API."""
    return scope["type"] == "websocket" and str(scope["path"]).endswith(_PATH)


async def serve(application: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one WebSocket from its begin to its end."""
    await receive()  # websocket.connect
    handshake = Handshake()
    response = await _ask(application, scope, handshake)
    if handshake.access is None or handshake.slot is None:
        await _refuse(scope, send, response)
        return
    try:
        chosen = SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None
        await send({"type": "websocket.accept", "subprotocol": chosen, "headers": []})
        await Connection(handshake.access, receive, send).run()
    finally:
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


async def _refuse(scope: Scope, send: Send, response: list[Event]) -> None:
    """Refuse a connection with the response of the request, where the server can send it."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    for message in response:
        await send({**message, "type": f"websocket.{message['type']}"})
