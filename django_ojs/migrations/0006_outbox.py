"""The outbox: jobs that are enqueued here and belong elsewhere."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_ojs", "0005_bounds"),
    ]

    operations = [
        migrations.CreateModel(
            name="OutboxEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(editable=False, null=True, unique=True)),
                ("job_id", models.UUIDField(unique=True)),
                ("destination", models.CharField(max_length=32)),
                ("type", models.CharField(max_length=255)),
                ("queue", models.CharField(max_length=255)),
                ("unique_key", models.CharField(editable=False, max_length=64, null=True)),
                ("envelope", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "Pending"), ("sent", "Sent"), ("refused", "Refused")],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("error_code", models.CharField(blank=True, max_length=64)),
                ("error_message", models.CharField(blank=True, max_length=1000)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("next_try_at", models.DateTimeField(null=True)),
                ("sent_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "outbox entry",
                "verbose_name_plural": "outbox",
                "db_table": "ojs_outbox",
                "permissions": [
                    ("requeue_outboxentry", "Can send refused jobs of the outbox again")
                ],
                "indexes": [
                    models.Index(
                        models.F("id"),
                        condition=models.Q(("position__isnull", True)),
                        name="ojs_outbox_unplaced",
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
                        models.F("sent_at"),
                        condition=models.Q(("state", "sent")),
                        name="ojs_outbox_sent",
                    ),
                    models.Index(
                        models.F("created_at"),
                        condition=models.Q(("state", "refused")),
                        name="ojs_outbox_refused",
                    ),
                ],
            },
        ),
    ]
