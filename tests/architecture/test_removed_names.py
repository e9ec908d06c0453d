"""Names that were taken out of the package are in no setting, route, text, test or page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import yaml

from django_ojs import conf
from tests.docs.pages import ROOT

ONE_DATABASE = "the jobs are in one database, which Django's router chooses"
ASKED = "nothing: the connection is asked, or every database has it"
EVENT_STREAM = "server-sent events, polling or webhooks"
ONE_HISTORY = "the history of one job"
IMPORT = "an export file for `ojs import`"
REAL_ROWS = "rows in the database of the test, which roll back"
ENGLISH = "English text: only the admin is translated"
MARIADB = "MariaDB's dialect"

#: Keys of the setting OJS, and what takes their place.
SETTINGS = {
    "ADVISORY_LOCKS": ASKED,
    "DATABASES": ONE_DATABASE,
    "NOTIFY": ASKED,
    "PROCEDURES": ASKED,
    "READ_DATABASE": ONE_DATABASE,
    "READ_MAX_LAG": ONE_DATABASE,
    "SERVER_SESSIONS": ASKED,
    "STATEMENT_TRIGGERS": ASKED,
}

#: Paths below `ojs/`, and what takes their place.
ROUTES = {
    "v1/admin/pools": "`ojs workers`, and the setting POOLS",
    "v1/history": ONE_HISTORY,
    "v1/history/rebuild": ONE_HISTORY,
    "v1/history/stats": ONE_HISTORY,
    "v1/ws": EVENT_STREAM,
}

#: What stands in no file, as a regular expression, and what takes its place.
TEXTS = {
    r"(?i:websocket)": EVENT_STREAM,
    r"admin/pools": ROUTES["v1/admin/pools"],
    r"history/(?:rebuild|stats)": ONE_HISTORY,
    r"history_(?:rebuild|search)|HistoryRebuild|HistorySearch": ONE_HISTORY,
    r"(?i:saved_?search|saved searches)|background_search|BackgroundSearch": "a filter in the URL",
    r"search_index(?:es)?|SearchIndex|ojs index": "nothing: an index of the site's own migrations",
    r"import-from|import_from|other_queues": IMPORT,
    r"ojs prune": "nothing: workers prune",
    r"detect_edit_conflicts?|edit_conflicts?|EditConflict": "nothing: the last one who saves wins",
    r"memory_(?:store|workflows)|Memory(?:Store|Workflows)": REAL_ROWS,
    r"lazy_sentence|\bTranslatable\b": ENGLISH,
    r"pool_limits": "limits of queues and of keys",
    r"all_databases|find_database|several_databases": ONE_DATABASE,
    r"\w*(?:from|on|is|read)_replica\b|storage[./]replica\b": ONE_DATABASE,
    r"""\bOJS\[["']DATABASES["']\]""": ONE_DATABASE,
    r"OJS_TEST_CAPABILITIES|with_capabilities|dialects[./]capabilities": ASKED,
    r"dialects[./](?:sql[./])?mysql|class MySQL\b|settings_mysql|mysql_server": MARIADB,
    r"""OJS_TEST_DATABASE=mysql|mark\.mysql|KIND == ["']mysql["']""": MARIADB,
    r"count_row_triggers|row_locks\.sql": ASKED,
} | {
    # The others are words that also mean something else.
    rf"\b{name}\b": instead
    for name, instead in SETTINGS.items()
    if "_" in name
}

#: A name may stay where it says that something is not there.
EXCEPTIONS = {
    ("django_ojs/http/unsupported_routes.py", "websocket"),
    ("django_ojs/http/unsupported_routes.py", "admin/pools"),
    ("tests/http/clients/test_rejections.py", "websocket"),
    ("tests/http/clients/test_rejections.py", "admin/pools"),
    ("tests/http/clients/test_rejections.py", "history/rebuild"),
    ("tests/http/clients/test_rejections.py", "history/stats"),
    # The documents' own names for what is listed as not there.
    ("docs/reference/conformance.md", "admin/pools"),
    ("tests/conformance/requirements.py", "admin/pools"),
}

FOLDERS = ("django_ojs", "docs", "example_project", "scripts", "tests")
FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md", "pyproject.toml")
#: Compiled, drawn, or made from other files.
NOT_READ = {".mo", ".png", ".pyc"}

_TEXTS = [(re.compile(pattern), instead) for pattern, instead in TEXTS.items()]
_ANY = re.compile("|".join(f"(?:{pattern})" for pattern in TEXTS))
_SETTING = re.compile(rf"^\| `(?:{'|'.join(SETTINGS)})` \|")


def _files() -> Iterator[Path]:
    yield from (ROOT / name for name in FILES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in NOT_READ and path != Path(__file__):
                yield path


def found_in(name: str, text: str) -> Iterator[str]:
    """Yield a line for each removed name in a text: where it stands, and what takes its place."""
    if not _ANY.search(text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in _TEXTS:
            match = pattern.search(line)
            if match and (name, match[0].lower()) not in EXCEPTIONS:
                yield f"{name}:{number}: {match[0]!r} has gone; instead: {instead}"


def test_no_file_has_a_removed_name() -> None:
    paths = [*_files()]
    assert len(paths) > 1_000
    found = [
        line
        for path in paths
        for line in found_in(path.relative_to(ROOT).as_posix(), path.read_text())
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_file_has_a_removed_name_in_its_path() -> None:
    paths = [path.relative_to(ROOT).as_posix() for path in _files()]
    found = [f"{path}: {match[0]!r} has gone" for path in paths if (match := _ANY.search(path))]
    assert not found, "\n" + "\n".join(found)


def test_no_removed_setting_is_read_or_documented() -> None:
    known = {field.name.upper() for field in fields(conf.Settings)}
    found = [
        f"django_ojs/conf.py: {name} has gone; instead: {SETTINGS[name]}"
        for name in sorted(known & SETTINGS.keys())
    ]
    page = ROOT / "docs/reference/settings.md"
    found += [
        f"docs/reference/settings.md:{number}: {line[:60]}"
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if _SETTING.match(line)
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_removed_route_is_served_or_documented() -> None:
    from django_ojs.http.urls import urlpatterns

    served = {str(each.pattern).removeprefix("ojs/") for each in urlpatterns}
    document = yaml.safe_load((ROOT / "django_ojs/http/openapi.yaml").read_text())
    documented = {path.removeprefix("/ojs/") for path in document["paths"]}
    assert "v1/jobs" in served & documented
    found = [
        f"{where}: {path} has gone; instead: {ROUTES[path]}"
        for where, paths in (("urls.py", served), ("openapi.yaml", documented))
        for path in sorted(paths & ROUTES.keys())
    ]
    assert not found, "\n" + "\n".join(found)


def test_a_removed_name_is_found_and_an_exception_is_none() -> None:
    text = 'one line\nOJS["DATABASES"] and WebSockets\nREAD_MAX_LAG\n'
    assert [line.split(":")[1] for line in found_in("a.md", text)] == ["2", "2", "3"]
    assert [*found_in("django_ojs/http/unsupported_routes.py", '"websockets": r"ws",')] == []
