"""A real browser: the system's Chromium, driven by Playwright, on a server of this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.handlers.wsgi import WSGIRequest
from django.db import connections
from django.http.response import HttpResponseBase
from django.test import Client
from django.test.testcases import LiveServerThread

from tests.model_factories import UserFactory

TIMEOUT_MS = 60_000
"""The limit of each wait for a signal of the browser; no test waits for it to pass."""

#: The headless shell is the same engine without the windows of a browser, and takes a quarter of
#: the CPU time for a page: each page of `chromium --headless` takes half a second of it.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), None)


def reason() -> str:
    """Return why there is no browser, or "" if there is one."""
    if CHROMIUM is None:
        return "there is no chromium on this machine"
    try:
        import playwright.sync_api  # noqa: F401 - only whether it is installed
    except ImportError:
        return "playwright is not installed"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacking = reason()
    for item in items:
        if lacking and item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason=lacking))


class StrictPolicyHandler(StaticFilesHandler):
    """Sends each page with the policy that the how-to of the admin promises to work under."""

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
    assert server.is_ready.wait(TIMEOUT_MS / 1000)
    assert server.error is None
    yield f"http://127.0.0.1:{server.port}"
    server.terminate()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Start a browser for the tests of a file: a start takes as long as some of them.

    Playwright runs an event loop in this thread, in which Django rejects queries by default. A
    browser for the whole run would leave the loop to each test that follows.
    """
    from playwright.sync_api import sync_playwright

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        with sync_playwright() as playwright:
            # As root in a container it has no sandbox; it opens only the pages of these tests.
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            yield browser
            # Beside the loop this thread has connections of its own, which must end with it.
            connections.close_all()
            browser.close()


@pytest.fixture
def page(chromium: Any, site: str) -> Iterator[Any]:
    """Open a page with a superuser logged in.

    A script error fails the test, and so does a violation of the policy.
    """
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    context = chromium.new_context(
        base_url=site, viewport={"width": 1280, "height": 900}, locale="en-GB"
    )
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": site}])
    context.set_default_timeout(TIMEOUT_MS)
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
