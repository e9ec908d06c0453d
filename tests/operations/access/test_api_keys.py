"""API keys: what is stored of them, who is let in by them, and until when."""

from __future__ import annotations

import hmac
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.extension import Actor
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import ActorKind, ApiKey
from django_ojs.operations.access import api_keys, key_expiry, operator
from django_ojs.spec.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    TokenExpired,
    Unauthenticated,
)
from django_ojs.spec.scopes import Scope, complete
from django_ojs.storage import database
from tests.cases import together
from tests.other_session import Other, open_transaction, until_one_waits
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def make(**values: Any) -> tuple[ApiKey, str]:
    return api_keys.create(**({"name": "billing", "scopes": ["producer"]} | values))


def turn_back(key: ApiKey, **moments: datetime | None) -> None:
    ApiKey.objects.filter(pk=key.pk).update(**moments)


def test_the_secret_is_256_bits_and_stored_as_its_hash_alone() -> None:
    key, text = make()
    assert re.fullmatch(r"ojs_[a-z0-9]{10}_[A-Za-z0-9]{43}", text)
    assert 62**api_keys.SECRET_LENGTH >= 2**256
    secret = text.rpartition("_")[2]
    for value in ApiKey.objects.values_list().get():
        assert secret not in str(value)
    assert key.prefix in text


def test_two_keys_have_nothing_in_common() -> None:
    first, second = make()[1], make()[1]
    assert first.split("_")[1:] != second.split("_")[1:]
    assert first.split("_")[2] != second.split("_")[2]


def test_a_key_is_found_with_its_scopes_and_queues() -> None:
    _, text = make(scopes=["worker", "producer"], queues=["b", "a", "b"])
    found = api_keys.find(text)
    assert api_keys.scopes_of(found) == {Scope.PRODUCER, Scope.WORKER}
    assert found.queues == ["a", "b"]


@together(
    "spoil",
    [
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text[:-1],
        lambda text: text + "A",
        lambda text: text.replace("ojs_", "ojs_x", 1),
        lambda text: "ojs_0000000000_" + text[15:],
        lambda text: text + "\n",
        lambda text: "ojs_\x00_é",
        lambda text: "ojs_",
        lambda text: "",
    ],
    ids=["wrong", "short", "long", "odd prefix", "unknown prefix", "newline", "bytes", "mark", ""],
    undo=True,
)
def test_whatever_is_wrong_with_a_key_the_error_is_the_same(spoil: Any) -> None:
    _, text = make()
    with pytest.raises(Unauthenticated) as caught:
        api_keys.find(spoil(text))
    assert type(caught.value) is Unauthenticated
    assert (caught.value.message, caught.value.details) == ("The API key is not valid.", {})


