"""The whole schema. What Django cannot express is in the folder `sql` beside this file."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import django_ojs.models.fields
import django_ojs.spec.ids
import django_ojs.spec.states
from django_ojs.migrations._run_sql_files import RunSQLFiles


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("holder", models.CharField(max_length=255)),
                ("until", models.DateTimeField()),
            ],
            options={
                "db_table": "ojs_lease",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Incident",
            fields=[
                ("identity", models.CharField(max_length=600, primary_key=True, serialize=False)),
                ("severity", models.CharField(max_length=16)),
                ("text", models.TextField()),
                ("cause", models.TextField(blank=True)),
                ("queue", models.CharField(blank=True, max_length=255)),
                ("type", models.CharField(blank=True, max_length=255)),
                ("jobs", models.PositiveBigIntegerField(default=0)),
                ("since", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "ojs_incident",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="KnownName",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[("queue", "Queue"), ("type", "Job type")], max_length=8
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                ("principal", models.CharField(blank=True, max_length=255)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
            ],
            options={
                "db_table": "ojs_known_name",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("principal"), models.F("kind"), name="ojs_known_name_principal"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=["kind", "name"], name="ojs_known_name_key")
                ],
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                ("paused_at", models.DateTimeField(blank=True, null=True)),
                ("draining_at", models.DateTimeField(blank=True, null=True)),
                ("rules", models.BigIntegerField(db_default=0, default=0, editable=False)),
                ("config", django_ojs.models.fields.StoredJSONField(blank=True, default=dict)),
                ("eased_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("full_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("updated_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("near_full_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("warned_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "db_table": "ojs_queue",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.CharField(max_length=255, primary_key=True, serialize=False)),
                (
                    "owner",
                    models.TextField(blank=True, help_text="The principal that made it known."),
                ),
                ("hostname", models.CharField(blank=True, max_length=255)),
                ("pid", models.PositiveBigIntegerField(null=True)),
                ("queues", models.JSONField(default=list)),
                (
                    "pool",
                    models.CharField(
                        blank=True,
                        help_text="The pool that it belongs to; empty for none.",
                        max_length=63,
                    ),
                ),
                ("labels", models.JSONField(default=list)),
                (
                    "job_types",
                    models.JSONField(
                        default=list,
                        help_text="The types that it has handlers for; empty if it did not say.",
                    ),
                ),
                ("concurrency", models.PositiveIntegerField(null=True)),
                ("least_slots", models.PositiveIntegerField(null=True)),
                ("most_slots", models.PositiveIntegerField(null=True)),
                ("wanted_slots", models.PositiveIntegerField(null=True)),
                ("active_jobs", models.PositiveIntegerField(default=0)),
                ("version", models.CharField(blank=True, max_length=64)),
                (
                    "release",
                    models.CharField(
                        blank=True,
                        help_text="The release of the project that it runs.",
                        max_length=64,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("quiet", "Quiet"),
                            ("terminate", "Terminating"),
                        ],
                        default="running",
                        max_length=16,
                    ),
                ),
                (
                    "directive",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("quiet", "Quiet"),
                            ("terminate", "Terminating"),
                        ],
                        default="running",
                        max_length=16,
                    ),
                ),
                ("started_at", models.DateTimeField(null=True)),
                (
                    "seen_at",
                    models.DateTimeField(help_text="Its last BEAT, FETCH or progress report."),
                ),
                (
                    "beat_at",
                    models.DateTimeField(
                        help_text="Its last BEAT; none so far if empty.", null=True
                    ),
                ),
                (
                    "beat_interval_ms",
                    models.PositiveBigIntegerField(
                        help_text="The interval between its beats, if it sends one.", null=True
                    ),
                ),
                (
                    "steady_since",
                    models.DateTimeField(
                        help_text=(
                            "Since when it can store each heartbeat and extend its leases in "
                            "time; empty while it cannot."
                        ),
                        null=True,
                    ),
                ),
                (
                    "dead_after_ms",
                    models.PositiveBigIntegerField(
                        help_text="Time without a heartbeat after which the worker counts as dead."
                    ),
                ),
                (
                    "enforces_timeouts",
                    models.BooleanField(
                        default=False,
                        help_text="Whether it fails jobs that run longer than their timeout.",
                    ),
                ),
                ("session_pid", models.PositiveBigIntegerField(null=True)),
                ("session_started_at", models.DateTimeField(null=True)),
                ("metadata", models.JSONField(default=dict)),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "db_table": "ojs_worker",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Job",
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
                ("type", models.CharField(max_length=255)),
                ("queue", models.CharField(default="default", max_length=255)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("scheduled", "Scheduled"),
                            ("available", "Available"),
                            ("pending", "Pending"),
                            ("active", "Active"),
                            ("completed", "Completed"),
                            ("retryable", "Retryable"),
                            ("cancelled", "Cancelled"),
                            ("discarded", "Discarded"),
                        ],
                        max_length=16,
                    ),
                ),
                ("priority", models.SmallIntegerField(default=0)),
                ("args", django_ojs.models.fields.StoredJSONField(default=list)),
                ("meta", django_ojs.models.fields.StoredJSONField(blank=True, default=dict)),
                ("options", django_ojs.models.fields.StoredJSONField(blank=True, default=dict)),
                ("attempt", models.PositiveIntegerField(default=0)),
                ("max_attempts", models.PositiveIntegerField(default=3)),
                (
                    "returned",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="Claims that were returned without spending an attempt.",
                    ),
                ),
                (
                    "lost_with_others",
                    models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        editable=False,
                        help_text="Runs that were lost because a worker died with several jobs.",
                    ),
                ),
                ("run", models.PositiveIntegerField(default=0)),
                ("timeout_ms", models.PositiveBigIntegerField(blank=True, null=True)),
                ("visibility_timeout_ms", models.PositiveBigIntegerField(blank=True, null=True)),
                ("created_at", models.DateTimeField()),
                ("enqueued_at", models.DateTimeField(blank=True, null=True)),
                (
                    "due_at",
                    models.DateTimeField(
                        blank=True, help_text="When a scheduled or retryable job is due.", null=True
                    ),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("activated_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("worker_id", models.CharField(blank=True, max_length=255, null=True)),
                (
                    "lease_until",
                    models.DateTimeField(
                        blank=True, help_text="When the lease of the claim ends.", null=True
                    ),
                ),
                (
                    "lease_ms",
                    models.PositiveBigIntegerField(
                        blank=True,
                        help_text="By how much a heartbeat extends the lease.",
                        null=True,
                    ),
                ),
                ("result", django_ojs.models.fields.StoredJSONField(blank=True, null=True)),
                ("error", django_ojs.models.fields.StoredJSONField(blank=True, null=True)),
                ("dead_letter", models.BooleanField(default=False)),
                (
                    "original_queue",
                    models.CharField(blank=True, editable=False, max_length=255, null=True),
                ),
                (
                    "history_deleted_at",
                    models.DateTimeField(blank=True, editable=False, null=True),
                ),
                ("discard_reason", models.CharField(blank=True, max_length=16, null=True)),
                ("marks", models.BigIntegerField(db_default=0, default=0, editable=False)),
                ("parent_id", models.UUIDField(blank=True, editable=False, null=True)),
                ("progress", django_ojs.models.fields.StoredJSONField(blank=True, null=True)),
                (
                    "unique_key",
                    models.CharField(blank=True, editable=False, max_length=64, null=True),
                ),
                ("size_bytes", models.BigIntegerField(blank=True, editable=False, null=True)),
                (
                    "hold",
                    models.PositiveSmallIntegerField(db_default=0, default=0, editable=False),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "db_table": "ojs_job",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        models.F("queue"),
                        models.F("hold"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("enqueued_at"),
                        models.F("id"),
                        condition=models.Q(("state", "available")),
                        name="ojs_job_claim",
                    ),
                    models.Index(
                        models.F("queue"),
                        models.F("hold"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("enqueued_at"),
                        models.F("id"),
                        condition=models.Q(("lost_with_others__gte", 2), ("state", "available")),
                        name="ojs_job_isolated",
                    ),
                    models.Index(
                        models.F("due_at"),
                        models.F("id"),
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    django_ojs.spec.states.State["SCHEDULED"],
                                    django_ojs.spec.states.State["RETRYABLE"],
                                ],
                            )
                        ),
                        name="ojs_job_due",
                    ),
                    models.Index(
                        models.F("queue"),
                        models.F("due_at"),
                        models.F("id"),
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    django_ojs.spec.states.State["SCHEDULED"],
                                    django_ojs.spec.states.State["RETRYABLE"],
                                ],
                            )
                        ),
                        name="ojs_job_due_queue",
                    ),
                    models.Index(
                        models.F("expires_at"),
                        condition=models.Q(
                            ("expires_at__isnull", False),
                            (
                                "state__in",
                                [
                                    django_ojs.spec.states.State["SCHEDULED"],
                                    django_ojs.spec.states.State["RETRYABLE"],
                                    django_ojs.spec.states.State["AVAILABLE"],
                                    django_ojs.spec.states.State["PENDING"],
                                ],
                            ),
                        ),
                        name="ojs_job_expiry",
                    ),
                    models.Index(
                        models.F("worker_id"),
                        models.F("queue"),
                        condition=models.Q(("state", "active")),
                        name="ojs_job_active",
                    ),
                    models.Index(
                        models.F("state"),
                        models.F("dead_letter"),
                        models.F("finished_at"),
                        models.F("id"),
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    django_ojs.spec.states.State["CANCELLED"],
                                    django_ojs.spec.states.State["COMPLETED"],
                                    django_ojs.spec.states.State["DISCARDED"],
                                ],
                            )
                        ),
                        name="ojs_job_finished",
                    ),
                    models.Index(
                        models.F("finished_at"),
                        models.F("id"),
                        condition=models.Q(("dead_letter", True)),
                        name="ojs_job_dead",
                    ),
                    models.Index(
                        models.F("original_queue"),
                        condition=models.Q(("original_queue__isnull", False)),
                        name="ojs_job_original_queue",
                    ),
                    models.Index(
                        models.F("unique_key"),
                        condition=models.Q(("unique_key__isnull", False)),
                        name="ojs_job_unique",
                    ),
                    models.Index(
                        models.F("parent_id"),
                        models.F("id"),
                        condition=models.Q(("parent_id__isnull", False)),
                        name="ojs_job_parent",
                    ),
                    models.Index(
                        models.F("id"),
                        condition=models.Q(("state", "pending")),
                        name="ojs_job_pending",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    django_ojs.spec.states.State["SCHEDULED"],
                                    django_ojs.spec.states.State["AVAILABLE"],
                                    django_ojs.spec.states.State["PENDING"],
                                    django_ojs.spec.states.State["ACTIVE"],
                                    django_ojs.spec.states.State["COMPLETED"],
                                    django_ojs.spec.states.State["RETRYABLE"],
                                    django_ojs.spec.states.State["CANCELLED"],
                                    django_ojs.spec.states.State["DISCARDED"],
                                ],
                            )
                        ),
                        name="ojs_job_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__range", (-100, 100))),
                        name="ojs_job_priority",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "active"), _negated=True),
                            models.Q(("lease_until__isnull", False), ("started_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="ojs_job_active_has_lease",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                (
                                    "state__in",
                                    [
                                        django_ojs.spec.states.State["SCHEDULED"],
                                        django_ojs.spec.states.State["RETRYABLE"],
                                    ],
                                ),
                                _negated=True,
                            ),
                            ("due_at__isnull", False),
                            _connector="OR",
                        ),
                        name="ojs_job_waiting_has_due_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("finished_at__isnull", False),
                                (
                                    "state__in",
                                    [
                                        django_ojs.spec.states.State["CANCELLED"],
                                        django_ojs.spec.states.State["COMPLETED"],
                                        django_ojs.spec.states.State["DISCARDED"],
                                    ],
                                ),
                            ),
                            models.Q(
                                models.Q(
                                    (
                                        "state__in",
                                        [
                                            django_ojs.spec.states.State["CANCELLED"],
                                            django_ojs.spec.states.State["COMPLETED"],
                                            django_ojs.spec.states.State["DISCARDED"],
                                        ],
                                    ),
                                    _negated=True,
                                ),
                                ("finished_at__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="ojs_job_finished_has_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("dead_letter", False), ("state", "discarded"), _connector="OR"
                        ),
                        name="ojs_job_dead_letter",
                    ),
                ],
                "permissions": [
                    ("push_job", "Can enqueue jobs over HTTP"),
                    ("work_job", "Can fetch jobs and report their outcomes over HTTP"),
                    ("operate_job", "Can operate: cancel, retry, pause and resume, direct workers"),
                    (
                        "administer_job",
                        "Can do everything: configure, purge, delete, stop all queues",
                    ),
                    ("enqueue_job", "Can enqueue jobs in the admin"),
                    ("view_payload_job", "Can see arguments, results and backtraces in the admin"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt", models.PositiveIntegerField()),
                ("run", models.PositiveIntegerField()),
                ("worker_id", models.CharField(blank=True, max_length=255, null=True)),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("failed", "Failed"),
                            ("timeout", "Timed out"),
                            ("lapsed", "Lease expired"),
                            ("lost", "Worker died"),
                            ("shutdown", "Worker shut down"),
                            ("returned", "Returned"),
                            ("cancelled", "Cancelled"),
                        ],
                        max_length=16,
                    ),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField()),
                ("error", django_ojs.models.fields.StoredJSONField(null=True)),
                ("retry_delay_ms", models.PositiveBigIntegerField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="attempts",
                        to="django_ojs.job",
                    ),
                ),
            ],
            options={
                "db_table": "ojs_attempt",
                "default_permissions": (),
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Rollup",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute", models.DateTimeField()),
                ("queue", models.CharField(max_length=255)),
                ("type", models.CharField(max_length=255)),
                ("enqueued", models.PositiveBigIntegerField(default=0)),
                ("completed", models.PositiveBigIntegerField(default=0)),
                ("failed", models.PositiveBigIntegerField(default=0)),
                ("discarded", models.PositiveBigIntegerField(default=0)),
                ("waited", models.JSONField(default=list)),
                ("ran", models.JSONField(default=list)),
                ("rejected", models.PositiveBigIntegerField(default=0)),
                ("dropped", models.PositiveBigIntegerField(default=0)),
                ("lost", models.PositiveBigIntegerField(default=0)),
                ("progress_updates", models.PositiveBigIntegerField(default=0)),
                ("history_failures", models.PositiveBigIntegerField(db_default=0, default=0)),
            ],
            options={
                "db_table": "ojs_rollup",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("minute"),
                        models.F("queue"),
                        models.F("type"),
                        name="ojs_rollup_key",
                    ),
                    models.Index(models.F("type"), models.F("minute"), name="ojs_rollup_type"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        verbose_name="name",
                        help_text="The program that uses the key, and its purpose.",
                        max_length=100,
                    ),
                ),
                (
                    "prefix",
                    models.CharField(
                        verbose_name="prefix", editable=False, max_length=16, unique=True
                    ),
                ),
                ("principal", models.CharField(editable=False, max_length=16)),
                ("digest", models.CharField(editable=False, max_length=64)),
                (
                    "scopes",
                    models.JSONField(
                        verbose_name="scopes",
                        default=list,
                        help_text="read, producer, worker, operator or admin.",
                    ),
                ),
                (
                    "queues",
                    models.JSONField(
                        verbose_name="queues",
                        blank=True,
                        default=list,
                        help_text="The queues that the key may use; empty: all queues.",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        verbose_name="created at",
                        db_default=django.db.models.functions.datetime.Now(),
                        editable=False,
                    ),
                ),
                (
                    "expires_at",
                    models.DateTimeField(verbose_name="expires at", blank=True, null=True),
                ),
                ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "last_used_at",
                    models.DateTimeField(
                        verbose_name="last used at", blank=True, editable=False, null=True
                    ),
                ),
                (
                    "rejected_at",
                    models.DateTimeField(
                        verbose_name="rejected at",
                        blank=True,
                        editable=False,
                        help_text="Its last use after it had expired or was revoked.",
                        null=True,
                    ),
                ),
            ],
            options={
                "verbose_name": "API key",
                "verbose_name_plural": "API keys",
                "db_table": "ojs_api_key",
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField(null=True, unique=True)),
                ("event_id", models.UUIDField()),
                ("type", models.CharField(max_length=64)),
                (
                    "time",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "subject",
                    models.CharField(
                        help_text=(
                            "The id of a job, workflow or worker, the name of a queue or cron job, "
                            "or a limit key."
                        ),
                        max_length=255,
                    ),
                ),
                ("queue", models.CharField(blank=True, max_length=255)),
                ("data", django_ojs.models.fields.StoredJSONField(default=dict)),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
                "db_table": "ojs_event",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        models.F("id"),
                        condition=models.Q(("position__isnull", True)),
                        name="ojs_event_no_position",
                    ),
                    models.Index(models.F("subject"), models.F("id"), name="ojs_event_subject"),
                    models.Index(models.F("time"), name="ojs_event_time"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Bound",
            fields=[
                ("queue", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("slot", models.PositiveSmallIntegerField(default=0)),
                ("since", models.BigIntegerField(default=0)),
                ("until", models.BigIntegerField(default=-1)),
                ("share", models.BigIntegerField(default=0)),
                ("ceiling", models.BigIntegerField(null=True)),
                ("ceiling_bytes", models.BigIntegerField(null=True)),
                ("unit", models.BigIntegerField(null=True)),
            ],
            options={
                "db_table": "ojs_bound",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="BulkOperation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("retry", "Retry"),
                            ("cancel", "Cancel"),
                            ("delete", "Delete"),
                            ("run_now", "Run now"),
                        ],
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
                ("cursor", models.CharField(blank=True, max_length=255)),
            ],
            options={
                "verbose_name_plural": "bulk operations",
                "verbose_name": "bulk operation",
                "db_table": "ojs_bulk_operation",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("id"),
                        condition=models.Q(("state__in", ["pending", "running"])),
                        name="ojs_bulk_operation_open",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DeadLetterJob",
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
        migrations.CreateModel(
            name="Overview",
            fields=[],
            options={
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("django_ojs.queue",),
        ),
        migrations.CreateModel(
            name="BulkOperationJob",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.UUIDField()),
                (
                    "operation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="jobs",
                        to="django_ojs.bulkoperation",
                    ),
                ),
            ],
            options={"db_table": "ojs_bulk_operation_job", "default_permissions": ()},
        ),
        migrations.CreateModel(
            name="AuditEntry",
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
                (
                    "actor_kind",
                    models.CharField(
                        choices=[
                            ("user", "user"),
                            ("api_key", "API key"),
                            ("command", "command line"),
                            ("other", "HTTP"),
                        ],
                        max_length=16,
                    ),
                ),
                ("actor", models.CharField(max_length=255)),
                ("source_ip", models.CharField(blank=True, max_length=64)),
                ("action", models.CharField(max_length=64)),
                ("object_type", models.CharField(max_length=32)),
                ("object_id", models.CharField(blank=True, max_length=255)),
                ("changes", django_ojs.models.fields.StoredJSONField(blank=True, default=dict)),
                ("detail", django_ojs.models.fields.StoredJSONField(blank=True, default=dict)),
            ],
            options={
                "verbose_name": "audit entry",
                "verbose_name_plural": "audit trail",
                "db_table": "ojs_audit_entry",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(models.F("actor"), models.F("id"), name="ojs_audit_entry_actor"),
                    models.Index(models.F("action"), models.F("id"), name="ojs_audit_entry_action"),
                    models.Index(
                        models.F("object_id"), models.F("id"), name="ojs_audit_entry_object"
                    ),
                ],
            },
        ),
        RunSQLFiles(),
    ]
