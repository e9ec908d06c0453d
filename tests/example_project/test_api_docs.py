"""The page that shows the API: it loads nothing from elsewhere."""

from __future__ import annotations

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from django_ojs.http.views.openapi import DOCUMENT

pytestmark = pytest.mark.urls("example_project.urls")


def test_its_files_are_served_from_here(client: Client) -> None:
    page = client.get("/ojs/docs/").content.decode()

    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(files) == 3
    for file in files:
        assert file.startswith("/static/"), file
        assert finders.find(file.removeprefix("/static/")), file


def test_it_shows_the_document(client: Client) -> None:
    page = client.get("/ojs/docs/").content.decode()

    assert 'url: "/ojs/v1/openapi.json"' in page
    assert client.get("/ojs/v1/openapi.json").json()["info"] == DOCUMENT.read()["info"]
