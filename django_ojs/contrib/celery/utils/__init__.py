"""`celery.utils`."""
