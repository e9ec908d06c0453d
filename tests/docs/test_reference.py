"""The tables of the reference say what the code says, all of it and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from argparse import SUPPRESS, ArgumentParser
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.core.management.base import BaseCommand
from django.db import connection
from django.db.models import Model
from django.dispatch import Signal

import django_ojs as ojs
from django_ojs import conf, handlers, models, signals
from django_ojs.command_line.doctor import CHECKS
from django_ojs.enqueue_options import OptionArguments, Options
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.http.views.openapi import DOCUMENT
from django_ojs.management.commands.ojs import subcommands
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.spec.envelope import FIELDS, OPTIONS, SYSTEM
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import TRANSITIONS, State
from django_ojs.spec.unique_policy import DIMENSIONS, STRATEGIES, UniquePolicy
from django_ojs.worker.config import WorkerConfig
from tests.cases import together
from tests.docs import generated
from tests.docs.pages import NONE, ROOT, table
from tests.docs.runner import command, parse

SETTINGS = [
    row
    for heading in (
        *("Jobs", "Limits", "HTTP", "Payloads", "Outbox", "Workers", "Pruning"),
        *("Events", "Observability", "Admin"),
    )
    for row in table("reference/settings.md", heading)
]


#: What the page says above the tables, and the errors say each time.
KINDS = {"a duration": "a number of seconds, a timedelta or an ISO 8601 duration"}


def column(rows: list[list[str]], index: int = 0) -> list[str]:
    return [row[index] for row in rows]


def test_every_setting_is_there() -> None:
    assert sorted(column(SETTINGS)) == sorted(conf.declared())


@together("row", SETTINGS, ids=lambda row: row[0])
def test_a_setting_has_the_default_and_the_kind_that_the_table_says(row: list[str]) -> None:
    key, default, kind, _ = row
    group, declared = conf.declared()[key]
    read = conf._read({key: ast.literal_eval(default)})[group]
    assert getattr(read, declared.name) == declared.default
    assert declared.metadata["kind"] == KINDS.get(kind, kind)


def test_every_system_check_is_there() -> None:
    sources = [path.read_text() for path in (ROOT / "django_ojs").rglob("*.py")]
    ids = {found for text in sources for found in re.findall(r'"(django_ojs\.[EW]\d{3})"', text)}
    assert column(table("reference/settings.md", "System checks")) == sorted(ids)


#: The extras for work on the package.
WORKSHOP = {"demo", "docs", "dev"}
WORKER = table("reference/worker-command.md", "Arguments")


def test_every_argument_of_the_worker_is_there() -> None:
    bare = {
        action.dest for action in BaseCommand().create_parser("manage.py", "ojs_worker")._actions
    }
    ours = [
        action
        for action in command("ojs_worker").create_parser("manage.py", "ojs_worker")._actions
        if action.dest not in bare and action.help is not SUPPRESS
    ]
    assert column(WORKER) == [", ".join(action.option_strings) for action in ours]


@together("row", WORKER, ids=lambda row: row[0])
def test_an_argument_has_the_default_that_the_table_says(row: list[str]) -> None:
    names, default, setting, _ = row
    name = names.split(", ")[-1]
    dest = name.removeprefix("--").replace("-", "_")
    bare = parse("ojs_worker", [])
    if default == NONE:
        assert not getattr(bare, dest)
        return
    given = getattr(parse("ojs_worker", [name, default]), dest)
    if setting == NONE:
        assert given == getattr(bare, dest)
    else:
        # Left out, it is the setting's, in the same unit.
        assert getattr(bare, dest) is None
        assert given == getattr(conf.Settings(), setting.lower())
        assert given == getattr(WorkerConfig.from_settings(), dest)


def test_every_subcommand_and_its_arguments_are_there() -> None:
    listed = {
        row[0]: row[1].split(", ") for row in table("reference/command-line.md", "Subcommands")
    }
    found = {}
    for each in subcommands().values():
        parser = ArgumentParser(add_help=False)
        each.add_arguments(parser)
        actions = parser._actions
        found[each.name] = [(action.option_strings or [action.dest])[0] for action in actions]
    assert {name: sorted(names) for name, names in listed.items()} == {
        name: sorted(names) for name, names in found.items()
    }


def test_every_check_of_the_doctor_is_there() -> None:
    assert column(table("reference/command-line.md", "Doctor")) == list(CHECKS)


def test_the_states_and_their_transitions_are_the_tables() -> None:
    listed = [tuple(row[:3]) for row in table("reference/states.md", "Transitions")]
    assert listed == [(t.trigger.value, (t.source or NONE), t.target.value) for t in TRANSITIONS]
    page = (ROOT / "docs/reference/states.md").read_text()
    assert all(f"\n| `{state}` |" in page for state in State)


EXTRAS = table("reference/installation.md", "Extras")


def test_every_extra_is_there_with_what_it_installs() -> None:
    read = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    features = {name: wanted for name, wanted in read.items() if name not in WORKSHOP}
    whole = ",".join(sorted(features.keys() - {"all"}))
    assert features.pop("all") == [f"django-ojs[{whole}]"]
    listed = {row[0]: row[1] for row in EXTRAS if row[0] != "all"}
    assert listed == {
        name: ", ".join(map(requirement, wanted)) for name, wanted in features.items()
    }


def requirement(text: str) -> str:
    """Return the name of a package, with the Python before which it is needed."""
    name, _, marker = text.partition(">")
    before = re.search(r"python_version < '([\d.]+)'", marker)
    return f"{name} (before Python {before[1]})" if before else name


def test_each_row_of_the_comparison_has_its_sources() -> None:
    compared = table("explanation/comparison.md", "Features")
    sources = table("../tests/docs/comparison-sources.md", "Sources")
    assert column(sources) == column(compared)
    # Its own column needs none.
    assert {len(row) for row in sources} == {len(compared[0]) - 1}
    assert all(cell for row in compared + sources for cell in row)


API = table("reference/python-api.md", "Names")


def test_every_public_name_is_there() -> None:
    twins = [twin for twin in column(API, 1) if twin != NONE]
    assert sorted(column(API) + twins) == sorted(ojs.__all__)
    assert all(twin in (NONE, f"a{name}") for name, twin, _ in API)


def signature(name: str) -> list[str]:
    """Return the parameters that the table shows for a function."""
    text = next(row[2] for row in API if row[0] == name)
    shown = re.search(rf"\b{name}(\(.*?\)): ", text)
    assert shown, f"the table shows no signature of {name}"
    function = ast.parse(f"def {name}{shown[1]}: pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs]
    return [argument.arg for argument in [*named, arguments.kwarg] if argument]


@together("name", [name for name in column(API) if inspect.isfunction(getattr(ojs, name))])
def test_a_function_has_the_parameters_that_the_table_says(name: str) -> None:
    assert signature(name) == list(inspect.signature(getattr(ojs, name)).parameters)


def test_every_option_is_there() -> None:
    listed = column(table("reference/python-api.md", "Options"))
    assert sorted(listed) == sorted(OptionArguments.__annotations__)
    assert sorted(listed) == sorted(f.name for f in fields(Options))


#: The rows of the page for newcomers, and the numbers of `make house` in them.
ADDED = {
    "Tables": ["tables", "job-indexes"],
    "Triggers": ["triggers", "triggers-sqlite"],
    "Modules that django.setup() imports more": ["setup-modules", "setup-admin-modules"],
}


@pytest.mark.parametrize(
    ("heading", "members"),
    [
        ("A handler", {"handler(…)", "function", "type"} | set(dir(handlers.Enqueuer))),
        ("JobContext", {"job", "log", "metadata", "is_async"} | set(dir(ojs.JobContext))),
    ],
)
def test_every_member_is_there(heading: str, members: set[str]) -> None:
    listed = column(table("reference/python-api.md", heading))
    names = {name.removeprefix("handler.").removesuffix("(…)") for name in listed}
    public = {name for name in members if not name.startswith("_")} - {"handler(…)"}
    assert names - {"handler", "options"} == public


@pytest.mark.parametrize(
    "model",
    [models.Job, models.Attempt, models.Queue, models.Worker, Rollup],
    ids=lambda model: model.__name__,
)
def test_every_field_of_a_model_is_there(model: type[Model]) -> None:
    listed = column(table("reference/job-fields.md", model.__name__))
    assert listed == [field.name for field in model._meta.concrete_fields]


@pytest.mark.django_db
def test_every_column_of_the_counts_is_there() -> None:
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, "ojs_count")
    listed = column(table("reference/job-fields.md", "Count"))
    assert listed == [each.name for each in columns]


def test_the_envelope_has_the_fields_of_its_table() -> None:
    listed = table("reference/job-fields.md", "Envelope")
    written = [
        [
            field.name,
            ", ".join(field.spellings) + (" ¹" if field.option else ""),
            NONE if field.default is None else repr(field.default),
            ", ".join(field.columns) or NONE,
            field.name if field.stored else NONE,
        ]
        for field in FIELDS
    ]
    assert listed == written


def test_the_columns_of_the_envelope_are_fields_of_the_job() -> None:
    columns = {field.name for field in models.Job._meta.concrete_fields}
    named = {column for field in FIELDS for column in field.columns}
    assert named | {column for column in SYSTEM.values() if column} <= columns


def test_the_interface_describes_the_options_of_the_table() -> None:
    options = DOCUMENT.read()["components"]["schemas"]["JobOptions"]["properties"]
    # Merged into the policy, and no option of its own.
    assert set(options) == OPTIONS | {"max_attempts"}


def test_every_outcome_of_a_run_is_there() -> None:
    text = dict(row[:2] for row in table("reference/job-fields.md", "Attempt"))["outcome"]
    assert all(outcome.value in text for outcome in AttemptOutcome)


def test_every_signal_is_there() -> None:
    page = (ROOT / "docs/reference/signals.md").read_text()
    known = {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")} == known


def test_the_unique_policy_has_the_fields_of_its_table() -> None:
    rows = table("how-to/unique-jobs.md", "Define which jobs are the same")
    assert column(rows) == [f.name for f in fields(UniquePolicy) if f.name != "extra"]
    listed = dict(row[:2] for row in rows)
    assert listed["keys"].startswith(f"Of {', '.join(DIMENSIONS)};")
    assert set(listed["on_conflict"].split(", ")) == set(STRATEGIES)
    assert {row[0]: row[2] for row in rows}["on_conflict"] == UniquePolicy().on_conflict


def test_the_retry_policy_has_the_fields_and_defaults_of_its_table() -> None:
    rows = table("how-to/retry-and-dead-letters.md", "Set the policy")
    written: dict[str, Any] = {
        "one second": timedelta(seconds=1),
        "five minutes": timedelta(minutes=5),
        "[]": (),
    }
    policy = RetryPolicy()
    assert set(column(rows)) == {f.name for f in fields(RetryPolicy)} - {"extra"}
    for name, default, _ in rows:
        expected = written[default] if default in written else ast.literal_eval(default)
        assert getattr(policy, name) == expected


@together("name", list(generated.PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (generated.FOLDER / name).read_text()
    assert written == generated.PAGES[name](), "run python -m tests.docs.generated"
    assert generated.GENERATED in written


def test_what_it_adds_is_what_was_counted() -> None:
    path = ROOT / "tests/architecture/house/numbers.toml"
    counted = tomllib.loads(path.read_text())["numbers"]
    limit = {name: str(values.get("limit")) for name, values in counted.items()}
    added = dict(table("explanation/is-it-for-you.md", "What it needs, and what it adds"))
    shown = {name: re.findall(r"\d+", added[name]) for name in ADDED}
    assert shown == {name: [limit[each] for each in numbers] for name, numbers in ADDED.items()}


_BESIDE = "django_ojs.extensions."


def test_the_tables_of_each_optional_app_are_counted() -> None:
    added = dict(table("explanation/is-it-for-you.md", "What it needs, and what it adds"))
    counts = added["Tables that an app beside it adds"]
    shown = re.findall(r"django_ojs\.extensions\.(\w+)`?: (\d+)", counts)
    beside = {each.name: each for each in apps.get_app_configs() if each.name.startswith(_BESIDE)}
    expected = [
        (name.removeprefix(_BESIDE), str(len(list(beside[name].get_models()))))
        for name in sorted(beside)
    ]
    assert shown == expected
