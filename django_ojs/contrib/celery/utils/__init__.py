"""`celery.utils`."""

from django_ojs.spec import ids


def uuid() -> str:
    """Return an id for `task_id`."""
    return str(ids.uuid7())
