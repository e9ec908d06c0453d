"""There is no table: what is added to the table of jobs is in the folder `schema`."""

from typing import Any

from django.db import migrations

from django_ojs.migrations._run_sql_files import TakeOut


def drop_column(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "mysql":
        schema_editor.execute("ALTER TABLE ojs_job DROP COLUMN IF EXISTS tenant")


class Migration(migrations.Migration):
    initial = True

    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        # MariaDB commits before it: Django rejects it in a transaction there.
        migrations.RunPython(migrations.RunPython.noop, drop_column, atomic=False),
        TakeOut(10),
    ]
