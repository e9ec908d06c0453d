"""API keys in the Django admin: shown once; users can grant only scopes that they have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import translation

from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import ApiKey
from django_ojs.operations.access import api_keys
from django_ojs.spec.errors import TokenExpired
from tests.admin.users import root, staff
from tests.cases import together
from tests.model_factories import ApiKeyFactory
from tests.threads import at_once

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LIST = "/admin/django_ojs/apikey/"
ADD = f"{LIST}add/"
FORM = {"name": "billing", "scopes": ["producer"], "queues": "b a\nb", "expires_at_0": ""}
KEY = re.compile(r"ojs_[a-z0-9]{10}_[A-Za-z0-9]{43}")


def page_of(key: ApiKey) -> str:
    return f"{LIST}{key.pk}/change/"


def test_a_new_key_is_shown_in_the_response_and_nowhere_after() -> None:
    client = root("ann")
    response = client.post(ADD, FORM)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    (text,) = set(KEY.findall(response.content.decode()))
    key = api_keys.find(text)
    assert (key.name, key.scopes, key.queues) == ("billing", ["producer"], ["a", "b"])
    secret = text.rpartition("_")[2]
    assert secret not in str(response.cookies)
    for url in (LIST, page_of(key), f"{LIST}{key.pk}/history/", "/admin/"):
        after = client.get(url)
        assert after.status_code == 200
        assert secret not in after.content.decode()
        assert key.digest not in after.content.decode()
    kept = [*Session.objects.values_list(), *AuditEntry.primary.values_list()]
    assert secret not in str(kept)
    assert all(secret not in str(session.get_decoded()) for session in Session.objects.all())
    entry = AuditEntry.primary.get()
    assert (entry.action, entry.detail) == ("api_key.created", {"key_prefix": key.prefix})


@pytest.mark.parametrize("button", ["_continue", "_addanother", "_popup", "_saveasnew"])
def test_no_way_of_saving_loses_the_new_key(button: str) -> None:
    response = root("ann").post(ADD, {**FORM, button: "1"})
    assert KEY.search(response.content.decode())


@together(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"queues": "Not-A-Queue"}, "queues"),
        ({"queues": "a" * 256}, "queues"),
        ({"expires_at_0": "soon", "expires_at_1": ""}, "expires_at"),
    ],
    undo=True,
)
def test_a_wrong_form_is_shown_again(change: dict[str, Any], field: str) -> None:
    response = root("ann").post(ADD, FORM | change)
    assert response.status_code == 200
    assert field in response.context["adminform"].form.errors
    assert ApiKey.objects.count() == 0


def test_a_key_can_be_changed_and_its_secret_stays() -> None:
    key, text = ApiKeyFactory(queues=["a"])
    client = root("ann")
    shown = client.get(page_of(key)).content.decode()
    assert key.prefix in shown
    assert 'name="digest"' not in shown
    change = {"name": "mail", "scopes": ["worker", "read"], "queues": "", "digest": "0" * 64}
    change |= {"expires_at_0": "2999-01-01", "expires_at_1": "00:00:00", "prefix": "x"}
    assert client.post(page_of(key), change).status_code == 302
    entry = AuditEntry.primary.get()
    assert (entry.action, entry.actor) == ("api_key.changed", "ann")
    assert set(entry.changes) == {"name", "scopes", "queues", "expires_at"}
    found = api_keys.find(text)
    assert (found.name, sorted(found.scopes), found.queues) == ("mail", ["read", "worker"], [])
    assert (found.prefix, found.expires_at) == (key.prefix, datetime(2999, 1, 1, tzinfo=UTC))


def test_an_unchanged_form_changes_nothing() -> None:
    key, _ = ApiKeyFactory(queues=["a", "b"])
    client = root("ann")
    form = client.get(page_of(key)).context["adminform"].form
    assert form["queues"].value() == "a\nb"
    data = {name: form[name].value() for name in ("name", "scopes", "queues")}
    data |= {"expires_at_0": "", "expires_at_1": ""}
    assert type(form)(data, instance=key).changed_data == []
    assert client.post(page_of(key), data).status_code == 302
    assert not AuditEntry.primary.exists()


def test_a_key_is_replaced_and_both_are_valid_until_the_grace_is_over() -> None:
    key, text = ApiKeyFactory(queues=["a"], expires=timedelta(days=30))
    client = root("ann")
    replace = f"{LIST}{key.pk}/replace/"
    assert replace in client.get(page_of(key)).content.decode()
    assert "count as the same program" in client.get(replace).content.decode()
    assert "grace" in client.post(replace, {"grace": "-1"}).context["form"].errors
    assert ApiKey.objects.count() == 1
    with translation.override("de"):
        response = client.post(replace, {"grace": "48"})
    assert "no-store" in response["Cache-Control"]
    (new_text,) = set(KEY.findall(response.content.decode()))
    assert f"Der alte Schlüssel {key.prefix} gilt bis" in response.content.decode()
    new = api_keys.find(new_text)
    assert (new.scopes, new.queues, new.principal) == (key.scopes, ["a"], key.principal)
    assert api_keys.find(text).pk == key.pk
    key.refresh_from_db()
    assert key.expires_at is not None
    assert abs(key.expires_at - new.created_at - timedelta(hours=48)) < timedelta(minutes=1)
    listed = client.get(LIST).content.decode()
    until = f"{key.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    assert f"active, replaced by {new.prefix}; valid until {until}" in listed
    assert new_text.rpartition("_")[2] not in listed
    entry = AuditEntry.primary.get()
    assert (entry.action, entry.object_id) == ("api_key.replaced", str(key.pk))
    assert entry.detail == {"key_prefix": key.prefix, "replaced_by": new.prefix}
    # A key that has ended is not made valid again.
    api_keys.revoke(key.prefix)
    assert "has expired or was revoked" in client.post(replace, {"grace": "48"}).content.decode()
    assert replace not in client.get(page_of(key)).content.decode()


def test_a_reload_of_the_page_that_shows_a_key_makes_no_second_one() -> None:
    key, _ = ApiKeyFactory()
    client = root("ann")
    forms = {ADD: FORM, f"{LIST}{key.pk}/replace/": {"grace": "48"}}
    for number, (address, form) in enumerate(forms.items(), start=2):
        page = client.get(address).content.decode()
        (token,) = re.findall(r'name="form_token" value="([^"]+)"', page)
        first = client.post(address, form | {"form_token": token})
        assert KEY.search(first.content.decode())
        assert ApiKey.objects.count() == number
        again = client.post(address, form | {"form_token": token}, follow=True)
        assert ApiKey.objects.count() == number
        assert not KEY.search(again.content.decode())
        assert again.redirect_chain == [(LIST, 302)]
        assert "was sent before" in again.content.decode()
    # Another form makes another key.
    page = client.get(ADD).content.decode()
    (token,) = re.findall(r'name="form_token" value="([^"]+)"', page)
    assert KEY.search(client.post(ADD, FORM | {"form_token": token}).content.decode())


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_the_same_time_replace_a_key_once() -> None:
    key, _ = ApiKeyFactory()
    client = root("ann")
    replace = f"{LIST}{key.pk}/replace/"
    page = client.get(replace).content.decode()
    fields = dict(re.findall(r'name="(form_token|latest_known)" value="([^"]+)"', page))
    form = {**fields, "grace": "48"}

    def click() -> str:
        clicking = Client()
        clicking.cookies = client.cookies
        return clicking.post(replace, form).content.decode()

    pages = at_once([click, click])
    new = ApiKey.objects.exclude(pk=key.pk).get()
    (rejected,) = (each for each in pages if not KEY.search(each))
    assert f"The key was replaced meanwhile, by {new.prefix}" in unescape(rejected)
    # The form is there again, for an operator who has not seen the new key.
    fields = dict(re.findall(r'name="(form_token|latest_known)" value="([^"]+)"', rejected))
    assert KEY.search(client.post(replace, {**fields, "grace": "48"}).content.decode())


def test_a_key_is_replaced_only_by_who_may_create_one_with_its_scopes() -> None:
    key, _ = ApiKeyFactory(scopes=["admin"])
    other, _ = ApiKeyFactory(scopes=["producer"])
    client = staff("view_apikey", "add_apikey", "change_apikey", "operate_job")
    replace = LIST + "{}/replace/"
    for address in (replace.format(key.pk), replace.format(key.pk) + "?x=1"):
        assert client.get(address).status_code == 403
        assert client.post(address, {"grace": "0"}).status_code == 403
    assert client.post(replace.format(other.pk), {"grace": "0"}).status_code == 200
    assert client.get(replace.format(4711)).status_code == 404
    assert ApiKey.objects.count() == 3


def test_revoke_ends_the_keys_that_were_chosen() -> None:
    (gone, text), (_, other) = ApiKeyFactory(), ApiKeyFactory()
    client = root("ann")
    chosen = {"action": "revoke", "_selected_action": [gone.pk]}
    assert "1 revoked." in client.post(LIST, chosen, follow=True).content.decode()
    with pytest.raises(TokenExpired):
        api_keys.find(text)
    assert api_keys.find(other)
    assert AuditEntry.primary.get().action == "api_key.revoked"
    assert "revoked" in client.get(LIST).content.decode()
    assert "1 skipped" in client.post(LIST, chosen, follow=True).content.decode()


def test_who_may_only_look_can_change_nothing() -> None:
    key, text = ApiKeyFactory()
    client = staff("view_apikey", "administer_job")
    shown = client.get(page_of(key)).content.decode()
    assert key.prefix in shown
    assert key.digest not in shown
    assert client.post(ADD, FORM).status_code == 403
    assert client.post(page_of(key), FORM).status_code == 403
    assert client.post(f"{LIST}{key.pk}/delete/", {"post": "yes"}).status_code == 403
    client.post(LIST, {"action": "revoke", "_selected_action": [key.pk]})
    assert api_keys.find(text).name == "shop"
    assert ApiKey.objects.count() == 1


def test_who_may_not_see_keys_sees_none() -> None:
    key, _ = ApiKeyFactory()
    client = staff("administer_job")
    assert client.get(LIST).status_code == client.get(page_of(key)).status_code == 403


def test_a_user_gives_away_no_scope_that_the_user_does_not_have() -> None:
    client = staff("add_apikey", "change_apikey", "operate_job")
    offered = client.get(ADD).context["adminform"].form.fields["scopes"].choices
    assert {value for value, _ in offered} == {"read", "producer", "operator"}
    rejected = client.post(ADD, FORM | {"scopes": ["producer", "admin"]})
    assert "scopes" in rejected.context["adminform"].form.errors
    assert ApiKey.objects.count() == 0
    assert KEY.search(client.post(ADD, FORM).content.decode())
    key = ApiKey.objects.get()
    client.post(page_of(key), FORM | {"scopes": ["worker"]})
    key.refresh_from_db()
    assert key.scopes == ["producer"]


def test_a_key_that_may_more_than_the_user_is_left_alone() -> None:
    key, text = ApiKeyFactory(scopes=["admin"], queues=["a"])
    client = staff("view_apikey", "change_apikey", "delete_apikey", "operate_job")
    assert client.post(f"{LIST}{key.pk}/delete/", {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [key.pk], "post": "yes"}
    assert client.post(LIST, chosen).status_code == 403
    assert client.post(page_of(key), FORM).status_code == 403
    response = client.post(LIST, {"action": "revoke", "_selected_action": [key.pk]}, follow=True)
    assert "0 revoked, 1 skipped." in response.content.decode()
    assert api_keys.find(text).queues == ["a"]


def test_a_user_without_scopes_makes_no_keys() -> None:
    assert staff("add_apikey").get(ADD).status_code == 403


def test_a_hostile_name_stays_text() -> None:
    name = '"><script>alert(1)</script>'
    client = root("ann")
    pages = [client.post(ADD, FORM | {"name": name})]
    pages += [client.get(LIST), client.get(page_of(ApiKey.objects.get()))]
    for page in pages:
        assert "<script>alert" not in page.content.decode()


def test_the_list_costs_the_same_for_one_key_and_for_many(
    django_assert_max_num_queries: Any,
) -> None:
    client = root("ann")
    for _ in range(5):
        ApiKeyFactory()
    client.get(LIST)  # The numbers of the navigation are reused.
    # Ten statements are those of the timeouts for the maintenance mode and for the list.
    with django_assert_max_num_queries(16):
        client.get(LIST)


PROJECT_WITHOUT_ADMIN = """
import sys
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_ojs"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    USE_TZ=True,
    SECRET_KEY="x",
)
import django
django.setup()
import django_ojs.models, django_ojs.operations.access.api_keys
from django.core.management import call_command
call_command("check")
assert "django_ojs.admin" not in sys.modules
assert "rest_framework" not in sys.modules
assert "django.contrib.admin" not in sys.modules
"""


def test_a_project_without_the_admin_and_the_api_loads_neither() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROJECT_WITHOUT_ADMIN],
        cwd=Path(__file__).parents[2],
        env={k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lookup", ["digest__startswith", "name", "prefix__regex"])
def test_no_address_asks_for_the_hash_of_a_key_letter_by_letter(lookup: str) -> None:
    key, _ = ApiKeyFactory(scopes=["read"])
    asked = {lookup: getattr(key, lookup.partition("__")[0])[:3]}
    client = staff("view_apikey")
    assert client.get(LIST, asked).status_code == 400
    assert client.get(LIST, {lookup: "\0"}).status_code == 400
