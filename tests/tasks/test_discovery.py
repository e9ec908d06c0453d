"""How a process finds the tasks of a project, and what a project sees that lacks something."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import django
import pytest

ROOT = Path(__file__).parents[2]
IS_DJANGO = django.VERSION >= (6, 0)
MODULE = "django.tasks" if IS_DJANGO else "django_tasks"

SETTINGS = f"""
import django, sys
from django.conf import settings
BACKEND = "django_ojs.tasks.OJSBackend"
settings.configure(
    INSTALLED_APPS=INSTALLED_APPS + {[] if IS_DJANGO else ["django_tasks"]},
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    USE_TZ=True,
    TASKS={{
        "default": {{"BACKEND": BACKEND, "OPTIONS": {{"modules": ["background"]}}}},
        "broken": {{"BACKEND": "does.not.exist"}},
        "other": {{"BACKEND": "{MODULE}.backends.dummy.DummyBackend"}},
    }},
)
"""

TASK = f"from {MODULE} import task\n@task\ndef work(number): return number\n"

needs_tasks = pytest.mark.skipif(
    not IS_DJANGO and find_spec("django_tasks") is None, reason="django-tasks is not installed"
)


def run(code: str, *apps: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run code in a project of its own, whose settings are configured and not yet set up."""
    return subprocess.run(
        [sys.executable, "-c", f"INSTALLED_APPS = {list(apps)}\n{SETTINGS}{code}"],
        env={"PYTHONPATH": f"{folder}:{':'.join(sys.path)}:{ROOT}", "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@needs_tasks
def test_tasks_are_found_wherever_and_whenever_they_are_declared(tmp_path: Path) -> None:
    """Before the models are loaded, in `tasks.py` of an app, and in a module of the options."""
    for app in ("early", "shop"):
        (tmp_path / app).mkdir()
        (tmp_path / app / "__init__.py").touch()
    # An app's configuration is imported before any model can be.
    (tmp_path / "early/apps.py").write_text(
        "from django.apps import AppConfig\nimport early.more\n"
        "class Early(AppConfig):\n    name = 'early'\n"
    )
    (tmp_path / "early/more.py").write_text(TASK)
    (tmp_path / "shop/tasks.py").write_text(TASK)
    (tmp_path / "background.py").write_text(TASK)
    code = """
django.setup()
from django.db import connection
from django_ojs import handlers
assert connection.connection is None, "a query was sent"
print(handlers.job_types())
"""
    found = run(code, "early", "shop", "django_ojs", folder=tmp_path)
    assert found.stderr == ""
    assert found.stdout == "['background.work', 'early.more.work', 'shop.tasks.work']\n"


@needs_tasks
def test_a_project_without_the_app_is_told_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "background.py").write_text(TASK)
    found = run("django.setup()\nimport background", folder=tmp_path)
    assert "TASKS needs 'django_ojs' in INSTALLED_APPS." in found.stderr


@pytest.mark.skipif(IS_DJANGO, reason="Django has django.tasks")
def test_without_the_backport_the_error_says_what_to_install() -> None:
    code = "sys.modules['django_tasks'] = None\nfrom django_ojs.tasks import OJSBackend"
    assert "pip install django-ojs[tasks]" in run(code).stderr
