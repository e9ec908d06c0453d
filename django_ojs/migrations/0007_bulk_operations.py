"""Bulk operations, dead letters in the sidebar, and an index on the jobs that are pending."""

import django.db.models.functions.datetime
from django.db import migrations, models

import django_ojs.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("django_ojs", "0006_outbox"),
    ]

    operations = [
        migrations.CreateModel(
            name="BulkOperation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "action",
                    models.CharField(
                        choices=[("retry", "Retry"), ("cancel", "Cancel"), ("delete", "Delete")],
                        max_length=16,
                    ),
                ),
                ("filter", django_ojs.models.fields.StoredJSONField(default=dict)),
                ("changes", django_ojs.models.fields.StoredJSONField(blank=True, default=dict)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Waiting"),
                            ("running", "Running"),
                            ("stopped", "Stopped"),
                            ("done", "Done"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("ordered_by", models.CharField(max_length=255)),
                ("stopped_by", models.CharField(blank=True, max_length=255)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("expected", models.PositiveBigIntegerField(null=True)),
                ("matched", models.PositiveBigIntegerField(default=0)),
                ("done", models.PositiveBigIntegerField(default=0)),
                ("skipped", models.PositiveBigIntegerField(default=0)),
                ("failed", models.PositiveBigIntegerField(default=0)),
                ("reasons", django_ojs.models.fields.StoredJSONField(blank=True, default=dict)),
                ("errors", django_ojs.models.fields.StoredJSONField(blank=True, default=list)),
                ("place", models.CharField(blank=True, max_length=255)),
            ],
            options={
                "verbose_name": "bulk operation",
                "db_table": "ojs_bulk_operation",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[],
            options={
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("django_ojs.job",),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                models.F("id"), condition=models.Q(("state", "pending")), name="ojs_job_pending"
            ),
        ),
        migrations.AddIndex(
            model_name="bulkoperation",
            index=models.Index(
                models.F("id"),
                condition=models.Q(("state__in", ["pending", "running"])),
                name="ojs_bulk_operation_open",
            ),
        ),
    ]
