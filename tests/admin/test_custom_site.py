"""The pages on another admin site, under another prefix and with a theme's ModelAdmin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin import helpers
from django.test import override_settings
from django.urls import path

from django_ojs.admin import register
from django_ojs.models import Job, Queue
from tests.admin.markup import structure
from tests.admin.test_dead_letters import dead
from tests.admin.test_pages import LISTS, fill
from tests.admin.users import at, root
from tests.cases import together


@pytest.mark.once
@pytest.mark.django_db
@override_settings(ROOT_URLCONF="tests.admin.site")
@together(
    "page",
    [*(f"{page}/" for page in LISTS), "queue/queue-0/change/", "queue/action/purge/?key=queue-0"],
    undo=True,
)
def test_pages_link_to_the_site_they_are_on(page: str) -> None:
    fill(1)
    response = root().get(at(page).replace("/admin/", "/back/office/", 1))
    assert response.status_code == 200
    text = response.content.decode()
    assert "/back/office/django_ojs/queue/" in text
    assert 'href="/admin/' not in text
    assert structure(text).forbidden == []


@pytest.mark.once
@pytest.mark.django_db
@override_settings(ROOT_URLCONF="tests.admin.site")
def test_an_action_leads_back_into_its_site() -> None:
    fill(1)
    response = root().post("/back/office/django_ojs/queue/action/pause/", {"key": "queue-0"})
    assert response["Location"] == "/back/office/django_ojs/queue/"
    assert Queue.objects.get(pk="queue-0").paused


@pytest.mark.once
@pytest.mark.django_db
@pytest.mark.parametrize("has_own_page", [True, False])
def test_a_project_can_show_jobs_in_its_own_way_or_not_at_all(
    has_own_page: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = dead(queue="queue-0")
    fill(1)
    client, site = root(), admin.AdminSite(name="own")
    if has_own_page:
        site.register(Job)
    register(site)
    if not has_own_page:
        site.unregister(Job)
    monkeypatch.setattr("tests.admin.site.urlpatterns", [path("back/office/", site.urls)])
    with override_settings(ROOT_URLCONF="tests.admin.site"):
        for page in ("overview/", "deadletterjob/", "queue/queue-0/change/"):
            response = client.get(at(page).replace("/admin/", "/back/office/", 1))
            assert response.status_code == 200, page
            assert ("/django_ojs/job/" in response.content.decode()) is has_own_page, page
        response = client.get(f"/back/office/django_ojs/deadletterjob/{key}/change/")
        assert response.status_code == (302 if has_own_page else 404)


def test_a_themes_model_admin_is_the_base_of_the_pages() -> None:
    class Themed(admin.ModelAdmin):  # type: ignore[type-arg]
        pass

    site = admin.AdminSite(name="themed")
    register(site, Themed)
    register(site, Themed)  # Once more is no error.
    assert isinstance(site._registry[Queue], Themed)


@pytest.fixture
def unfold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve the pages on a site of django-unfold, if it is installed."""
    pytest.importorskip("unfold")
    # It puts a site of its own here when it is installed, without any of the registered models.
    monkeypatch.setattr(admin, "site", admin.site)
    monkeypatch.setattr(admin.sites, "site", admin.sites.site)
    # Its pages replace these in Django when they show a form.
    for name in ("AdminForm", "Fieldline"):
        monkeypatch.setattr(helpers, name, getattr(helpers, name))
    installed = ["unfold", *settings.INSTALLED_APPS]
    # The engine of the templates keeps the folders of the apps.
    engine = {**settings.TEMPLATES[0], "NAME": "with-unfold"}
    with override_settings(INSTALLED_APPS=installed, TEMPLATES=[engine]):
        site = import_module("unfold.sites").UnfoldAdminSite(name="themed")
        register(site, import_module("unfold.admin").ModelAdmin)
        monkeypatch.setattr("tests.admin.site.urlpatterns", [path("back/office/", site.urls)])
        with override_settings(ROOT_URLCONF="tests.admin.site"):
            yield


@pytest.mark.once
@pytest.mark.django_db
@pytest.mark.usefixtures("unfold")
def test_in_unfold_a_page_says_what_it_is_about_and_has_the_navigation_and_the_themes_forms() -> (
    None
):
    fill(1)
    client = root()
    for page in ("queue/", "queue/queue-0/change/", "worker/worker-0/change/", "apikey/add/"):
        text = client.get(f"/back/office/django_ojs/{page}").content.decode()
        assert text.count('id="ojs-navigation"') == 1, page
        if "change" in page:
            assert f'<h1 class="ojs-title">{page.split("/")[1]}</h1>' in text
    # The form of the last page: Unfold's classes are on its inputs.
    assert re.search(r'<input type="text" name="name" class="[^"]*border-base', text)
