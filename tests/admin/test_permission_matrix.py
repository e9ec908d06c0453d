"""Permissions: every URL of the pages and every action, taken from the admin itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission
from django.db import models
from django.test import Client
from django.urls import NoReverseMatch, URLPattern, reverse

import django_ojs as ojs
from django_ojs.admin.actions import Action
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.operator_views import view_name
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.limits import limit_keys
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.http.access import PERMISSIONS
from django_ojs.models import Incident
from django_ojs.models.base import stored_models
from django_ojs.models.bulk_operation import BulkActionName
from django_ojs.operations import queues
from django_ojs.operations.jobs import bulk_operations
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.scopes import Scope
from django_ojs.storage import database
from tests import factories
from tests.admin.users import VIEW, root, staff
from tests.cases import case, named
from tests.operations.cron.scenes import register

pytestmark = [pytest.mark.django_db, pytest.mark.once]

ADMINS = {model: each for model, each in admin.site._registry.items() if model in stored_models()}
PAGES = {model: each for model, each in ADMINS.items() if isinstance(each, OperatorModelAdmin)}

#: What the parts of an address are filled with, by name, beside an object's own key.
PARTS: dict[str, Any] = {"name": "pause", "content_type_id": 1, "number": 0}

#: Lists of jobs under another name.
SEEN_BY = {"deadletterjob": "view_job", "bulkoperation": "view_job"}


def addresses() -> Iterator[tuple[type[models.Model], URLPattern]]:
    for model, each in ADMINS.items():
        for pattern in each.get_urls():
            if pattern.name:  # The others only redirect.
                yield model, pattern


def actions() -> Iterator[tuple[type[models.Model], Action]]:
    for model, each in PAGES.items():
        for action in each.object_actions:
            yield model, action


def name_of(model: type[models.Model]) -> str:
    return str(model._meta.model_name)


@pytest.fixture
def things() -> dict[str, str]:
    """Something of each kind, by the name of its model; and a key that fits for the others."""
    factories.WorkerFactory(id="w", queues=("alpha",))
    dead = factories.in_state("discarded", queue="alpha")
    factories.push(queue="alpha")
    queues.configure("alpha", {"max_size": 1000})
    register("report", enabled=False)
    workflow = ojs.chain(ojs.request("order.charge", queue="alpha")).enqueue()
    limit_keys.override("acme", {"concurrency": 3})
    ordered = bulk_operations.order(BulkActionName.CANCEL, JobFilter(queue="alpha"), by="another")
    event = Event.objects.using(database.alias()).first()
    return {
        "queue": "alpha",
        "worker": "w",
        "job": str(dead.pk),
        "deadletterjob": str(dead.pk),
        "cronjob": "report",
        "workflow": str(workflow.id),
        "limitkey": "acme",
        "bulkoperation": str(ordered.pk),
    } | ({"event": str(event.pk)} if event else {})


def key_of(model: type[models.Model], things: dict[str, str]) -> str:
    return things.get(name_of(model), "1")


def address_of(model: type[models.Model], pattern: URLPattern, things: dict[str, str]) -> str:
    wanted = pattern.pattern.converters
    key = quote(key_of(model, things))
    parts = {name: PARTS.get(name, key) for name in wanted}
    try:
        return reverse(f"admin:{pattern.name}", kwargs=parts)
    except NoReverseMatch:
        return reverse(f"admin:{pattern.name}", args=list(parts.values()))


def everything() -> dict[str, list[tuple[Any, ...]]]:
    """All that is stored by the app; the rows that a reading may settle stay out of it.

    So do the incidents: whoever looks at the overview keeps since when something has been wrong.
    """
    stored = {}
    with database.connection().cursor() as cursor:
        for model in stored_models():
            if model._meta.managed and not model._meta.proxy and model not in (Rollup, Incident):
                # Read often: without what the models make of the rows.
                table = model._meta.db_table
                key = ", ".join(str(field.column) for field in model._meta.pk_fields)
                cursor.execute(f"SELECT * FROM {table} ORDER BY {key}")
                stored[table] = cursor.fetchall()
    return stored


@pytest.mark.repeats
def test_whoever_may_only_look_changes_nothing_at_any_address(things: dict[str, str]) -> None:
    """Nor do strangers, who are asked to log in, and staff without permission, who see nothing.

    Nothing changes at any address: what there is, and the users, are those of all of them.
    """
    blind, client = staff(name="blind"), staff(*VIEW)
    before = everything()
    for model, pattern in addresses():
        address, key = address_of(model, pattern, things), key_of(model, things)
        with named(address):
            for response in (Client().get(address), Client().post(address, {"key": key})):
                assert response.status_code == 302
                assert response["Location"].startswith("/admin/login/")
            assert blind.get(address).status_code in (302, 403, 404)
            assert blind.post(address, {"key": key, "confirmed": "1"}).status_code != 200
            client.get(address)
            for body in ({}, {"key": key, "confirmed": "1"}, {"_save": "1", "post": "yes"}):
                client.post(address, body)
            assert everything() == before


def test_a_list_is_open_to_whoever_may_look(things: dict[str, str]) -> None:
    for model in PAGES:
        name = name_of(model)
        with named(name):
            client = staff(SEEN_BY.get(name, f"view_{name}"), name=name)
            address = reverse(view_name(model, "changelist"))
            assert client.get(address).status_code == 200


def order(client: Client, model: type[models.Model], action: Action, key: str) -> int:
    address = reverse(view_name(model, "action"), args=[action.name])
    asked = client.get(address, {"key": key}).status_code
    done = client.post(address, {"key": key, "confirmed": "1", "confirm_name": key}).status_code
    assert (asked == 403) == (done == 403)
    return done


def test_no_action_is_offered_to_whoever_may_only_look(things: dict[str, str]) -> None:
    client = staff(*VIEW, "push_job", "work_job", "view_payload_job")
    for model, page in PAGES.items():
        with named(name_of(model)):
            listed = client.get(reverse(view_name(model, "changelist")))
            for action in page.object_actions:
                assert f"/action/{action.name}/" not in listed.content.decode()


@pytest.mark.repeats
def test_an_action_needs_its_scope_and_the_sight_of_its_page(things: dict[str, str]) -> None:
    reader = staff(*VIEW, "push_job", "work_job", "view_payload_job", name="reader")
    operator = staff(*VIEW, "operate_job", name="operator")
    blind = staff("administer_job", name="blind")
    administrator = staff(*VIEW, "administer_job", name="all")
    before = everything()
    for model, action in actions():
        key = key_of(model, things)
        # What the action does to the things is undone before the next one.
        with case(f"{name_of(model)} {action.name}"):
            assert order(reader, model, action, key) == 403
            assert everything() == before
            done = order(operator, model, action, key)
            assert (done == 403) == (action.scope is Scope.ADMIN)
            assert order(blind, model, action, key) == 403
            assert order(administrator, model, action, key) != 403


@pytest.mark.sqlite
def test_each_action_is_done_on_sqlite_too(things: dict[str, str]) -> None:
    administrator = staff(*VIEW, "administer_job")
    for model, action in actions():
        with case(f"{name_of(model)} {action.name}"):
            assert order(administrator, model, action, key_of(model, things)) in (200, 302)


def test_an_action_without_a_token_is_rejected(things: dict[str, str]) -> None:
    client = staff(*VIEW, "operate_job", csrf=True)
    address = reverse("admin:django_ojs_queue_action", args=["pause"])
    assert client.post(address, {"key": "alpha"}).status_code == 403


def test_no_action_of_djangos_is_left_on_the_pages() -> None:
    client = root()
    request = client.get(reverse("admin:django_ojs_queue_changelist")).wsgi_request
    # The limit keys are Django's own list.
    pages = [each for model, each in PAGES.items() if model is not LimitKey]
    assert all(not each.get_actions(request) for each in pages)


def test_every_permission_of_the_apps_gives_something() -> None:
    # Those of Django's user page: one that gives nothing misleads.
    labels = {model._meta.app_label for model in stored_models()}
    offered = Permission.objects.filter(content_type__app_label__in=labels)
    forms = {f"{do}_{what}" for do in ("add", "change", "delete") for what in ("apikey", "webhook")}
    actions_of_their_own = {"requeue_outboxentry", "view_payload_job", "enqueue_job"}
    scopes = {name.partition(".")[2] for name in PERMISSIONS.values()}
    expected = {*VIEW, *forms, *actions_of_their_own, *scopes}
    assert set(offered.values_list("codename", flat=True)) == expected
