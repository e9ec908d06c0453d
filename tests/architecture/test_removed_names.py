"""Names that were taken out of the package are in no setting, route, text, test or page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

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
AUDIT = "one entry of the audit trail, and one line of the log"

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

#: What stands in no file, as it is written, and what takes its place.
TEXTS = {
    "WebSocket websocket": EVENT_STREAM,
    "admin/pools": ROUTES["v1/admin/pools"],
    "history/rebuild history/stats history_rebuild HistoryRebuild": ONE_HISTORY,
    "history_search HistorySearch": ONE_HISTORY,
    "saved_search SavedSearch savedsearch": "the URL of a filtered list",
    "background_search BackgroundSearch": "a filter that is narrower, or `ojs jobs`",
    "search_index SearchIndex": "nothing: a site makes an index of its own",
    "import-from import_from command_line/other_queues storage.other_queues": IMPORT,
    "edit_conflict EditConflict": "nothing: the last one who saves wins",
    "memory_store MemoryStore memory_workflows MemoryWorkflows": REAL_ROWS,
    "lazy_sentence Translatable": ENGLISH,
    "pool_limits": "limits of queues and of keys",
    "has_limit_keys limits_checked LimitsUnknown ClaimValues": "`Queue.rules`, and ClaimRequest",
    "all_databases find_database several_databases": ONE_DATABASE,
    "from_replica is_on_replica read_replica storage.replica": ONE_DATABASE,
    "OJS_TEST_CAPABILITIES with_capabilities dialects/capabilities": ASKED,
    "dialects.capabilities count_row_triggers row_locks.sql": ASKED,
    "dialects/mysql dialects.mysql sql/mysql MySQL() settings_mysql mysql_server": MARIADB,
    "OJS_TEST_DATABASE=mysql mark.mysql": MARIADB,
    "primary_alias is_to_be_chosen in_database_of per_database selected_for_process": ONE_DATABASE,
    "database_of_caller delete_in_each changes_each_database ProcessGroup": ONE_DATABASE,
    "NeedsPrimary X-OJS-Replica-Lag ojs_database database_field ojs.using": ONE_DATABASE,
    "django_ojs.E008 django_ojs.E009 OJS_TEST_MORE_DATABASES": ONE_DATABASE,
    "django_ojs.W005 django_ojs.W009 mark.capabilities unlike_settings": ASKED,
    "check_schema silent_workers begin_row_lock no_push.sql": ASKED,
    "_of_vendor_mysql _as_on_mysql utf8mb4_0900_bin OJS_TEST_MYSQL": MARIADB,
    "OTHER_QUEUES": IMPORT,
    "jobs.pruned": "nothing: workers prune",
    "django-ojs[cli] _has_rich": "nothing: the command line needs no other package",
    "pool_use pool_watch PoolWatch PoolStatus AdminPools listPools": "limits of queues",
    "pool_members held_by_queue queue_starved pool_overloaded": "limits of queues",
    "InlineStore DatabaseStore inline_store database_store": REAL_ROWS,
    "django_ojs.audit audit.note record_denial http/audit.py access/audit.py": AUDIT,
    "job.run_again cron.synced cron.imported search.started": AUDIT,
    "webhook.delivery_retried index.created index.dropped": AUDIT,
    "lazy_number lazy_absolute_time lazy_grouped in_english": ENGLISH,
    "jobs.history_deleted": ONE_HISTORY,
    "SPENDS_NONE jobs_read ojs_attempt_finished": ONE_HISTORY,
    "ojs_job_args_search ojs_job_meta_search has_json_indexes": "a narrower search",
    # The other settings are words that mean something else too.
    "ADVISORY_LOCKS SERVER_SESSIONS STATEMENT_TRIGGERS": ASKED,
    "READ_DATABASE READ_MAX_LAG": ONE_DATABASE,
}
REMOVED = {name: instead for names, instead in TEXTS.items() for name in names.split()} | {
    "ojs index": "nothing: a site makes an index of its own",
    "ojs prune": "nothing: workers prune",
    'OJS["DATABASES"]': ONE_DATABASE,
    'KIND == "mysql"': MARIADB,
}

#: A name may stay where it says that something is not there.
EXCEPTIONS = {
    "django_ojs/http/unsupported_routes.py": {"websocket", "admin/pools"},
    "tests/http/clients/test_rejections.py": {
        "websocket",
        "admin/pools",
        "history/rebuild",
        "history/stats",
    },
    "tests/conformance/test_examples.py": {"admin/pools"},
    # What the documents call a requirement that is listed as not met.
    "docs/reference/conformance.md": {"admin/pools"},
    "tests/conformance/requirements.py": {"admin/pools"},
}

FOLDERS = ("django_ojs", "docs", "example_project", "scripts", "tests")
FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md", "pyproject.toml")
#: Compiled, drawn, or made from other files.
NOT_READ = {".mo", ".png", ".pyc"}

_SETTING = re.compile(rf"^\| `(?:{'|'.join(SETTINGS)})` \|")


def _files() -> Iterator[Path]:
    yield from (ROOT / name for name in FILES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in NOT_READ and path != Path(__file__):
                yield path


def found_in(name: str, text: str) -> Iterator[str]:
    """Yield a line for each removed name in a text: where it stands, and what takes its place."""
    present = [each for each in REMOVED.keys() - EXCEPTIONS.get(name, set()) if each in text]
    if present:
        for number, line in enumerate(text.splitlines(), 1):
            for each in sorted(present):
                if each in line:
                    yield f"{name}:{number}: {each!r} has gone; instead: {REMOVED[each]}"


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
    found = [f"{path}: {each!r} has gone" for path in paths for each in REMOVED if each in path]
    assert not found, "\n" + "\n".join(found)


def test_no_removed_setting_is_read_or_documented() -> None:
    known = conf.declared().keys()
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
    from django_ojs.http.views.openapi import DOCUMENT

    served = {str(each.pattern).removeprefix("ojs/") for each in urlpatterns}
    documented = {path.removeprefix("/ojs/") for path in DOCUMENT.read()["paths"]}
    assert "v1/jobs" in served & documented
    found = [
        f"{where}: {path} has gone; instead: {ROUTES[path]}"
        for where, paths in (("urls.py", served), ("OpenAPI", documented))
        for path in sorted(paths & ROUTES.keys())
    ]
    assert not found, "\n" + "\n".join(found)


def test_a_removed_name_is_found_and_an_exception_is_none() -> None:
    text = 'one line\nOJS["DATABASES"] and WebSockets\nREAD_MAX_LAG\n'
    assert [line.split(":")[1] for line in found_in("a.md", text)] == ["2", "2", "3"]
    assert [*found_in("django_ojs/http/unsupported_routes.py", '"websockets": r"ws",')] == []
