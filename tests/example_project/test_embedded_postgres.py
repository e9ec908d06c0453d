"""`DATABASE_URL` is read as people write it, and its secrets stay out of messages."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from example_project.embedded_postgres import database_settings, from_url


def test_a_url_of_ones_own_is_percent_decoded() -> None:
    found = from_url("postgresql://ann:p%40ss%2Fword@db.example.com:6432/shop")
    assert found["ENGINE"] == "django.db.backends.postgresql"
    assert (found["USER"], found["PASSWORD"]) == ("ann", "p@ss/word")
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("db.example.com", 6432, "shop")


def test_a_socket_folder_may_be_the_host() -> None:
    assert from_url("postgresql://postgres@%2Ftmp%2Fsockets/shop")["HOST"] == "/tmp/sockets"


def test_sqlite_waits_for_its_turn_to_write() -> None:
    found = from_url("sqlite:////tmp/shop.sqlite3")
    assert found["NAME"] == "/tmp/shop.sqlite3"
    assert found["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


@pytest.mark.parametrize(
    "url", ["mysql://ann:secret@db/shop", "ann:secret", "postgres//secret", "oddity://secret"]
)
def test_another_url_is_rejected_without_being_shown(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"^DATABASE_URL: ") as caught:
        from_url(url)
    assert "secret" not in str(caught.value)


def test_a_url_wins_over_the_sqlite_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OJS_DEMO_DATABASE", "sqlite")
    monkeypatch.setenv("DATABASE_URL", "postgresql://ann@db/shop")
    assert database_settings()["NAME"] == "shop"
    monkeypatch.delenv("DATABASE_URL")
    assert database_settings()["ENGINE"] == "django.db.backends.sqlite3"