@pytest.mark.parametrize("presented", ["ojs_0000000000_" + "a" * 43, "nonsense"])
def test_a_key_that_is_not_there_costs_the_same_look_and_the_same_comparison(
    presented: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = make()
    compared: list[tuple[int, int]] = []
    same = hmac.compare_digest

    def note(a: str, b: str) -> bool:
        compared.append((len(a), len(b)))
        return same(a, b)

    monkeypatch.setattr(hmac, "compare_digest", note)
    for text in (presented, f"ojs_{key.prefix}_" + "a" * 43):
        with (
            CaptureQueriesContext(database.connection()) as queries,
            pytest.raises(Unauthenticated),
        ):
            api_keys.find(text)
        assert len(queries) == 1
    assert compared == [(64, 64), (64, 64)]


def test_a_key_expires_by_the_clock_of_the_database() -> None:
    key, text = make(expires=DAY)
    assert key.expires_at is not None
    assert abs(key.expires_at - key.created_at - DAY) < timedelta(minutes=1)
    assert api_keys.find(text).pk == key.pk
    turn_back(key, expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(TokenExpired, match="is expired"):
        api_keys.find(text)


def test_who_does_not_hold_the_secret_does_not_learn_that_the_key_has_expired() -> None:
    key, text = make(expires=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(TokenExpired):
        api_keys.find(text)
    with pytest.raises(Unauthenticated) as caught:
        api_keys.find(f"ojs_{key.prefix}_" + "a" * 43)
    assert type(caught.value) is Unauthenticated


def test_a_revoked_key_works_no_more_and_the_others_do() -> None:
    (gone, text), (_, other) = make(), make()
    first = api_keys.revoke(gone.prefix).revoked_at
    with pytest.raises(TokenExpired, match="is revoked"):
        api_keys.find(text)
    assert api_keys.find(other)
    assert api_keys.revoke(gone.prefix).revoked_at == first


def test_revoking_a_key_that_is_not_there_says_so() -> None:
    with pytest.raises(NotFound):
        api_keys.revoke("0000000000")


def test_a_replaced_key_works_until_its_grace_ends() -> None:
    old, old_text = make(scopes=["worker"], queues=["a"], expires=30 * DAY)
    new, new_text = api_keys.replace(old.prefix, grace=DAY)
    assert api_keys.find(old_text).pk == old.pk
    assert api_keys.find(new_text).pk == new.pk
    assert (new.name, new.scopes, new.queues) == (old.name, ["worker"], ["a"])
    old.refresh_from_db()
    assert new.expires_at is not None
    assert old.expires_at is not None
    assert abs(new.expires_at - new.created_at - 30 * DAY) < timedelta(minutes=1)
    assert abs(old.expires_at - new.created_at - DAY) < timedelta(minutes=1)


def test_a_grace_never_prolongs_a_key() -> None:
    old, _ = make(expires=timedelta(hours=1))
    before = old.expires_at
    api_keys.replace(old.prefix, grace=DAY)
    old.refresh_from_db()
    assert old.expires_at == before


def test_a_key_that_works_no_more_is_not_replaced() -> None:
    for values in ({}, {"expires": datetime(2020, 1, 1, tzinfo=UTC)}):
        key, _ = make(**values)
        if not values:
            api_keys.revoke(key.prefix)
        with pytest.raises(InvalidRequest, match="has expired or was revoked"):
            api_keys.replace(key.prefix)
    with pytest.raises(NotFound):
        api_keys.replace("0000000000")
    assert ApiKey.objects.count() == 2


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_two_keys_of_one_principal_that_are_replaced_at_once_make_one_key() -> None:
    old, _ = make()
    latest, _ = api_keys.replace(old.prefix)
    with Other() as other:
        with transaction.atomic():
            new, _ = api_keys.replace(old.prefix, latest_known=latest.prefix)
            second = other.do(lambda: api_keys.replace(latest.prefix, latest_known=latest.prefix))
            until_one_waits(second)
        with pytest.raises(Conflict, match=f"replaced by {new.prefix}"):
            second.result(BOUND)
    assert ApiKey.objects.count() == 3


@pytest.mark.django_db(transaction=True)
def test_use_is_noted_once_a_minute() -> None:
    key, text = make()
    api_keys.find(text)
    key.refresh_from_db()
    first = key.last_used_at
    assert first is not None
    with CaptureQueriesContext(database.connection()) as queries:
        api_keys.find(text)
    assert len(queries) == 1
    turn_back(key, last_used_at=first - DAY)
    with CaptureQueriesContext(database.connection()) as queries:
        api_keys.find(text)
    assert len(queries) > 1
    key.refresh_from_db()
    assert key.last_used_at is not None
    assert key.last_used_at > first - DAY / 24


@pytest.mark.django_db(transaction=True)
def test_use_is_noted_after_the_transaction_of_the_request_so_that_no_lock_is_held() -> None:
    key, text = make()
    with transaction.atomic():
        with CaptureQueriesContext(database.connection()) as queries:
            api_keys.find(text)
        assert len(queries) == 1
    key.refresh_from_db()
    assert key.last_used_at is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql
def test_use_is_noted_without_waiting_for_whoever_is_changing_the_key() -> None:
    key, text = make()
    changed = ApiKey.objects.filter(pk=key.pk)
    with open_transaction(lambda: changed.update(name="another")) as commit, Other() as other:
        assert other.do(lambda: api_keys.find(text)).result(BOUND).pk == key.pk
        commit()
    key.refresh_from_db()
    assert (key.name, key.last_used_at) == ("another", None)
    api_keys.find(text)
    key.refresh_from_db()
    assert key.last_used_at is not None


@together(
    ("values", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "   "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"queues": ["Not a queue"]}, "queue"),
    ],
    undo=True,
)
def test_a_key_that_cannot_be_made_names_the_field(values: dict[str, Any], field: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make(**values)
    assert caught.value.details.get("field") == field
    assert ApiKey.objects.count() == 0


def test_a_scope_that_this_version_does_not_know_gives_no_right() -> None:
    key, text = make()
    ApiKey.objects.filter(pk=key.pk).update(scopes=["producer", "emperor", 7, None])
    assert api_keys.scopes_of(api_keys.find(text)) == {Scope.PRODUCER}


def test_the_audit_trail_has_the_prefix_and_never_the_secret() -> None:
    with operator.acting(Actor(kind=ActorKind.USER, name="ann")):
        key, text = make()
        api_keys.revoke(key.prefix)
        api_keys.revoke(key.prefix)
    entries = AuditEntry.primary.order_by("pk")
    assert [entry.action for entry in entries] == ["api_key.created", "api_key.revoked"]
    assert {entry.actor for entry in entries} == {"ann"}
    assert {entry.detail["key_prefix"] for entry in entries} == {key.prefix}
    assert text.rpartition("_")[2] not in str(entries.values_list())


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("read", "read"),
        ("producer", "producer"),
        ("worker", "worker"),
        ("operator", "operator producer read"),
        ("admin", "admin operator producer read worker"),
    ],
)
def test_the_permission_matrix_of_the_security_document(role: str, may: str) -> None:
    assert sorted(complete([Scope(role)])) == may.split()


