"""Bounds of queues: sizes beside the counts, and tickets for what need not be counted each time."""

from importlib import import_module
from typing import Any

from django.db import migrations, models

# A migration's name begins with a digit, so that `import` cannot say it.
counts: Any = import_module("django_ojs.migrations.0002_counts")

#: Sequences that give out tickets. Two queues may share one; then their tickets run out sooner, and
#: are looked after sooner.
SLOTS = 16

#: A transaction that adds more than its share says so with one more lock: how often the share was
#: doubled. The whole bound is 64 shares.
DOUBLINGS = 6
MOST_SHARES = 2**DOUBLINGS

POSTGRESQL = f"""
ALTER TABLE ojs_count_change ADD COLUMN bytes bigint NOT NULL DEFAULT 0;

CREATE OR REPLACE FUNCTION ojs_job_count_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, state, count(*), coalesce(sum(size_bytes), 0) FROM new_jobs GROUP BY queue, state;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, state, sum(n), sum(bytes) FROM (
        SELECT queue, state, 1 AS n, coalesce(size_bytes, 0) AS bytes FROM new_jobs
        UNION ALL SELECT queue, state, -1, -coalesce(size_bytes, 0) FROM old_jobs
    ) AS moved GROUP BY queue, state HAVING sum(n) <> 0 OR sum(bytes) <> 0;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, state, -count(*), -coalesce(sum(size_bytes), 0) FROM old_jobs
    GROUP BY queue, state;
    RETURN NULL;
END $$;

DO $$
BEGIN
    FOR slot IN 0..{SLOTS - 1} LOOP
        EXECUTE format('CREATE SEQUENCE ojs_ticket_%s', slot);
    END LOOP;
END $$;

CREATE FUNCTION ojs_spend(slot integer, cost bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    tickets regclass := format('ojs_ticket_%s', slot)::regclass;
    last bigint;
BEGIN
    IF cost = 1 THEN
        RETURN nextval(tickets);
    END IF;
    SELECT max(nextval(tickets)) INTO last FROM generate_series(1, cost);
    RETURN last;
END $$;

CREATE FUNCTION ojs_admit(name text, jobs bigint, size bigint, alone boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    bound record;
    cost bigint;
    mine bigint;
    last bigint;
    doublings integer := 0;
    crowd bigint;
    room bigint;
    waiting bigint;
    waiting_bytes bigint;
BEGIN
    SELECT b.*, b.xmin AS version INTO bound FROM ojs_bound AS b WHERE queue = name;
    IF NOT FOUND THEN
        RETURN NOT EXISTS (SELECT FROM ojs_bound WHERE queue = '_default');
    END IF;
    IF bound.ceiling IS NULL AND bound.ceiling_bytes IS NULL THEN
        RETURN true;
    END IF;
    cost := jobs + coalesce(size / bound.unit, 0);
    mine := cost + coalesce(nullif(current_setting('ojs.tickets', true), ''), '0')::bigint;
    IF mine > bound.share * {MOST_SHARES}
       OR NOT pg_try_advisory_xact_lock_shared(20298, hashtext(name)) THEN
        RETURN false;
    END IF;
    WHILE bound.share << doublings < mine LOOP
        doublings := doublings + 1;
    END LOOP;
    IF doublings > 0 THEN
        -- Nobody holds this one alone: it says how much may come from here.
        PERFORM pg_advisory_xact_lock_shared(20298 + doublings, hashtext(name));
    END IF;
    last := ojs_spend(bound.slot, cost);
    IF last <= bound.since OR last > bound.until THEN
        IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
            RETURN false;
        END IF;
        SELECT sum(most) INTO crowd FROM (
            SELECT bound.share << max(classid::bigint - 20298)::integer AS most FROM pg_locks
            WHERE locktype = 'advisory' AND objsubid = 2
              AND classid::bigint BETWEEN 20298 AND 20298 + {DOUBLINGS}
              AND objid = (hashtext(name)::bigint & 4294967295)::oid
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            GROUP BY virtualtransaction
        ) AS holders;
        -- A running job may come back, and nobody asks again then.
        SELECT coalesce(sum(n), 0), coalesce(sum(bytes), 0) INTO waiting, waiting_bytes FROM (
            SELECT n, bytes FROM ojs_count
            WHERE queue = name AND state IN ('available', 'scheduled', 'retryable', 'active')
            UNION ALL SELECT n, bytes FROM ojs_count_change
            WHERE queue = name AND state IN ('available', 'scheduled', 'retryable', 'active')
        ) AS counted;
        room := least(bound.ceiling - waiting,
                      (bound.ceiling_bytes - waiting_bytes) / bound.unit) - crowd;
        IF room < 0 THEN
            RETURN false;
        END IF;
        IF alone THEN
            -- Not over what another has found since, nor over another bound.
            UPDATE ojs_bound SET since = last, until = last + room
            WHERE queue = name AND xmin = bound.version;
        END IF;
    END IF;
    PERFORM set_config('ojs.tickets', mine::text, true);
    RETURN true;
END $$;

-- All of them, or none. Who is let in by none keeps no share of a lock: two that wait for their
-- turns with one in the hand would wait for each other. A transaction that is alone is over then.
CREATE FUNCTION ojs_admit_all(queues text[], jobs bigint[], sizes bigint[], alone boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..cardinality(queues) LOOP
        IF NOT ojs_admit(queues[i], jobs[i], sizes[i], alone) THEN
            RAISE SQLSTATE 'OJS01';
        END IF;
    END LOOP;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'OJS01' THEN
    RETURN false;
END $$;
"""

