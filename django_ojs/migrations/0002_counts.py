"""Counts by queue and state, kept by triggers."""

from typing import Any

from django.db import migrations, models


class VendorSQL(migrations.RunSQL):
    """Statements for one kind of database, with blank lines between them."""

    def __init__(self, vendor: str, sql: str, reverse_sql: str) -> None:
        super().__init__([*sql.strip().split("\n\n")], [*reverse_sql.strip().split("\n\n")])
        self.vendor = vendor
        self.texts = [sql, reverse_sql]

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.vendor, *self.texts], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, *states)


# A statement that changes jobs appends what it changed: no row is shared between writers, so nobody
# waits, and a transaction that is open for long holds nothing that others need. Maintenance folds
# the changes into ojs_count. The table has no index: it is only ever appended to, and read and
# emptied as a whole.
POSTGRESQL = """
CREATE TABLE ojs_count_change (
    queue varchar(255) NOT NULL,
    state varchar(16) NOT NULL,
    n bigint NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

CREATE FUNCTION ojs_job_count_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ojs_count_change SELECT queue, state, count(*) FROM new_jobs GROUP BY queue, state;
    RETURN NULL;
END $$;

CREATE FUNCTION ojs_job_count_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, state, sum(n) FROM (
        SELECT queue, state, 1 AS n FROM new_jobs UNION ALL SELECT queue, state, -1 FROM old_jobs
    ) AS moved GROUP BY queue, state HAVING sum(n) <> 0;
    RETURN NULL;
END $$;

CREATE FUNCTION ojs_job_count_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ojs_count_change SELECT queue, state, -count(*) FROM old_jobs GROUP BY queue, state;
    RETURN NULL;
END $$;

CREATE FUNCTION ojs_job_count_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM ojs_count_change;
    DELETE FROM ojs_count;
    RETURN NULL;
END $$;

CREATE TRIGGER ojs_job_count_insert AFTER INSERT ON ojs_job
    REFERENCING NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION ojs_job_count_insert();

CREATE TRIGGER ojs_job_count_update AFTER UPDATE ON ojs_job
    REFERENCING OLD TABLE AS old_jobs NEW TABLE AS new_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION ojs_job_count_update();

CREATE TRIGGER ojs_job_count_delete AFTER DELETE ON ojs_job
    REFERENCING OLD TABLE AS old_jobs FOR EACH STATEMENT EXECUTE FUNCTION ojs_job_count_delete();

CREATE TRIGGER ojs_job_count_truncate AFTER TRUNCATE ON ojs_job
    FOR EACH STATEMENT EXECUTE FUNCTION ojs_job_count_truncate();

INSERT INTO ojs_count (queue, state, n)
SELECT queue, state, count(*) FROM ojs_job GROUP BY queue, state;
"""

POSTGRESQL_REVERSE = """
DROP FUNCTION ojs_job_count_insert() CASCADE;

DROP FUNCTION ojs_job_count_update() CASCADE;

DROP FUNCTION ojs_job_count_delete() CASCADE;

DROP FUNCTION ojs_job_count_truncate() CASCADE;

DROP TABLE ojs_count_change;
"""

# One writer at a time: it may as well write the count itself. A row that is missing when a job goes
# was emptied with the table. SQLite changes most columns by building the table anew, and its
# triggers are lost on the way: a migration that alters ojs_job runs this again, without the INSERT.
SQLITE = """
CREATE TRIGGER ojs_job_count_insert AFTER INSERT ON ojs_job BEGIN
    INSERT INTO ojs_count (queue, state, n) VALUES (NEW.queue, NEW.state, 1)
    ON CONFLICT (queue, state) DO UPDATE SET n = n + 1;
END;

CREATE TRIGGER ojs_job_count_update AFTER UPDATE OF queue, state ON ojs_job
WHEN OLD.queue <> NEW.queue OR OLD.state <> NEW.state BEGIN
    UPDATE ojs_count SET n = n - 1 WHERE queue = OLD.queue AND state = OLD.state;
    INSERT INTO ojs_count (queue, state, n) VALUES (NEW.queue, NEW.state, 1)
    ON CONFLICT (queue, state) DO UPDATE SET n = n + 1;
END;

CREATE TRIGGER ojs_job_count_delete AFTER DELETE ON ojs_job BEGIN
    UPDATE ojs_count SET n = n - 1 WHERE queue = OLD.queue AND state = OLD.state;
END;

INSERT INTO ojs_count (queue, state, n)
SELECT queue, state, count(*) FROM ojs_job GROUP BY queue, state;
"""

SQLITE_REVERSE = """
DROP TRIGGER ojs_job_count_insert;

DROP TRIGGER ojs_job_count_update;

DROP TRIGGER ojs_job_count_delete;
"""


class Migration(migrations.Migration):
    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Count",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("queue", models.CharField(max_length=255)),
                ("state", models.CharField(max_length=16)),
                ("n", models.BigIntegerField()),
            ],
            options={
                "db_table": "ojs_count",
                "constraints": [
                    models.UniqueConstraint(fields=("queue", "state"), name="ojs_count_key")
                ],
            },
        ),
        VendorSQL("postgresql", POSTGRESQL, POSTGRESQL_REVERSE),
        VendorSQL("sqlite", SQLITE, SQLITE_REVERSE),
    ]
