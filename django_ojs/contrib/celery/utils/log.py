"""`celery.utils.log`."""

import logging


def get_task_logger(name: str) -> logging.Logger:
    """Return the logger of a module of tasks."""
    return logging.getLogger(name)
