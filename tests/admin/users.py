"""Users that open the pages."""

from __future__ import annotations

from django.test import Client

from django_ojs.models.base import model_named
from tests.model_factories import UserFactory

VIEW = (
    *("view_overview", "view_auditentry", "view_queue", "view_worker", "view_event", "view_job"),
    *("view_apikey", "view_outboxentry", "view_cronjob", "view_workflow", "view_webhook"),
    "view_limitkey",
)


def staff(*codenames: str, name: str = "ann", root: bool = False, csrf: bool = False) -> Client:
    """Log in a user with these permissions of the apps, or a superuser."""
    client = Client(enforce_csrf_checks=csrf)
    client.force_login(UserFactory(username=name, is_superuser=root, permissions=codenames))
    return client


def root(name: str = "root") -> Client:
    """Log in a superuser."""
    return staff(name=name, root=True)


def at(path: str) -> str:
    """Return the address of a page, which begins with the name of its model."""
    model = model_named(path.partition("/")[0])
    return f"/admin/{model._meta.app_label if model else 'django_ojs'}/{path}"
