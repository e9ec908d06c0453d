"""The tables of workflows."""

from pathlib import Path

import django.db.models.functions.datetime
from django.db import migrations, models

import django_ojs.models.fields
import django_ojs.spec.ids
from django_ojs.migrations._run_sql_files import RunSQLFile, TakeOut


class Migration(migrations.Migration):
    initial = True

    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="EndedWorkflowJob",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("workflow_id", models.UUIDField()),
                ("job_id", models.UUIDField()),
                ("state", models.CharField(max_length=16)),
            ],
            options={
                "db_table": "ojs_workflow_ended_job",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("workflow_id"), models.F("id"), name="ojs_workflow_ended_job_wf"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Workflow",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=django_ojs.spec.ids.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("type", models.CharField(max_length=8)),
                ("name", models.CharField(blank=True, max_length=255, null=True)),
                ("client_id", models.CharField(blank=True, max_length=255, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="running",
                        max_length=16,
                    ),
                ),
                ("queues", django_ojs.models.fields.StoredJSONField(default=list)),
                ("jobs_total", models.PositiveIntegerField()),
                ("jobs_completed", models.PositiveIntegerField(default=0)),
                ("jobs_failed", models.PositiveIntegerField(default=0)),
                ("steps_left", models.PositiveIntegerField()),
                ("has_failed", models.BooleanField(default=False)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "workflow",
                "verbose_name_plural": "workflows",
                "db_table": "ojs_workflow",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        models.F("state"),
                        models.F("finished_at"),
                        condition=models.Q(("state", "running"), _negated=True),
                        name="ojs_workflow_finished",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("client_id",), name="ojs_workflow_client_id"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("finished_at__isnull", True), ("state", "running")),
                            models.Q(
                                models.Q(("state", "running"), _negated=True),
                                ("finished_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="ojs_workflow_finished_has_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkflowStep",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=django_ojs.spec.ids.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("workflow_id", models.UUIDField()),
                ("position", models.PositiveIntegerField()),
                ("key", models.TextField()),
                ("name", models.TextField(blank=True, null=True)),
                ("path", models.TextField(blank=True)),
                ("type", models.CharField(blank=True, max_length=255, null=True)),
                ("job", django_ojs.models.fields.StoredJSONField(blank=True, null=True)),
                (
                    "condition",
                    models.CharField(
                        choices=[
                            ("all_succeeded", "all_succeeded"),
                            ("any_failed", "any_failed"),
                            ("all_ended", "all_ended"),
                            ("none_failed", "none_failed"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "callback",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("on_complete", "on_complete"),
                            ("on_success", "on_success"),
                            ("on_failure", "on_failure"),
                        ],
                        max_length=16,
                        null=True,
                    ),
                ),
                ("last_result", models.BooleanField(default=False)),
                ("fails_workflow", models.BooleanField(default=True)),
                ("parents", django_ojs.models.fields.StoredJSONField(default=list)),
                ("dependents", django_ojs.models.fields.StoredJSONField(default=list)),
                ("outstanding", models.PositiveIntegerField(default=0)),
                ("succeeded", models.PositiveIntegerField(default=0)),
                ("failed", models.PositiveIntegerField(default=0)),
                ("skipped", models.PositiveIntegerField(default=0)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("ready", "Ready"),
                            ("enqueued", "Enqueued"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                            ("skipped", "Skipped"),
                        ],
                        default="waiting",
                        max_length=16,
                    ),
                ),
                ("start_failures", models.PositiveSmallIntegerField(default=0)),
                ("start_after", models.DateTimeField(blank=True, null=True)),
                ("result", django_ojs.models.fields.StoredJSONField(blank=True, null=True)),
                ("result_size", models.PositiveBigIntegerField(blank=True, null=True)),
                ("error", django_ojs.models.fields.StoredJSONField(blank=True, null=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "step of a workflow",
                "verbose_name_plural": "steps of workflows",
                "db_table": "ojs_workflow_step",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("workflow_id"),
                        condition=models.Q(("state", "ready")),
                        name="ojs_workflow_step_ready",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workflow_id", "position"), name="ojs_workflow_step_position"
                    )
                ],
            },
        ),
        RunSQLFile(Path(__file__).with_name("mariadb.sql")),
        TakeOut(16),
    ]
