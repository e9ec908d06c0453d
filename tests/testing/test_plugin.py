"""The pytest plugin, in a small project of a user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import unittest
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

from django_ojs import pytest_plugin
from tests.docs.pages import ROOT

PLUGIN = "django_ojs.pytest_plugin"

PROJECT = {
    "project_settings.py": """
        SECRET_KEY = "x"
        USE_TZ = True
        INSTALLED_APPS = ["django_ojs", "shop"]
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        """,
    "shop/__init__.py": "",
    "shop/jobs.py": """
        import django_ojs as ojs

        @ojs.job("receipt.send", queue="email")
        def send_receipt(to):
            return to
        """,
    "test_with_classes.py": """
        from django.test import SimpleTestCase, TestCase
        from django_ojs.testing import Drained, OJSFakeMixin, OJSTestMixin
        from shop.jobs import send_receipt

        class Rows(OJSTestMixin, TestCase):
            def test_one(self):
                send_receipt.enqueue("ada")
                self.ojs.assert_enqueued(send_receipt, args=["ada"], count=1)
                assert self.ojs.drain() == Drained(completed=1)

            def test_two(self):
                self.ojs.refute_enqueued(send_receipt)

        class Fake(OJSFakeMixin, SimpleTestCase):
            def test_one(self):
                send_receipt.enqueue("ada")
                self.ojs.assert_enqueued(send_receipt, count=1)
        """,
    "test_with_fixtures.py": """
        import pytest
        from django_ojs.models import Job
        from django_ojs.testing import Drained
        from shop.jobs import send_receipt

        def test_rows(ojs):
            send_receipt.enqueue("ada")
            assert Job.objects.count() == 1
            assert ojs.drain() == Drained(completed=1)

        def test_other_rows(ojs):
            ojs.refute_enqueued(send_receipt)

        def test_fake(ojs_fake):
            send_receipt.enqueue("ada")
            ojs_fake.assert_enqueued(send_receipt, count=1)

        def test_inline(ojs_inline):
            send_receipt.enqueue("ada")
            ojs_inline.assert_completed(send_receipt, count=1)

        @pytest.mark.ojs("fake")
        def test_marked(ojs):
            send_receipt.enqueue("ada")
            assert ojs.mode == "fake"

        @pytest.mark.ojs("inline")
        def test_marked_without_the_fixture():
            assert send_receipt.enqueue("ada").job().result == "ada"

        def test_committed(ojs, transactional_db):
            from django.db import connection
            assert not connection.in_atomic_block
            send_receipt.enqueue("ada")
            ojs.assert_enqueued(send_receipt)

        def test_a_failure_is_shown(ojs):
            send_receipt.enqueue("ada")
            ojs.assert_enqueued(send_receipt, args=["eve"])
        """,
}


def run(folder: Path, *arguments: str) -> str:
    """Run pytest in a folder, and return what it prints."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider"]
    # Plugins of other packages, whose import takes longer than these tests.
    for name in ("anyio", "faker", "schemathesis"):
        command += ["-p", f"no:{name}"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout + done.stderr


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))


@pytest.mark.process
@pytest.mark.requirement("TST-005")
def test_a_project_with_classes_and_functions_in_two_processes(tmp_path: Path) -> None:
    write(tmp_path, PROJECT)
    found = run(tmp_path, "-n", "2", "--ds=project_settings", "--strict-markers", "-W", "error")
    assert "1 failed, 10 passed" in found, found
    # The line of the test is shown, and not what it calls.
    assert re.search(
        r">       ojs.assert_enqueued\(send_receipt, args=\[\"eve\"\]\)\n"
        r"E +AssertionError: No matching job enqueued: receipt.send with args=\['eve'\]\n"
        r"E +Nearest first, this test enqueued:\n"
        r"E +1\. receipt.send \S+ \(available\)\n"
        r"E +args\[0\] \(to\): expected 'eve', got 'ada'\n",
        found,
    ), found


@pytest.mark.process
def test_the_fixture_alone_creates_the_test_database(tmp_path: Path) -> None:
    path = tmp_path / "of_the_project.sqlite3"
    write(
        tmp_path,
        {
            **{name: text for name, text in PROJECT.items() if not name.startswith("test")},
            "project_settings.py": PROJECT["project_settings.py"].replace(":memory:", str(path)),
            "test_it.py": """
                import pytest
                from shop.jobs import send_receipt

                @pytest.fixture
                def sent(ojs):
                    return send_receipt.enqueue("ada")

                def test_through_another_fixture(sent):
                    assert sent.job().state == "available"

                @pytest.mark.ojs("real")
                def test_marked():
                    send_receipt.enqueue("ada")

                @pytest.mark.ojs("fake")
                def test_fake(ojs):
                    send_receipt.enqueue("ada")
                    ojs.assert_enqueued(send_receipt)
                """,
        },
    )
    found = run(tmp_path, "--ds=project_settings")
    assert "3 passed" in found, found
    assert not path.exists()


@pytest.mark.process
def test_a_project_without_django_is_left_alone(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "test_it.py": """
                import sys

                def test_nothing_is_imported():
                    loaded = {name.partition(".")[0] for name in sys.modules}
                    assert "django" not in loaded
                    assert "django_ojs.testing" not in sys.modules

                def test_rows(ojs): ...
                """
        },
    )
    found = run(tmp_path, "-p", "no:django")
    assert "1 passed, 1 error" in found, found
    assert "The fixture ojs needs pytest-django, unless its mode is fake." in found


class InUnittest(unittest.TestCase):
    """Where the marker would have no effect."""


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("fakes", "the marker ojs takes one of real, fake, inline, not 'fakes'"),
        ("fake", "InUnittest is a TestCase, for which there is django_ojs.testing.OJSTestMixin"),
    ],
)
def test_a_marker_without_effect_is_an_error(
    request: pytest.FixtureRequest, mode: str, words: str
) -> None:
    module = request.node.getparent(pytest.Module)
    collected = pytest.Class.from_parent(module, name="InUnittest")
    item = pytest.Function.from_parent(collected, name="test_it", callobj=lambda: None)
    item.add_marker(pytest.mark.ojs(mode))
    with pytest.raises(pytest.UsageError, match=words):
        pytest_plugin.pytest_itemcollected(item)


def test_the_entry_point_names_the_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert import_module(PLUGIN).ojs
