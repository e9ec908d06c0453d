"""The settings modules of `outgrow-one-machine.md`: one site for each of two databases."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests import fork_server
from tests.databases import KIND
from tests.docs.pages import ROOT, blocks
from tests.docs.runner import commands

PAGE = ROOT / "docs" / "how-to" / "outgrow-one-machine.md"
NAMES = ("north", "south")

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.slow,
    pytest.mark.skipif(KIND not in ("postgresql", "sqlite"), reason="it makes two databases"),
]

#: What stands for the settings that the page leaves to the reader.
COMMON = """\
from tests.settings import *

DATABASES = {"default": DATABASES["default"]}
"""

ENQUEUE = """\
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = f"mysite.settings_{sys.argv[1]}"
import django
django.setup()
from django.db import transaction
import django_ojs as ojs
for value in ("gone", sys.argv[1]):
    with transaction.atomic():
        ojs.enqueue("testapp.echo", [value])
        transaction.set_rollback(value == "gone")
"""

LOOK = """\
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = f"mysite.settings_{sys.argv[1]}"
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
from django_ojs.models import Job
for job in Job.objects.all():
    print(job.state, *job.args)
client = Client()
client.force_login(User.objects.create_superuser("root"))
page = client.get("/admin/django_ojs/job/", {"q": "type:testapp.echo"}).content.decode()
print("admin", f"/admin/django_ojs/job/{Job.objects.get().pk}" in page)
"""


class Sites:
    """The folder of a project with the modules of the page."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.commands: list[list[str]] = []
        (folder / "mysite").mkdir()
        for block in blocks(PAGE):
            module = block.module or ""
            if module.startswith("mysite."):
                text = COMMON if module == "mysite.settings" else block.text
                (folder / f"{module.replace('.', '/')}.py").write_text(text)
            if block.language == "console" and "mysite.settings_" in block.text:
                self.commands += commands(block)

    def run(self, *arguments: str) -> str:
        """Run a program. Its settings name none of the two databases, unless it says so itself."""
        done = fork_server.run(
            [sys.executable, *arguments],
            cwd=self._folder,
            env={
                **os.environ,
                "PYTHONPATH": f"{self._folder}{os.pathsep}{ROOT}",
                "DJANGO_SETTINGS_MODULE": "mysite.settings",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    """Return the project; its two databases are there, and empty."""
    if KIND == "sqlite":
        yield Sites(tmp_path)  # Its databases are files of the folder.
        return
    values: dict[str, Any] = deepcopy(connections["default"].settings_dict)
    for name in NAMES:
        _on_server(values, f"CREATE DATABASE {name}")
    try:
        yield Sites(tmp_path)
    finally:
        for name in NAMES:
            _on_server(values, f"DROP DATABASE {name} WITH (FORCE)")


def _on_server(values: dict[str, Any], statement: str) -> None:
    link = connections["default"].copy(alias="server")
    link.settings_dict = {**values, "NAME": "postgres"}
    with link._nodb_cursor() as cursor:
        cursor.execute(statement)


def test_each_database_has_a_worker_and_an_admin_of_its_own(sites: Sites) -> None:
    migrate = [words for words in sites.commands if words[0] == "migrate"]
    work = [words for words in sites.commands if words[0] == "ojs_worker"]
    assert len(migrate) == len(work) == len(NAMES)
    for words in migrate:
        sites.run(str(ROOT / "manage.py"), *words, "--verbosity", "0")
    for name in NAMES:
        sites.run("-c", ENQUEUE, name)
    north, south = work
    sites.run(str(ROOT / "manage.py"), *north, "--once")
    assert sites.run("-c", LOOK, "north").splitlines() == ["completed north", "admin True"]
    assert sites.run("-c", LOOK, "south").splitlines() == ["available south", "admin True"]
    sites.run(str(ROOT / "manage.py"), *south, "--once")
    listing = ("ojs", "jobs", "--json", "--settings", "mysite.settings_south")
    (job,) = json.loads(sites.run(str(ROOT / "manage.py"), *listing))["jobs"]
    assert (job["type"], job["state"]) == ("testapp.echo", "completed")
