"""The migrations are the models: nothing is missing, and a fresh schema is all of them applied."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor


@pytest.mark.django_db
def test_no_model_change_is_without_its_migration() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.django_db
def test_a_fresh_schema_has_all_migrations_applied() -> None:
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "model",
    [m for m in apps.get_app_config("django_ojs").get_models() if m._meta.managed],
    ids=lambda model: model._meta.db_table,
)
def test_a_table_has_exactly_the_columns_of_its_model(model: type) -> None:
    table = model._meta.db_table
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, table)
    assert {c.name for c in described} == {f.column for f in model._meta.concrete_fields}


@pytest.mark.django_db(transaction=True)
def test_the_migrations_can_be_taken_back_and_applied_again() -> None:
    call_command("migrate", "django_ojs", "zero", verbosity=0)
    assert not [t for t in connection.introspection.table_names() if t.startswith("ojs_")]
    call_command("migrate", "django_ojs", verbosity=0)
