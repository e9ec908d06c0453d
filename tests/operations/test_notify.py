"""What a process remembers of the notifications that it has sent."""

from __future__ import annotations

import pytest

from django_ojs.storage import notify
from django_ojs.storage.notify import Throttle

pytestmark = pytest.mark.once


def test_names_that_may_be_notified_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(notify.time, "monotonic", lambda: now)
    monkeypatch.setattr(notify, "_MOST_REMEMBERED", 10)
    throttle = Throttle()
    for number in range(100):
        now += notify.INTERVAL
        assert throttle.due("ojs", [f"q{number}"]) == [f"q{number}"]
    assert len(throttle._sent) <= 12
    assert throttle.due("ojs", ["q99"]) == [], "it was notified just now"
