"""Users that open the pages."""

from __future__ import annotations

from django.contrib.auth.models import Permission, User
from django.test import Client

VIEW = (
    *("view_overview", "view_auditentry", "view_queue", "view_worker", "view_event", "view_job"),
    *("view_apikey", "view_outboxentry", "view_cronjob", "view_workflow", "view_webhook"),
    "view_limitkey",
)


def staff(*codenames: str, name: str = "ann", root: bool = False, csrf: bool = False) -> Client:
    """Log in a user with these permissions of the app, or a superuser."""
    user = User.objects.create_user(username=name, is_staff=True, is_superuser=root)
    wanted = Permission.objects.filter(content_type__app_label="django_ojs", codename__in=codenames)
    user.user_permissions.set(wanted)
    assert user.user_permissions.count() == len(set(codenames))
    client = Client(enforce_csrf_checks=csrf)
    client.force_login(user)
    return client


def root(name: str = "root") -> Client:
    """Log in a superuser."""
    return staff(name=name, root=True)
