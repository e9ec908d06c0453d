"""PUSH of one job as a procedure, so that a session plans its INSERT once and not with each job."""

from importlib import import_module
from typing import Any

from django.db import migrations

# A migration's name begins with a digit, so that `import` cannot say it.
counts: Any = import_module("django_ojs.migrations.0002_counts")

_INSERT = """INSERT INTO ojs_job (
        id, type, queue, state, priority, args, meta, options, attempt, max_attempts, returned, run,
        timeout_ms, visibility_timeout_ms, size_bytes, created_at, enqueued_at, dead_letter
    ) VALUES (
        id, type, queue, 'available', priority, args, meta, options, 0, max_attempts, 0, 0,
        timeout_ms, visibility_timeout_ms, size_bytes, statement_timestamp(),
        statement_timestamp(), false
    )"""

# A CALL, and not a SELECT, which some poolers send to a replica. What is the default need not be
# named. `stored_at` is in microseconds since 1970, and NULL where the job was not stored: its id is
# taken, or with `alone` (see ojs_admit) to say whether its queue has room takes a look.
POSTGRESQL = f"""
CREATE PROCEDURE ojs_push(
    OUT stored_at bigint,
    id uuid, type text, queue text, args jsonb, size_bytes bigint, max_attempts integer,
    priority integer DEFAULT 0, meta jsonb DEFAULT '{{}}', options jsonb DEFAULT '{{}}',
    timeout_ms bigint DEFAULT NULL, visibility_timeout_ms bigint DEFAULT NULL,
    new boolean DEFAULT true, alone boolean DEFAULT NULL
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    admitted boolean := true;
BEGIN
    IF alone THEN
        admitted := ojs_admit(queue, 1, size_bytes, true);
    ELSIF NOT alone THEN
        admitted := ojs_admit_all(ARRAY[queue], ARRAY[1::bigint], ARRAY[size_bytes], false);
    END IF;
    IF NOT admitted THEN
        RETURN;
    END IF;
    IF new THEN
        {_INSERT};
    ELSE
        {_INSERT}
        ON CONFLICT (id) DO NOTHING;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    stored_at := EXTRACT(EPOCH FROM statement_timestamp()) * 1000000;
END $$;
"""

POSTGRESQL_REVERSE = """
DROP PROCEDURE ojs_push(
    uuid, text, text, jsonb, bigint, integer, integer, jsonb, jsonb, bigint, bigint, boolean,
    boolean
);
"""


class Migration(migrations.Migration):
    dependencies = [("django_ojs", "0007_bulk_operations")]

    operations = [counts.VendorSQL("postgresql", POSTGRESQL, POSTGRESQL_REVERSE)]
