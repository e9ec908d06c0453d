"""`manage.py ojs_apikey`: the way to the first key."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from django_ojs.models import ApiKey
from django_ojs.operations.access import api_keys
from django_ojs.spec.errors import TokenExpired
from tests import fork_server
from tests.cases import together
from tests.factories import connected_to

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def run(*arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command("ojs_apikey", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def create(*arguments: str) -> tuple[ApiKey, str]:
    out, _ = run("create", "--name", "billing", "--scope", "producer", *arguments)
    text = out.strip()
    return api_keys.find(text), text


def test_create_prints_the_key_alone_and_says_that_this_was_the_only_time() -> None:
    out, err = run(
        *("create", "--name", "mail", "--scope", "producer", "--scope", "worker"),
        *("--queue", "email", "--queue", "sms", "--expires", "90d"),
    )
    text = out.removesuffix("\n")
    assert re.fullmatch(r"ojs_[a-z0-9]{10}_[A-Za-z0-9]{43}", text)
    key = api_keys.find(text)
    assert (key.name, key.scopes, key.queues) == ("mail", ["producer", "worker"], ["email", "sms"])
    assert key.expires_at is not None
    assert (key.expires_at - key.created_at).days in (89, 90)
    assert "not shown again" in err
    assert text.rpartition("_")[2] not in err


def test_list_shows_the_keys_and_no_secret() -> None:
    (alive, text), (gone, _) = create("--queue", "a"), create()
    api_keys.revoke(gone.prefix)
    out, _ = run("list")
    head, *rows = out.splitlines()
    assert head.split()[:3] == ["PREFIX", "NAME", "STATUS"]
    assert [row.split()[:5] for row in rows] == [
        [alive.prefix, "billing", "active", "producer", "a"],
        [gone.prefix, "billing", "revoked", "producer", "all"],
    ]
    assert text.rpartition("_")[2] not in out
    assert alive.digest not in out


def test_list_without_keys_says_so() -> None:
    out, err = run("list")
    assert out == ""
    assert "no API keys" in err


def test_revoke_ends_a_key() -> None:
    key, text = create()
    _, err = run("revoke", key.prefix)
    assert key.prefix in err
    with pytest.raises(TokenExpired):
        api_keys.find(text)


def test_replace_prints_a_new_key_and_says_until_when_the_old_one_is_valid() -> None:
    key, old = create()
    out, err = run("replace", key.prefix, "--grace", "2h")
    assert api_keys.find(out.strip()).pk != api_keys.find(old).pk
    assert "The old key is valid until 2" in err


@together(
    ("arguments", "says"),
    [
        (["revoke", "0000000000"], "no API key"),
        (["replace", "0000000000"], "no API key"),
        (["create", "--name", "a\tb", "--scope", "read"], "name: must be"),
        (["create", "--name", "a", "--scope", "read", "--queue", "Not A Queue"], "queue"),
        (["create", "--name", "a", "--scope", "root"], "invalid choice"),
        (["create", "--name", "a"], "--scope"),
        (["create", "--name", "a", "--scope", "read", "--expires", "soon"], "must be a duration"),
        (["create", "--name", "a", "--scope", "read", "--expires", "0s"], "must be a duration"),
        (["create", "--name", "a\udcff", "--scope", "read"], "is no text"),
        (["revoke", "\udcff"], "is no text"),
        ([], "ACTION"),
    ],
    undo=True,
)
def test_what_cannot_be_done_is_a_sentence(arguments: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=re.escape(says)):
        run(*arguments)
    assert ApiKey.objects.count() == 0


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "arguments",
    [
        ["ojs_apikey", "list"],
        ["ojs_apikey", "create", "--name", "a", "--scope", "read"],
        ["ojs_apikey", "revoke", "0000000000"],
        ["ojs_relay", "--once"],
    ],
    ids=" ".join,
)
def test_a_database_that_is_away_ends_a_command_with_its_reason(arguments: list[str]) -> None:
    with (
        connected_to({"NAME": "no_such_database"}),
        pytest.raises(CommandError, match=r"The database 'default' does not respond \(Operational"),
    ):
        call_command(*arguments, stdout=io.StringIO(), stderr=io.StringIO())


@pytest.mark.django_db(transaction=True)
def test_the_exit_codes(process_environment: dict[str, str]) -> None:
    def ends(*arguments: str) -> int:
        return fork_server.run(
            [sys.executable, "manage.py", "ojs_apikey", *arguments],
            env=process_environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=240,
        ).returncode

    assert ends("create", "--name", "a", "--scope", "read") == 0
    assert ends("revoke", "0000000000") == 1
    assert ends("create", "--name", "a", "--scope", "root") == 2
    assert ApiKey.objects.count() == 1


def test_the_help_teaches() -> None:
    from django.core.management import load_command_class

    text = load_command_class("django_ojs", "ojs_apikey").create_parser("m", "ojs_apikey")
    shown = text.format_help()
    for word in ("Authorization: Bearer", "producer (enqueue)", "ojs_apikey replace", "Exit codes"):
        assert word in shown
