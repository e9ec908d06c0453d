"""What extensions add to the table of jobs: made where it is missing, and only what is wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.apps import AppConfig
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

import tests.storage
from django_ojs.command_line.database_check import require_database
from django_ojs.extension import Extension, Hooks
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations import ack, fail, fetch
from django_ojs.spec.hold import FREE
from django_ojs.storage import database, schema
from django_ojs.storage.dialects.rows import Named
from django_ojs.storage.figures import counts
from tests import factories as make
from tests.operations.workflows import scenes

pytestmark = pytest.mark.django_db(transaction=True)

#: A trigger that does nothing.
TRIGGERS = {
    "postgresql": """\
CREATE OR REPLACE FUNCTION ojs_colour_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_job_colour_gone AFTER DELETE ON ojs_job FOR EACH ROW
    WHEN (OLD.priority & {mark} <> 0) EXECUTE FUNCTION ojs_colour_gone();
""",
    "sqlite": """\
CREATE TRIGGER IF NOT EXISTS ojs_job_colour_gone AFTER DELETE ON ojs_job
WHEN OLD.priority & {mark} BEGIN
    SELECT 1;
END;
""",
    "mariadb": """\
CREATE OR REPLACE TRIGGER ojs_job_colour_gone AFTER DELETE ON ojs_job FOR EACH ROW
BEGIN
    IF OLD.priority & {mark} THEN
        SET @colour = 1;
    END IF;