_OLD_FUNCTIONS = "\n\n".join(
    part.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    for part in counts.POSTGRESQL.split("\n\n")
    if part.startswith("CREATE FUNCTION") and "truncate" not in part
)

POSTGRESQL_REVERSE = f"""
{_OLD_FUNCTIONS}

ALTER TABLE ojs_count_change DROP COLUMN bytes;

DROP FUNCTION ojs_admit_all(text[], bigint[], bigint[], boolean);

DROP FUNCTION ojs_admit(text, bigint, bigint, boolean);

DROP FUNCTION ojs_spend(integer, bigint);

DO $$
BEGIN
    FOR slot IN 0..{SLOTS - 1} LOOP
        EXECUTE format('DROP SEQUENCE ojs_ticket_%s', slot);
    END LOOP;
END $$;
"""

SQLITE = """
CREATE TRIGGER ojs_job_count_insert AFTER INSERT ON ojs_job BEGIN
    INSERT INTO ojs_count (queue, state, n, bytes)
    VALUES (NEW.queue, NEW.state, 1, coalesce(NEW.size_bytes, 0))
    ON CONFLICT (queue, state) DO UPDATE SET n = n + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER ojs_job_count_update AFTER UPDATE OF queue, state, size_bytes ON ojs_job
WHEN OLD.queue <> NEW.queue OR OLD.state <> NEW.state OR OLD.size_bytes IS NOT NEW.size_bytes BEGIN
    UPDATE ojs_count SET n = n - 1, bytes = bytes - coalesce(OLD.size_bytes, 0)
    WHERE queue = OLD.queue AND state = OLD.state;
    INSERT INTO ojs_count (queue, state, n, bytes)
    VALUES (NEW.queue, NEW.state, 1, coalesce(NEW.size_bytes, 0))
    ON CONFLICT (queue, state) DO UPDATE SET n = n + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER ojs_job_count_delete AFTER DELETE ON ojs_job BEGIN
    UPDATE ojs_count SET n = n - 1, bytes = bytes - coalesce(OLD.size_bytes, 0)
    WHERE queue = OLD.queue AND state = OLD.state;
END;
"""

_OLD_TRIGGERS = counts.SQLITE.partition("INSERT INTO ojs_count (queue, state, n)\nSELECT")[0]


class Migration(migrations.Migration):
    dependencies = [("django_ojs", "0004_http")]

    operations = [
        # SQLite builds ojs_count anew, and no trigger may name it meanwhile.
        counts.VendorSQL("sqlite", counts.SQLITE_REVERSE, _OLD_TRIGGERS),
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
            options={"db_table": "ojs_bound"},
        ),
        migrations.AddField(
            model_name="count",
            name="bytes",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="job",
            name="size_bytes",
            field=models.BigIntegerField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="queue",
            name="full_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="queue",
            name="warned_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="rollup",
            name="rejected",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="rollup",
            name="dropped",
            field=models.PositiveBigIntegerField(default=0),
        ),
        counts.VendorSQL("postgresql", POSTGRESQL, POSTGRESQL_REVERSE),
        counts.VendorSQL("sqlite", SQLITE, counts.SQLITE_REVERSE),
    ]
