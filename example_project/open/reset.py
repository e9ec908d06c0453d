"""Empty the tables of django_ojs."""

from django.apps import apps
from django.core.management.color import no_style

from django_ojs.models import Job, Lease
from django_ojs.storage import database


def reset() -> None:
    """Delete all rows but the leases, which say who is at work and are no data."""
    models = set(apps.get_app_config("django_ojs").get_models()) - {Lease}
    # The jobs go first: where their going is counted, the counts go after them.
    ordered = sorted(models, key=lambda model: (model is not Job, model._meta.db_table))
    statements = database.connection().ops.sql_flush(
        no_style(), [model._meta.db_table for model in ordered]
    )

    def operation() -> None:
        with database.connection().cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    database.in_write_transaction(operation)
