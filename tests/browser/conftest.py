"""A real browser: the system's Chromium, driven by Playwright, on a server of this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.handlers.wsgi import WSGIRequest
from django.db import connections
from django.http.response import HttpResponseBase
from django.test import Client
from django.test.testcases import LiveServerThread

PATIENCE = 20_000
"""Milliseconds that whatever a page is expected to show may take on a machine that is busy."""

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def reason() -> str:
    """Say why there is no browser here, or nothing."""
    if CHROMIUM is None:
        return "there is no chromium on this machine"
    try:
        import playwright.sync_api  # noqa: F401 - whether it can be had
    except ImportError:
        return "playwright is not installed"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacking = reason()
    for item in items:
        if lacking and item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason=lacking))


class StrictPolicyHandler(StaticFilesHandler):
    """Send each page with the policy that the admin's how-to promises to work under."""

    def get_response(self, request: WSGIRequest) -> HttpResponseBase:
        response: HttpResponseBase = super().get_response(request)
        response.headers["Content-Security-Policy"] = "default-src 'self'"
        return response


@pytest.fixture
def site(transactional_db: None) -> Iterator[str]:
    """Serve the test's database, static files included, and return the address."""
    server = LiveServerThread("127.0.0.1", StrictPolicyHandler, connections_override={})
    server.daemon = True
    server.start()
    server.is_ready.wait(20)
    assert server.error is None
    yield f"http://127.0.0.1:{server.port}"
    server.terminate()


@pytest.fixture
def chromium(site: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a browser for this test alone.

    While Playwright runs there is a loop in this thread, beside which Django would rather not be
    called; a browser for all would leave it to every test that comes after.
    """
    from playwright.sync_api import sync_playwright

    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    with sync_playwright() as playwright:
        # As root, in a container, it has no sandbox; the pages are our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, site: str) -> Iterator[Any]:
    """Open a page that a superuser is logged in on.

    Any error of a script fails the test, and so does anything that the policy did not let through.
    """
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    context = chromium.new_context(
        base_url=site, viewport={"width": 1280, "height": 900}, locale="en-GB"
    )
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": site}])
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on(
        "console",
        lambda message: wrong.append(message.text) if "Security Policy" in message.text else None,
    )
    yield opened
    context.close()
    connections.close_all()
    assert not wrong
