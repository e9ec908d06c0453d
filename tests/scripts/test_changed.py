"""`scripts/changed`, which is `make check`: it knows the tests of each file, or says so."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/changed"
CHANGED = runpy.run_path(str(SCRIPT))

PYPROJECT = """
[tool.mypy]
packages = ["django_ojs"]
[tool.pytest.ini_options]
pythonpath = ["."]
markers = ["slow"]
"""
TEST_CONF = """from django_ojs import conf


def test_it() -> None:
    assert conf.LIMIT == 2
"""


@cache
def tree() -> Any:
    return CHANGED["Tree"].read(files())


@cache
def files() -> list[Path]:
    found: list[Path] = CHANGED["files_of_checkout"]()
    return found


def selected(path: str) -> list[str]:
    return [test.as_posix() for test in tree().tests_about(Path(path))]


def test_every_file_of_the_package_has_tests() -> None:
    of_package = [path for path in files() if path.parts[0] == "django_ojs"]
    assert len(of_package) > 500
    assert [path.as_posix() for path in of_package if not tree().tests_about(path)] == []


def test_each_file_of_the_documentation_the_tests_and_the_example_has_tests() -> None:
    others = [path for path in files() if path.parts[0] in ("docs", "example_project", "tests")]
    data = {".json", ".mjs", ".txt"}
    without = [
        path.as_posix()
        for path in others
        if path.suffix not in data and not tree().tests_about(path)
    ]
    assert without == []


def test_each_entry_of_the_table_of_folders_has_tests() -> None:
    tests = {path.as_posix() for path in tree().breadth}
    for wanted in CHANGED["FOLDERS"].values():
        for each in wanted:
            assert each in tests or any(test.startswith(f"{each}/") for test in tests), each


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("django_ojs/__init__.py", "tests/test_public_api.py"),
        ("django_ojs/apps.py", "tests/test_apps.py"),
        ("django_ojs/client.py", "tests/client/test_batch.py"),
        ("django_ojs/conf.py", "tests/test_conf.py"),
        ("django_ojs/conf.py", "tests/architecture/test_layers.py"),
        ("django_ojs/http/headers.py", "tests/http/test_headers.py"),
        ("django_ojs/http/openapi.yaml", "tests/http/test_openapi.py"),
        ("django_ojs/locale/de/LC_MESSAGES/django.po", "tests/architecture/test_catalogs.py"),
        ("django_ojs/migrations/0001_initial.py", "tests/architecture/test_migrations.py"),
        ("django_ojs/migrations/sql/sqlite/counts.sql", "tests/storage/test_sql_files.py"),
        ("django_ojs/static/django_ojs/search.js", "tests/browser/test_search.py"),
        ("django_ojs/storage/dialects/sql/postgresql/claim.sql", "tests/operations/test_fetch.py"),
        ("django_ojs/templates/django_ojs/admin/jobs.html", "tests/admin/test_navigation.py"),
        ("docs/explanation/glossary.md", "tests/architecture/test_words.py"),
        ("docs/reference/settings.md", "tests/docs/test_reference.py"),
        ("tests/conformance/mutations.toml", "tests/architecture/test_mutations.py"),
        ("tests/http/conftest.py", "tests/http/test_headers.py"),
        ("tests/http/api.py", "tests/http/admin/test_queues.py"),
        ("tests/sizes.py", "tests/properties/test_machine.py"),
        ("Makefile", "tests/docs/test_blocks.py"),
        ("README.md", "tests/docs/test_blocks.py"),
        ("pyproject.toml", "tests/docs/test_reference.py"),
        ("scripts/changed", "tests/scripts/test_changed.py"),
        ("scripts/mutants", "tests/architecture/test_mutations.py"),
    ],
)
def test_the_tests_of_a_file(path: str, test: str) -> None:
    assert test in selected(path)


def test_the_nearest_come_first() -> None:
    always, first = selected("django_ojs/operations/fetch.py")[:2], "tests/operations/test_fetch.py"
    assert always == CHANGED["FOLDERS"]["django_ojs/*.py"]
    assert selected("django_ojs/operations/fetch.py")[2] == first
    assert selected("tests/operations/test_fetch.py")[0] == "tests/operations/test_fetch.py"


def test_a_name_that_a_package_offers_is_that_of_the_module_which_defines_it() -> None:
    users = {path.as_posix() for path in tree().users["django_ojs.extensions.cron.models"]}
    assert "tests/operations/cron/test_tick.py" in users


def test_a_deleted_module_has_the_tests_that_still_import_it() -> None:
    gone = Path("django_ojs/http/headers.py")
    after = CHANGED["Tree"].read([path for path in files() if path != gone], [gone])
    own, others, lines = CHANGED["selection"]([gone, Path("tests/test_gone.py")], after)
    assert own == []
    assert Path("tests/http/test_headers.py") in others
    assert lines[1] == "tests/test_gone.py: deleted"


def test_a_file_without_tests_and_one_with_very_many_say_so() -> None:
    given = [Path("scripts/dist"), Path("tests/conftest.py"), Path("tests/test_conf.py")]
    own, others, lines = CHANGED["selection"](given, tree())
    assert lines[0] == "scripts/dist: no test is about it"
    assert lines[1].startswith(f"tests/conftest.py: the nearest {CHANGED['MOST']} of ")
    assert lines[2] == "tests/test_conf.py: itself"
    assert own == [Path("tests/test_conf.py")]
    assert Path("tests/test_conf.py") not in others


def test_of_the_pages_those_that_have_changed_are_typed() -> None:
    pages = [
        Path("docs/how-to/use-sqlite.md"),
        Path("docs/how-to/use-mariadb.md"),
        Path("CHANGELOG.md"),
    ]
    typed = CHANGED["TYPED"]
    others = [Path("tests/docs/test_shape.py"), typed]
    nearest, last = CHANGED["commands"](pages, [], others)
    assert nearest[-2:] == ["not slow", "tests/docs/test_shape.py"]
    assert last[-3:] == ["-k", " or ".join(map(str, pages)), str(typed)]


class Checkout:
    """A small repository with the script in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("scripts", "django_ojs", "tests"):
            (root / folder).mkdir()
        shutil.copy(SCRIPT, root / "scripts/changed")
        self.write("pyproject.toml", PYPROJECT)
        self.write("django_ojs/__init__.py", "")
        self.write("django_ojs/conf.py", "LIMIT = 1\n")
        self.write("tests/test_conf.py", TEST_CONF)
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "A commit")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DJANGO")}
        # The plugins of this environment are about the real package.
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
        return subprocess.run(
            [sys.executable, "scripts/changed", *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.slow
def test_a_change_of_a_module_in_the_root_is_linted_and_tested(checkout: Checkout) -> None:
    assert "nothing has changed" in checkout.run().stdout

    checkout.write("django_ojs/conf.py", "LIMIT = 2\n")
    done = checkout.run("-x")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "django_ojs/conf.py: 1 test module\n" in done.stdout
    assert "$ python -m mypy" in done.stdout
    assert "-m not slow tests/test_conf.py -x" in done.stdout
    assert "1 passed" in done.stdout

    checkout.write("django_ojs/conf.py", "LIMIT = 3\n")
    assert checkout.run().returncode == 1


def test_deleted_renamed_and_new_files(checkout: Checkout) -> None:
    checkout.git("mv", "django_ojs/conf.py", "django_ojs/limits.py")
    checkout.git("rm", "--quiet", "pyproject.toml")
    checkout.write("a name with spaces", "")
    done = checkout.run("--list")
    assert done.returncode == 0, done.stderr
    assert "django_ojs/conf.py: 1 test module\n" in done.stdout
    assert "django_ojs/limits.py: no test is about it\n" in done.stdout
    assert "a name with spaces: no test is about it\n" in done.stdout
    assert "$ python -m ruff check django_ojs/limits.py\n" in done.stdout
    assert "passed" not in done.stdout


def test_without_a_branch_to_compare_with_the_message_says_what_to_do(checkout: Checkout) -> None:
    checkout.git("branch", "--move", "trunk")
    done = checkout.run()
    assert done.returncode == 2
    assert "Not a valid object name main" in done.stderr
    assert "such as --since origin/main" in done.stderr
    assert "Traceback" not in done.stderr
    assert "nothing has changed" in checkout.run("--since", "trunk").stdout


def test_help_says_how_tests_are_found(checkout: Checkout) -> None:
    done = checkout.run("--help")
    assert done.returncode == 0
    assert "imports it" in done.stdout
    assert "--since COMMIT" in done.stdout
