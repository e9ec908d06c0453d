"""The page that shows the API: it loads nothing from elsewhere."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client

from django_ojs.http.schema.generator import document

pytestmark = pytest.mark.urls("example_project.urls")


def test_its_files_are_served_from_here(client: Client) -> None:
    page = client.get("/ojs/docs/").content.decode()

    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(files) == 4
    for file in files:
        assert file.startswith("/static/"), file
        assert finders.find(file.removeprefix("/static/")), file


def test_it_shows_the_document(client: Client) -> None:
    page = client.get("/ojs/docs/").content.decode()

    assert 'url: "/ojs/v1/openapi.json"' in page
    assert client.get("/ojs/v1/openapi.json").json()["info"] == document()["info"]


def test_the_command_needs_no_options() -> None:
    out = StringIO()

    call_command("spectacular", validate=True, fail_on_warn=True, stdout=out)

    assert "/ojs/v1/jobs/{key}:" in out.getvalue()
