"""A project with Celery tasks, moved over by changing its imports."""
