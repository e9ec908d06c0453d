"""A remote server, and the settings that send jobs to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.extensions.outbox.relay import Relay
from django_ojs.extensions.outbox.relay_threads import relays
from tests.outbox.remote import Remote
from tests.outbox.server import Server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a server that responds as the contract says, until a test changes that."""
    made = Server()
    try:
        yield made
    finally:
        made.close()


def destination(server: Server, **values: Any) -> dict[str, Any]:
    return {"remote": {"url": server.url, "queues": ["remote-*"], "timeout": 10, **values}}


@pytest.fixture
def outbox(server: Server) -> Iterator[None]:
    """Send the queues remote-… to the server."""
    with override_settings(OJS={"OUTBOX": destination(server)}):
        yield


@pytest.fixture
def relay(outbox: None) -> Iterator[Relay]:
    """Return the relay to the server."""
    (made,) = relays("tests")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def remote(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Remote]:
    """Return a second site, which runs."""
    made = Remote(process_environment, tmp_path / "remote.log")
    try:
        made.start()
        yield made
    finally:
        made.stop()
