"""The tables of cron jobs."""

from pathlib import Path
from typing import Any

import django.db.models.functions.datetime
from django.db import migrations, models

import django_ojs.models.fields
from django_ojs.migrations._run_sql_files import RunSQLFile
from django_ojs.storage import database


def release_held_jobs(apps: Any, schema_editor: Any) -> None:
    """Let the jobs run that wait for an earlier one: without this app, they would wait for ever."""
    from django_ojs.extensions.cron.operations.held_jobs import release_all

    if schema_editor.connection.alias == database.alias():
        release_all()


class Migration(migrations.Migration):
    initial = True

    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="CronJob",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("expression", models.CharField(max_length=255)),
                ("timezone", models.CharField(default="UTC", max_length=255)),
                ("template", django_ojs.models.fields.StoredJSONField()),
                ("type", models.CharField(max_length=255)),
                ("queue", models.CharField(max_length=255)),
                (
                    "overlap_policy",
                    models.CharField(
                        choices=[
                            ("skip", "Skip"),
                            ("allow", "Allow"),
                            ("cancel_previous", "Cancel the previous run"),
                            ("enqueue", "Enqueue"),
                        ],
                        default="skip",
                        max_length=16,
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("description", models.TextField(blank=True, null=True)),
                (
                    "owner",
                    models.CharField(
                        choices=[("code", "Code"), ("api", "API")], default="api", max_length=8
                    ),
                ),
                ("service", models.CharField(blank=True, editable=False, max_length=255)),
                ("defined_in", models.CharField(blank=True, editable=False, max_length=512)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                ("due_at", models.DateTimeField(editable=False, null=True)),
                ("next_run_at", models.DateTimeField(editable=False, null=True)),
                ("last_run_at", models.DateTimeField(editable=False, null=True)),
                ("last_job_id", models.UUIDField(editable=False, null=True)),
                ("run_count", models.PositiveBigIntegerField(default=0, editable=False)),
                ("skipped_count", models.PositiveBigIntegerField(default=0, editable=False)),
                ("skipped_since", models.DateTimeField(editable=False, null=True)),
                ("skipped_why", models.CharField(blank=True, editable=False, max_length=16)),
                ("skipped_for", models.UUIDField(editable=False, null=True)),
                ("missed_count", models.PositiveBigIntegerField(default=0, editable=False)),
            ],
            options={
                "verbose_name_plural": "cron jobs",
                "verbose_name": "cron job",
                "db_table": "ojs_cron_job",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        models.F("due_at"),
                        models.F("name"),
                        condition=models.Q(("due_at__isnull", False)),
                        name="ojs_cron_job_due",
                    ),
                    models.Index(
                        models.F("service"),
                        condition=models.Q(("owner", "code")),
                        name="ojs_cron_job_code",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("enabled", True),
                            models.Q(("due_at__isnull", True), ("next_run_at__isnull", True)),
                            _connector="OR",
                        ),
                        name="ojs_cron_job_disabled_has_no_time",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="CronRun",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255)),
                ("job_id", models.UUIDField()),
                ("scheduled_at", models.DateTimeField()),
                (
                    "triggered_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "triggered_by",
                    models.CharField(
                        blank=True,
                        help_text="The operator who started the run. Empty: the schedule did.",
                        max_length=255,
                    ),
                ),
                (
                    "phase",
                    models.CharField(
                        choices=[("held", "Held"), ("open", "Open"), ("ended", "Ended")],
                        default="open",
                        editable=False,
                        max_length=8,
                    ),
                ),
            ],
            options={
                "verbose_name": "run of a cron job",
                "verbose_name_plural": "runs of cron jobs",
                "db_table": "ojs_cron_run",
                "default_permissions": (),
                "indexes": [
                    models.Index(models.F("name"), models.F("id"), name="ojs_cron_run_name"),
                    models.Index(
                        models.F("name"),
                        models.F("id"),
                        condition=models.Q(("phase__in", ["open", "held"])),
                        name="ojs_cron_run_open",
                    ),
                    models.Index(
                        models.F("name"),
                        models.F("id"),
                        condition=models.Q(("phase", "held")),
                        name="ojs_cron_run_held",
                    ),
                ],
            },
        ),
        migrations.RunPython(migrations.RunPython.noop, release_held_jobs),
        RunSQLFile(Path(__file__).with_name("mariadb.sql")),
    ]
