"""Users that open the pages."""

from __future__ import annotations

from django.contrib.auth.models import Permission, User
from django.test import Client

from django_ojs.models.base import model_named, stored_models

VIEW = (
    *("view_overview", "view_auditentry", "view_queue", "view_worker", "view_event", "view_job"),
    *("view_apikey", "view_outboxentry", "view_cronjob", "view_workflow", "view_webhook"),
    "view_limitkey",
)


def staff(*codenames: str, name: str = "ann", root: bool = False, csrf: bool = False) -> Client:
    """Log in a user with these permissions of the apps, or a superuser."""
    user = User.objects.create_user(username=name, is_staff=True, is_superuser=root)
    labels = {model._meta.app_label for model in stored_models()}
    wanted = Permission.objects.filter(content_type__app_label__in=labels, codename__in=codenames)
    user.user_permissions.set(wanted)
    assert user.user_permissions.count() == len(set(codenames))
    client = Client(enforce_csrf_checks=csrf)
    client.force_login(user)
    return client


def root(name: str = "root") -> Client:
    """Log in a superuser."""
    return staff(name=name, root=True)


def at(path: str) -> str:
    """Return the address of a page, which begins with the name of its model."""
    model = model_named(path.partition("/")[0])
    return f"/admin/{model._meta.app_label if model else 'django_ojs'}/{path}"
