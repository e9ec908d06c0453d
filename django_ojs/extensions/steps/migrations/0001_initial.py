"""The tables of steps, and of the signals that they wait for."""

from pathlib import Path

from django.db import migrations, models

import django_ojs.models.fields
from django_ojs.migrations._run_sql_files import RunSQLFile


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Step",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "job_id",
                        "number",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("job_id", models.UUIDField()),
                ("number", models.PositiveIntegerField()),
                ("name", models.CharField(max_length=210)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("run", "Run"),
                            ("atomic", "Transaction"),
                            ("sleep", "Sleep"),
                            ("wait", "Wait for a signal"),
                            ("gather", "Wait for jobs"),
                            ("version", "Version"),
                        ],
                        max_length=8,
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("done", "Done"),
                            ("waiting", "Waiting"),
                            ("timed_out", "Timed out"),
                            ("failed", "Failed"),
                        ],
                        default="done",
                        max_length=10,
                    ),
                ),
                ("result", models.TextField(blank=True, null=True)),
                ("error", django_ojs.models.fields.StoredJSONField(blank=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("until", models.DateTimeField(blank=True, null=True)),
                ("signal", models.CharField(blank=True, max_length=200, null=True)),
                ("key", models.CharField(blank=True, max_length=200, null=True)),
                ("signal_id", models.BigIntegerField(blank=True, null=True)),
                ("run", models.PositiveIntegerField()),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "step",
                "verbose_name_plural": "steps",
                "db_table": "ojs_step",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("signal"),
                        models.F("key"),
                        condition=models.Q(("outcome", "waiting"), ("signal__isnull", False)),
                        name="ojs_step_waiting",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StepSignal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("key", models.CharField(max_length=200)),
                ("payload", models.TextField()),
                ("sent_at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "signal",
                "verbose_name_plural": "signals",
                "db_table": "ojs_step_signal",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("name"),
                        models.F("key"),
                        models.F("id"),
                        name="ojs_step_signal_key",
                    ),
                    models.Index(models.F("sent_at"), name="ojs_step_signal_age"),
                ],
            },
        ),
        RunSQLFile(Path(__file__).with_name("mariadb.sql")),
    ]
