"""What a process remembers of the next starts in queues with limits."""

from __future__ import annotations

import time

import pytest

from django_ojs.storage.next_starts import NextStarts

pytestmark = pytest.mark.once


def test_a_time_that_has_passed_is_known_until_it_is_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    starts = NextStarts()
    assert not starts.are_known
    starts.note_full("a", 10.0, waits_for_end=False)
    assert (starts.are_known, starts.seconds()) == (True, 10.0)
    now = 111.0
    assert starts.are_known
    assert starts.are_known, "asking forgets nothing"
    assert starts.seconds() == 0.0
    assert (starts.are_known, starts.seconds()) == (False, None)
