"""The tables of webhooks."""

from pathlib import Path
from typing import Any

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import django_ojs.spec.ids
from django_ojs.migrations._run_sql_files import RunSQLFile
from django_ojs.storage import database


def cancel_deliveries(apps: Any, schema_editor: Any) -> None:
    """Cancel what waits to be delivered: without this app, no worker has a handler for it."""
    from django_ojs.extensions.webhooks.operations.deliveries import cancel_all

    if schema_editor.connection.alias == database.alias():
        cancel_all()


class Migration(migrations.Migration):
    initial = True

    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Webhook",
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
                ("url", models.CharField(verbose_name="url", max_length=2000)),
                (
                    "events",
                    models.JSONField(
                        verbose_name="events",
                        default=list,
                        help_text="Types of events, or patterns such as job.* or *.",
                    ),
                ),
                (
                    "queues",
                    models.JSONField(
                        verbose_name="queues",
                        blank=True,
                        default=list,
                        help_text="Only events of these queues are sent. Empty: all events.",
                    ),
                ),
                (
                    "job_types",
                    models.JSONField(
                        verbose_name="job types",
                        blank=True,
                        default=list,
                        help_text="Only events of these job types are sent. Empty: all events.",
                    ),
                ),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("active", models.BooleanField(verbose_name="active", default=True)),
                ("salt", models.CharField(editable=False, max_length=64)),
                ("former_salts", models.JSONField(default=list, editable=False)),
                ("cursor", models.BigIntegerField(default=0, editable=False)),
                (
                    "failures",
                    models.PositiveIntegerField(verbose_name="failures", default=0, editable=False),
                ),
                (
                    "disabled_at",
                    models.DateTimeField(verbose_name="disabled at", editable=False, null=True),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        verbose_name="created at",
                        db_default=django.db.models.functions.datetime.Now(),
                        editable=False,
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook",
                "verbose_name_plural": "webhooks",
                "db_table": "ojs_webhook",
                "indexes": [
                    models.Index(
                        models.F("cursor"),
                        condition=models.Q(("active", True)),
                        name="ojs_webhook_active",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("event_id", models.UUIDField()),
                ("event_type", models.CharField(max_length=64)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "webhook",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="ojs_webhooks.webhook",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
                "db_table": "ojs_webhook_delivery",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["webhook", "-id"], name="ojs_webhook_delivery_of"),
                    models.Index(models.F("created_at"), name="ojs_webhook_delivery_time"),
                ],
            },
        ),
        migrations.RunPython(migrations.RunPython.noop, cancel_deliveries),
        RunSQLFile(Path(__file__).with_name("mariadb.sql")),
    ]