END;
""",
}
INDEX = """
CREATE INDEX IF NOT EXISTS ojs_job_colour ON ojs_job (type) WHERE priority = 77;
"""


class Colours(Extension):
    """An extension of somebody else."""

    name = "colours"
    number = 40

    def __init__(self, folder: Path) -> None:
        self.schema = folder
        self.caught_up = 0

    def hooks(self) -> Hooks:
        return Hooks()

    def catch_up(self, connection: BaseDatabaseWrapper) -> None:
        self.caught_up += 1


@contextmanager
def without(names: Collection[str]) -> Iterator[None]:
    """Take out the extensions of these names."""
    found = [each for each in registry.with_schema() if each.name in names]
    assert len(found) == len(names)
    for each in found:
        registry.remove(each)
    try:
        yield
    finally:
        registry.register(*found)
        schema.create_missing("default")


@pytest.fixture
def colours(tmp_path: Path) -> Iterator[Colours]:
    for vendor, text in TRIGGERS.items():
        whole = text if vendor == "mariadb" else text + INDEX
        (tmp_path / f"{vendor}.sql").write_text(whole)
    extension = Colours(tmp_path)
    registry.register(extension)
    yield extension
    registry.remove(extension)
    drop(of(extension) & present())


def of(extension: Extension) -> set[Named]:
    return schema.created(schema.statements_of(extension, database.dialect()))


def present() -> set[Named]:
    return set(database.dialect().read(connection, Named))


def drop(objects: Collection[Named]) -> None:
    with connection.cursor() as cursor:
        for statement in schema.drop_statements(database.dialect(), objects):
            cursor.execute(statement)


def test_all_of_the_schema_is_there() -> None:
    assert registry.with_schema()
    wanted = schema.created(schema.all_statements(database.dialect()))
    assert {each.kind for each in wanted} >= {"TRIGGER"}
    assert wanted <= present()


def test_a_fresh_database_has_nothing_of_an_extension_that_is_not_there() -> None:
    extensions = registry.with_schema()
    call_command("migrate", "django_ojs", "zero", verbosity=0)
    assert not present()
    with without([each.name for each in extensions]):
        call_command("migrate", verbosity=0)  # Those of apps that need it, too.
        assert not {one for each in extensions for one in of(each)} & present()
        assert schema.created(schema.core_statements(database.dialect())) <= present()
    assert {one for each in extensions for one in of(each)} <= present()


def test_an_extension_that_is_added_later_gets_its_schema_and_catches_up(colours: Colours) -> None:
    assert of(colours)
    assert not of(colours) & present()
    with pytest.raises(CommandError, match=r"of these extensions .* colours\. Run `manage.py"):
        require_database()  # As a worker does.
    make.push()
    schema.create_missing("default")
    assert of(colours) <= present()
    assert colours.caught_up == 1
    require_database()
    schema.create_missing("default")
    assert colours.caught_up == 1
    Job.objects.all().delete()
    assert not counts.differences()


def test_an_app_that_has_neither_models_nor_migrations_gets_its_schema(
    colours: Colours, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, real = AppConfig("colours", tests.storage), schema.apps.get_containing_app_config
    monkeypatch.setattr(
        schema.apps,
        "get_containing_app_config",
        lambda name: app if name == Colours.__module__ else real(name),
    )
    schema.create_missing("default")
    assert of(colours) <= present()
    require_database()


def test_each_object_that_is_dropped_is_created_again(colours: Colours) -> None:
    schema.create_missing("default")
    # With a function, its triggers go; so each counts as missing on its own.
    for number, each in enumerate(sorted(of(colours)), 2):
        drop([each])
        schema.create_missing("default")
        assert of(colours) <= present()
        assert colours.caught_up == number


def test_the_bit_of_the_extension_stands_in_its_statements(colours: Colours) -> None:
    assert str(1 << 40) in "".join(schema.statements_of(colours, database.dialect()))


@pytest.mark.sqlite
def test_what_sqlite_loses_with_a_table_that_is_made_anew_is_made_again(colours: Colours) -> None:
    schema.create_missing("default")
    job = make.push()
    with connection.schema_editor() as editor:
        editor._remake_table(Job)
    assert not {each for each in of(colours) if each.kind == "TRIGGER"} & present()
    schema.create_missing("default")
    assert schema.created(schema.all_statements(database.dialect())) <= present()
    job.delete()
    assert not counts.differences()


def test_workflows_go_on_that_ran_while_the_extension_was_taken_out() -> None:
    went_on, gone = (
        scenes.create(scenes.chain(scenes.job(f"{name}.first"), scenes.job(f"{name}.second")))
        for name in ("kept", "deleted")
    )
    with without(["workflows"]):
        drop({each for each in present() if "workflow" in each.name and each.kind != "INDEX"})
        Job.objects.update(marks=0)
        ack.ack(scenes.take("kept.first").id)
        scenes.job_of(gone, "deleted.first").delete()
        assert scenes.available() == []
    scenes.workflows.advance_due()
    assert scenes.available() == ["kept.second"]
    assert scenes.read(gone).state == "failed"
    # A job that waited for all that time has its mark again.
    assert set(Job.objects.values_list("marks", flat=True)) == {1 << 16}
    scenes.finish("kept.second")
    assert scenes.read(went_on).state == "completed"


def test_a_checkpoint_of_the_time_before_is_found_again() -> None:
    job = make.active()
    checkpoint.save(job.id, {"page": 7})
    with without(["checkpoints"]):
        drop({each for each in present() if "checkpoint" in each.name})
        Job.objects.update(marks=0)
    fail.requeue(job.id)
    (again,) = fetch.fetch([job.queue])
    assert again.more["last_checkpoint"] == {"page": 7}
    ack.ack(again.id)
    assert not Checkpoint.objects.exists()


def test_jobs_that_were_stored_while_the_limits_were_taken_out_are_limited_again() -> None:
    limit = {"key": "acme", "concurrency": 1}
    with without(["limits by key"]):
        drop({each for each in present() if "limit" in each.name})
        stored = [make.push(queue="limited", rate_limit=limit) for _ in range(3)]
        stored_key = {job.options.get("limit_key") for job in Job.objects.all()}
        # Nobody has checked it: it is no limit.
        make.push(queue="other", rate_limit={"key": 7, "concurrency": "one"})
        make.push(queue="other", rate_limit={})
        assert (stored_key, set(Job.objects.values_list("hold", flat=True))) == ({None}, {FREE})
        running = make.claim(stored[0])
        ack.ack(make.claim(stored[1]).id)
    assert fetch.fetch(["limited"]) == []
    ack.ack(running.id)
    (last,) = fetch.fetch(["limited"])
    assert last.id == stored[2].pk
    assert len(fetch.fetch(["other"], count=9)) == 2