@pytest.mark.django_db(transaction=True)
def test_the_last_use_of_a_key_that_has_ended_is_known() -> None:
    key, text = make()
    api_keys.find(text)
    api_keys.revoke(key.prefix)
    before = ApiKey.objects.get(pk=key.pk)
    assert before.rejected_at is None
    with pytest.raises(TokenExpired):
        api_keys.find(text)
    with pytest.raises(Unauthenticated):
        api_keys.find(text[:-1] + ("a" if text[-1] != "a" else "b"))
    after = ApiKey.objects.get(pk=key.pk)
    assert after.last_used_at == before.last_used_at
    assert after.rejected_at is not None
    # To the minute: a program that repeats its requests does not write with each.
    with pytest.raises(TokenExpired):
        api_keys.find(text)
    assert ApiKey.objects.get(pk=key.pk).rejected_at == after.rejected_at


def test_keys_that_need_nothing_hide_none_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_expiry, "MOST", 1)
    now = datetime.now(UTC)
    for made, ends in ((1, 2), (25, 5)):
        key, _ = make(expires=30 * DAY)
        ends_at = now + ends * DAY
        turn_back(key, created_at=now - made * DAY, expires_at=ends_at, last_used_at=now)
    (problem,) = key_expiry.problems()
    assert problem.id == key.pk


@pytest.mark.django_db(transaction=True)
def test_a_key_in_use_that_is_about_to_expire_needs_an_operator() -> None:
    ending, text = make(expires=30 * DAY)
    make(expires=5 * DAY)  # Nothing uses it.
    api_keys.find(text)
    assert key_expiry.problems() == []
    now = datetime.now(UTC)
    turn_back(ending, created_at=now - 25 * DAY, expires_at=now + 5 * DAY)
    (problem,) = key_expiry.problems()
    assert (problem.prefix, problem.status, problem.rejected_at) == (ending.prefix, "active", None)
    # A shorter lifetime: in its last quarter.
    turn_back(ending, created_at=now - DAY, expires_at=now + 5 * DAY)
    assert key_expiry.problems() == []
    # Its programs have a new key; one of them does not use it.
    turn_back(ending, created_at=now - 25 * DAY, last_used_at=now - DAY / 24 / 2)
    new, _ = api_keys.replace(ending.prefix)
    assert key_expiry.problems() == []
    turn_back(new, created_at=now - DAY / 24)
    (problem,) = key_expiry.problems()
    assert (problem.prefix, problem.replaced_by) == (ending.prefix, new.prefix)
    turn_back(new, revoked_at=now)
    (problem,) = key_expiry.problems()
    assert problem.replaced_by is None
    turn_back(new, revoked_at=None)
    turn_back(ending, expires_at=now - DAY)
    assert key_expiry.problems() == []
    with pytest.raises(TokenExpired):
        api_keys.find(text)
    (problem,) = key_expiry.problems()
    assert (problem.status, problem.rejected_at is not None) == ("expired", True)
    turn_back(ending, rejected_at=now - DAY)
    assert key_expiry.problems() == []


def test_a_key_that_is_replaced_again_keeps_its_lifetime() -> None:
    # Without its new secret, an operator replaces the old key once more.
    key, _ = api_keys.create(name="shop", scopes=["read"])
    for _ in range(2):
        new, _ = api_keys.replace(key.prefix, grace=timedelta(hours=1))
        assert new.expires_at is None
    key, _ = api_keys.create(name="shop", scopes=["read"], expires=timedelta(days=30))
    for _ in range(2):
        new, _ = api_keys.replace(key.prefix, grace=timedelta(hours=1))
        assert new.expires_at is not None
        assert new.expires_at - new.created_at > timedelta(days=29)
