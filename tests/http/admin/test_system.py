"""`/ojs/v1/admin/system`: maintenance mode and configuration."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.operations.maintenance import mode
from tests.cases import together
from tests.http.api import Api

pytestmark = pytest.mark.django_db

api = Api()
PATH = "admin/system/maintenance"


@pytest.mark.both
@pytest.mark.requirement("ADM-R004")
def test_maintenance_stops_fetch_and_takes_jobs() -> None:
    body = api.post(
        PATH,
        {"enabled": True, "reason": "Moving the database", "estimated_duration": "PT30M"},
    ).ok()
    assert (body["maintenance"], body["reason"]) == (True, "Moving the database")
    lasts = datetime.fromisoformat(body["estimated_end"]) - datetime.fromisoformat(
        body["enabled_at"]
    )
    assert abs(lasts - timedelta(minutes=30)) < timedelta(minutes=1)
    assert api.get(PATH).ok() == body
    api.push()
    assert api.fetch() == []
    assert api.post(PATH, {"enabled": False}).ok() == {
        "maintenance": False,
        "enabled": False,
    }
    assert len(api.fetch()) == 1


@pytest.mark.once
@together(
    ("body", "named"),
    [
        ({}, "enabled"),
        ({"enabled": None}, "enabled"),
        ({"enabled": "true"}, "enabled"),
        ({"enabled": 1}, "enabled"),
        ({"enabled": True, "reason": 5}, "reason"),
        ({"enabled": True, "reason": ""}, "reason"),
        ({"enabled": True, "reason": "x" * 1001}, "reason"),
        ({"enabled": True, "estimated_duration": "soon"}, "estimated_duration"),
        ({"enabled": True, "estimated_duration": "PT0S"}, "estimated_duration"),
        ({"enabled": True, "estimated_duration": 30}, "estimated_duration"),
        ({"enabled": False, "estimated_duration": ""}, "estimated_duration"),
    ],
    undo=True,
)
def test_what_is_ill_formed_is_400_and_changes_nothing(body: dict[str, Any], named: str) -> None:
    error = api.post(PATH, body).error(400, "invalid_request")
    assert named in error["message"]
    assert not mode.status().enabled


def test_the_configuration_shows_what_is_not_sensitive() -> None:
    body = api.get("admin/system/config").ok()
    assert body["implementation"]["name"] == "django_ojs"
    assert body["backend"] in ("postgresql", "sqlite", "mariadb")
    assert body["maintenance"] is False
    shown = body["configuration"]
    assert (shown["visibility_timeout"], shown["keep_completed"]) == ("PT30M", "PT168H")
    assert shown["default_retry"]["max_attempts"] == 3
    assert shown["max_envelope_bytes"] == 10 * 1024 * 1024


@override_settings(
    OJS={
        "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"],
        "ENQUEUE_MIDDLEWARE": ["tests.middleware.samples.Anything"],
    }
)
def test_no_path_of_the_code_is_shown() -> None:
    text = str(api.get("admin/system/config").ok())
    assert "AllowAny" not in text
    assert "Anything" not in text
