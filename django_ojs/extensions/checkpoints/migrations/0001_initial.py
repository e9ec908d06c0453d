"""The table of checkpoints."""

from pathlib import Path

from django.db import migrations, models

from django_ojs.migrations._run_sql_files import RunSQLFile, TakeOut


class Migration(migrations.Migration):
    initial = True

    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("job_id", models.UUIDField(primary_key=True, serialize=False)),
                ("run", models.PositiveIntegerField()),
                ("sequence", models.PositiveIntegerField()),
                ("state", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "ojs_checkpoint",
                "default_permissions": (),
            },
        ),
        RunSQLFile(Path(__file__).with_name("mariadb.sql")),
        TakeOut(18),
    ]
