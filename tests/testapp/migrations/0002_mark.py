from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("testapp", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="Mark",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("job_id", models.UUIDField()),
                ("attempt", models.PositiveIntegerField(default=0)),
                ("run", models.PositiveIntegerField(default=0)),
                ("event", models.CharField(max_length=100)),
                ("at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
