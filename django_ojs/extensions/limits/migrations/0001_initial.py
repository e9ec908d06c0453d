"""The tables of limits. What is added to the table of jobs is in the folder `schema`."""

from pathlib import Path
from typing import Any

from django.db import migrations, models

import django_ojs.models.fields
from django_ojs.migrations._run_sql_files import RunSQLFile, TakeOut


def drop_column(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "mysql":
        schema_editor.execute("ALTER TABLE ojs_job DROP COLUMN IF EXISTS limit_key")


class Migration(migrations.Migration):
    initial = True

    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="LimitedQueue",
            fields=[
                ("queue", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("starts", django_ojs.models.fields.StoredJSONField(default=dict)),
            ],
            options={
                "db_table": "ojs_limited_queue",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="LimitKey",
            fields=[
                (
                    "key",
                    models.CharField(
                        verbose_name="key", max_length=255, primary_key=True, serialize=False
                    ),
                ),
                ("starts", django_ojs.models.fields.StoredJSONField(default=dict)),
                ("expires_at", models.DateTimeField()),
                ("paused_until", models.DateTimeField(null=True)),
                ("paused_at", models.DateTimeField(null=True)),
                ("override", django_ojs.models.fields.StoredJSONField(default=dict)),
                ("override_until", models.DateTimeField(verbose_name="override until", null=True)),
                ("limited_since", models.DateTimeField(null=True)),
                ("limited_by", models.CharField(blank=True, max_length=16)),
                ("eased_at", models.DateTimeField(null=True)),
                ("rescheduled_until", models.DateTimeField(null=True)),
                ("dropped", models.PositiveBigIntegerField(default=0)),
                ("dropped_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name_plural": "limit keys",
                "db_table": "ojs_limit_key",
                "verbose_name": "limit key",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(models.F("expires_at"), name="ojs_limit_key_expires"),
                    models.Index(
                        models.F("limited_by"),
                        condition=models.Q(("limited_by", ""), _negated=True),
                        name="ojs_limit_key_by",
                    ),
                    models.Index(
                        models.F("dropped_at"),
                        condition=models.Q(("dropped_at__isnull", False)),
                        name="ojs_limit_key_dropped",
                    ),
                    models.Index(
                        models.F("paused_until"),
                        condition=models.Q(("paused_until__isnull", False)),
                        name="ojs_limit_key_paused",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LimitCheck",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("limit_key", models.CharField(max_length=255)),
                ("due_at", models.DateTimeField()),
            ],
            options={
                "db_table": "ojs_limit_check",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("due_at"), models.F("limit_key"), name="ojs_limit_check_due"
                    ),
                    models.Index(
                        models.F("limit_key"), models.F("due_at"), name="ojs_limit_check_key"
                    ),
                ],
            },
        ),
        RunSQLFile(Path(__file__).with_name("mariadb.sql")),
        migrations.RunPython(migrations.RunPython.noop, drop_column, atomic=False),
        TakeOut(12),
        TakeOut(14),
    ]
