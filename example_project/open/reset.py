"""Empty the tables of django_ojs."""

from django.core.management.color import no_style

from django_ojs.models import Job, Lease
from django_ojs.models.base import stored_models
from django_ojs.storage import database


def reset() -> None:
    """Delete all rows but the leases, which belong to running processes."""
    # A model without a table is a page of the admin.
    models = [model for model in stored_models() if model._meta.managed]
    tables = {model._meta.db_table for model in models} - {Lease._meta.db_table}
    # Jobs first: where their deletion is counted, the counts are deleted afterwards.
    jobs = Job._meta.db_table
    ordered = sorted(tables, key=lambda table: (table != jobs, table))
    statements = database.connection().ops.sql_flush(no_style(), ordered)

    def operation() -> None:
        with database.connection().cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    database.in_write_transaction(operation)
