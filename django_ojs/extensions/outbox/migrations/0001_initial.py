"""The table of the outbox."""

from pathlib import Path
from typing import Any

import django.db.models.functions.datetime
from django.db import migrations, models

from django_ojs.migrations._run_sql_files import RunSQLFile


def empty(apps: Any, schema_editor: Any) -> None:
    """Store the jobs for this site. Raises CommandError where others wait."""
    from django_ojs.extensions.outbox.local import empty

    empty(schema_editor.connection.alias)


class Migration(migrations.Migration):
    initial = True

    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="OutboxEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(editable=False, null=True, unique=True)),
                ("job_id", models.UUIDField(verbose_name="job id", unique=True)),
                ("destination", models.CharField(verbose_name="destination", max_length=32)),
                ("type", models.CharField(verbose_name="type", max_length=255)),
                ("queue", models.CharField(verbose_name="queue", max_length=255)),
                ("tenant_id", models.CharField(editable=False, max_length=255)),
                ("unique_key", models.CharField(editable=False, max_length=64, null=True)),
                ("envelope", models.TextField()),
                (
                    "state",
                    models.CharField(
                        verbose_name="state",
                        choices=[
                            ("pending", "Pending"),
                            ("sent", "Sent"),
                            ("rejected", "Rejected"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(verbose_name="attempts", default=0)),
                (
                    "error_code",
                    models.CharField(verbose_name="error code", blank=True, max_length=64),
                ),
                (
                    "error_message",
                    models.CharField(verbose_name="error message", blank=True, max_length=1000),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        verbose_name="created at",
                        db_default=django.db.models.functions.datetime.Now(),
                    ),
                ),
                ("next_try_at", models.DateTimeField(verbose_name="next try at", null=True)),
                (
                    "holds_back",
                    models.CharField(blank=True, default="", editable=False, max_length=8),
                ),
                ("sent_at", models.DateTimeField(verbose_name="sent at", null=True)),
            ],
            options={
                "verbose_name": "outbox entry",
                "verbose_name_plural": "outbox",
                "db_table": "ojs_outbox",
                "default_permissions": ("view",),
                "permissions": [
                    ("requeue_outboxentry", "Can send rejected jobs of the outbox again")
                ],
                "indexes": [
                    models.Index(
                        models.F("id"),
                        condition=models.Q(("position__isnull", True)),
                        name="ojs_outbox_no_position",
                    ),
                    models.Index(
                        models.F("destination"),
                        models.F("position"),
                        condition=models.Q(("state", "pending")),
                        name="ojs_outbox_next",
                    ),
                    models.Index(
                        models.F("destination"),
                        models.F("queue"),
                        models.F("position"),
                        condition=models.Q(("state", "pending")),
                        name="ojs_outbox_next_of_queue",
                    ),
                    models.Index(
                        models.F("destination"),
                        models.F("queue"),
                        condition=models.Q(
                            ("state", "pending"), models.Q(("holds_back", ""), _negated=True)
                        ),
                        name="ojs_outbox_holds_back",
                    ),
                    models.Index(
                        models.F("sent_at"),
                        condition=models.Q(("state", "sent")),
                        name="ojs_outbox_sent",
                    ),
                    models.Index(
                        models.F("created_at"),
                        condition=models.Q(("state", "rejected")),
                        name="ojs_outbox_rejected",
                    ),
                ],
            },
        ),
        migrations.RunPython(migrations.RunPython.noop, empty),
        RunSQLFile(Path(__file__).with_name("mariadb.sql")),
    ]
