"""Sites of their own: a project with the apps that a test names, on a database of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from django.db import connections

from tests import fork_server
from tests.databases import KIND
from tests.worker.processes import ROOT

NAME = "ojs_site"
#: What a site needs beside its apps.
_CONTRIB = ["django_ojs.contrib.mariadb"] if KIND == "mariadb" else []

_SETTINGS = """
import json, os

SECRET_KEY = "of a site of the tests"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
DATABASES = {{"default": {database!r}}}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    *json.loads(os.environ["SITE_APPS"]),
    *{contrib!r},
    "site_jobs",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {{
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {{
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        }},
    }}
]
ROOT_URLCONF = "site_urls"
STATIC_URL = "static/"
OJS = {{
    "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"],
    "KEEP_EVENTS": ["job.completed"],
}}
"""
_URLS = """
from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("", include("django_ojs.http.urls"))]
"""
_JOBS = """
from datetime import timedelta

from django.apps import apps

import django_ojs as ojs

@ojs.job("site.note")
def note(number: int) -> int:
    return number

@ojs.job("site.nap")
def nap() -> None:
    if apps.is_installed("django_ojs.extensions.steps"):
        from django_ojs.extensions import steps

        steps.sleep("nap", timedelta(hours=1))
"""
_BEGIN = """
import json
from datetime import UTC, datetime
import django
django.setup()
from django.core.management import call_command
from django.db import connection
"""

#: All of the schema, each thing with its definition, except the tables of Django's own apps.
_SCHEMAS = {
    "sqlite": """
        SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_master
        WHERE tbl_name LIKE 'ojs%%' ORDER BY 1, 2
    """,
    "postgresql": """
        SELECT 'column ' || table_name || '.' || column_name,
               concat_ws(' ', ordinal_position, data_type, is_nullable, column_default)
        FROM information_schema.columns WHERE table_schema = 'public' AND table_name LIKE 'ojs%%'
        UNION ALL
        SELECT 'index ' || indexname, indexdef FROM pg_indexes
        WHERE schemaname = 'public' AND tablename LIKE 'ojs%%'
        UNION ALL
        SELECT 'constraint ' || conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid::regclass::text LIKE 'ojs%%'
        UNION ALL
        SELECT 'trigger ' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL
        SELECT 'routine ' || proname, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace
        UNION ALL
        SELECT 'relation ' || relname, relkind::text FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relname LIKE 'ojs%%'
        ORDER BY 1, 2
    """,
    "mariadb": """
        SELECT CONCAT('column ', table_name, '.', column_name),
               CONCAT_WS(' ', ordinal_position, column_type, is_nullable, column_default, extra)
        FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name LIKE 'ojs%%'
        UNION ALL
        SELECT CONCAT('index ', table_name, '.', index_name),
               GROUP_CONCAT(column_name, ' ', non_unique ORDER BY seq_in_index)
        FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name LIKE 'ojs%%'
        GROUP BY table_name, index_name
        UNION ALL
        SELECT CONCAT('constraint ', table_name, '.', constraint_name), check_clause
        FROM information_schema.check_constraints
        WHERE constraint_schema = DATABASE() AND table_name LIKE 'ojs%%'
        UNION ALL
        SELECT CONCAT('trigger ', trigger_name), action_statement
        FROM information_schema.triggers WHERE trigger_schema = DATABASE()
        UNION ALL
        SELECT CONCAT('routine ', routine_name), routine_definition
        FROM information_schema.routines WHERE routine_schema = DATABASE()
        ORDER BY 1, 2
    """,
}
#: In the database of this run.
SCHEMA = _SCHEMAS[KIND]


class Site:
    """A project in a folder, with a database of its own. Its apps differ from call to call."""

    def __init__(self, folder: Path, database: dict[str, Any]) -> None:
        (folder / "site_jobs").mkdir()
        (folder / "site_jobs/__init__.py").touch()
        (folder / "site_jobs/jobs.py").write_text(_JOBS)
        (folder / "site_urls.py").write_text(_URLS)
        settings = _SETTINGS.format(database=database, contrib=_CONTRIB)
        (folder / "site_settings.py").write_text(settings)
        self._folder = folder

    def run(self, apps: tuple[str, ...], code: str) -> str:
        """Run code in a process of the site, and return what it prints.

        Forks have imported what the apps of the first call need, and nothing of the later ones.
        """
        done = fork_server.run(
            [sys.executable, "-c", _BEGIN + code],
            cwd=self._folder,
            env={
                **os.environ,
                "PYTHONPATH": f"{self._folder}{os.pathsep}{ROOT}",
                "DJANGO_SETTINGS_MODULE": "site_settings",
                "SITE_APPS": json.dumps(apps),
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def ask(self, apps: tuple[str, ...], code: str) -> Any:
        """Run code that prints JSON as its last line, and return that."""
        return json.loads(self.run(apps, code).splitlines()[-1])


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Make a site with an empty database, which is dropped at the end."""
    values: dict[str, Any] = deepcopy(connections["default"].settings_dict)
    known = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
    database = {name: values[name] for name in known}
    if KIND == "sqlite":
        yield Site(folder, database | {"NAME": str(folder / "site.sqlite3")})
        return
    _on_server(values, f"CREATE DATABASE {NAME}")
    try:
        yield Site(folder, database | {"NAME": NAME})
    finally:
        force = "WITH (FORCE)" if KIND == "postgresql" else ""
        _on_server(values, f"DROP DATABASE {NAME} {force}")


def _on_server(values: dict[str, Any], statement: str) -> None:
    link = connections["default"].copy(alias="server")
    link.settings_dict = {**values, "NAME": "postgres"}
    with link._nodb_cursor() as cursor:
        cursor.execute(statement)
