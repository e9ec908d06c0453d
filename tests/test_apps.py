"""The app: handlers in `jobs.py` are found, and a broken one is not passed over."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.apps import apps

ROOT = Path(__file__).parent.parent

SETTINGS = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_ojs", *{apps!r}],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    USE_TZ=True,
)
django.setup()
"""


def run(
    code: str, installed: list[str], *, folder: Path, settings: str = SETTINGS
) -> subprocess.CompletedProcess[str]:
    """Run code in a project of its own, with these apps beside ours."""
    return subprocess.run(
        [sys.executable, "-c", settings.format(apps=installed) + code],
        env={"PYTHONPATH": f"{folder}:{ROOT}", "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def app(folder: Path, name: str, jobs: str | None) -> str:
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    if jobs is not None:
        (folder / name / "jobs.py").write_text(jobs)
    return name


ONE = """
import django_ojs as ojs

@ojs.job("one.work")
def work(a: int) -> int:
    return a
"""


def test_the_jobs_of_installed_apps_are_known_before_anybody_imports_them() -> None:
    code = "from django_ojs import handlers; print(handlers.job_types())"
    found = run(code, ["tests.testapp"], folder=ROOT)
    assert found.returncode == 0, found.stderr
    for name in ("add", "create_thing", "describe", "echo", "labelled", "shout"):
        assert f"'testapp.{name}'" in found.stdout


def test_an_app_may_have_no_jobs_and_the_order_of_apps_does_not_matter(tmp_path: Path) -> None:
    installed = [app(tmp_path, "none", None), app(tmp_path, "one", ONE)]
    code = "from django_ojs import handlers; print(handlers.job_types())"
    for order in (installed, installed[::-1]):
        assert run(code, order, folder=tmp_path).stdout == "['one.work']\n"


def test_a_jobs_module_that_cannot_be_imported_stops_the_start(tmp_path: Path) -> None:
    broken = app(tmp_path, "broken", "import a_module_that_is_missing\n")
    found = run("", [broken], folder=tmp_path)
    assert found.returncode != 0
    assert "a_module_that_is_missing" in found.stderr


def test_templates_and_checks_work_in_a_project_without_the_admin() -> None:
    code = """
from django.core.management import call_command
from django.template import engines
settings.TEMPLATES = [
    {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}
]
call_command("check")
print(engines["django"].from_string("{{ 1 }} page").render())
"""
    found = run(code, [], folder=ROOT)
    assert found.returncode == 0, found.stderr
    assert "1 page" in found.stdout


def test_two_handlers_of_a_type_stop_the_start(tmp_path: Path) -> None:
    installed = [app(tmp_path, "one", ONE), app(tmp_path, "two", ONE)]
    found = run("", installed, folder=tmp_path)
    assert found.returncode != 0
    assert "The job type 'one.work' has two handlers: one.jobs.work and two.jobs.work" in (
        found.stderr
    )


def test_the_app_has_its_label_and_name() -> None:
    config = apps.get_app_config("django_ojs")
    assert (config.name, config.verbose_name) == ("django_ojs", "Background jobs")


JOB = "import django_ojs as ojs\n\n@ojs.job('a.b', priority=1)\ndef f(): ...\n"
TASK = "from django_ojs.contrib.celery import shared_task\n\n@shared_task\ndef f(): ...\n"


@pytest.mark.parametrize(
    ("module", "code", "others", "urls"),
    [
        ("jobs", JOB, "", ""),
        # Django's check of the URLs imports what the views use.
        ("jobs", JOB, "", "import shop.jobs\n"),
        ("tasks", TASK, "'django_ojs.contrib.celery', ", ""),
        ("tasks", TASK, "'django_ojs.contrib.celery', ", "import shop.tasks\n"),
    ],
    ids=["jobs", "jobs-in-views", "celery", "celery-in-views"],
)
def test_a_bad_setting_is_a_system_check_although_there_are_handlers(
    module: str, code: str, others: str, urls: str, tmp_path: Path
) -> None:
    name = app(tmp_path, "shop", None)
    (tmp_path / name / f"{module}.py").write_text(code)
    (tmp_path / "urls.py").write_text(f"{urls}urlpatterns = []\n")
    (tmp_path / "project.py").write_text(
        f"INSTALLED_APPS = ['django_ojs', {others}'{name}']\nUSE_TZ = True\n"
        "OJS = {'NOTIFI': True}\nROOT_URLCONF = 'urls'\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}\n"
    )
    (tmp_path / "manage.py").write_text(
        "import sys\nfrom django.core.management import execute_from_command_line\n"
        "execute_from_command_line(sys.argv)\n"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "DJANGO_SETTINGS_MODULE": "project"}

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    check = python("manage.py", "check")
    assert "django_ojs.E001) OJS['NOTIFI'] is not a setting" in check.stderr
    assert "Traceback" not in check.stderr
    if not urls:  # It imports none.
        # A server runs no checks: it does not start.
        server = python("-c", "import django; django.setup()")
        assert server.returncode == 1
        assert "ImproperlyConfigured: OJS['NOTIFI']" in server.stderr


@pytest.mark.parametrize("command", ["check", "migrate", "ojs_worker --once", "ojs doctor"])
def test_a_project_without_time_zones_hears_so_before_it_stores_anything(
    command: str, tmp_path: Path
) -> None:
    done = project_without_time_zones(tmp_path, "manage.py", *command.split())
    assert done.returncode == 1
    assert "django_ojs.E002) django_ojs needs USE_TZ = True" in done.stderr
    assert "HINT: Set USE_TZ = True." in done.stderr
    assert "Traceback" not in done.stderr
    with closing(sqlite3.connect(tmp_path / "db.sqlite3")) as database:
        assert database.execute("SELECT * FROM sqlite_master").fetchall() == []


def test_a_server_without_time_zones_does_not_start(tmp_path: Path) -> None:
    done = project_without_time_zones(tmp_path, "-c", "import django; django.setup()")
    assert done.returncode == 1
    assert "ImproperlyConfigured: django_ojs needs USE_TZ = True" in done.stderr


def project_without_time_zones(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "project.py").write_text(
        "INSTALLED_APPS = ['django_ojs', 'shop']\nUSE_TZ = False\nROOT_URLCONF = 'urls'\n"
        "DEBUG = True\nSECRET_KEY = 'test'\nDATABASES = {'default': {'ENGINE':"
        " 'django.db.backends.sqlite3', 'NAME': 'db.sqlite3'}}\n"
    )
    (folder / "urls.py").write_text("urlpatterns = []\n")
    (folder / "shop").mkdir()
    (folder / "shop/__init__.py").touch()
    (folder / "shop/jobs.py").write_text(JOB)
    (folder / "manage.py").write_text(
        "import sys\nfrom django.core.management import execute_from_command_line\n"
        "execute_from_command_line(sys.argv)\n"
    )
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PYTHONPATH": f"{folder}:{ROOT}", "DJANGO_SETTINGS_MODULE": "project"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_models_of_an_app_before_this_one_may_name_any_of_its_models(tmp_path: Path) -> None:
    (tmp_path / app(tmp_path, "early", None) / "models.py").write_text(
        "from django_ojs.models import ApiKey\n"
    )
    code = "from early.models import ApiKey; print(ApiKey._meta.label)"
    settings = SETTINGS.replace('"django_ojs", *{apps!r}', '*{apps!r}, "django_ojs"')
    found = run(code, ["early"], folder=tmp_path, settings=settings)
    assert (found.stdout.strip(), found.stderr) == ("django_ojs.ApiKey", "")
