"""The writer of lists: the same columns as a table and as JSON."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.core.management.base import BaseCommand
from django.utils import timezone

from django_ojs.command_line.console import Console
from django_ojs.command_line.lists import (
    ListColumn,
    ago,
    column,
    members,
    write_details,
    write_list,
)
from django_ojs.spec.times import format_timestamp
from tests.command_line.run import Terminal

KEY = UUID("019539a4-b68c-7def-8000-1a2b3c4d5e6f")
AT = datetime(2026, 1, 31, 14, 5, 9, tzinfo=UTC)


@dataclass
class Row:
    id: UUID
    names: list[str]
    count: int | None
    share: float
    made_at: datetime
    seen_at: datetime | None
    state: str
    note: str = ""


COLUMNS: list[ListColumn[Row]] = [
    column("id", "job"),
    column("names", "text"),
    column("count", "number"),
    column("share", "number", title="PER MINUTE"),
    column("made_at", "time", drops=1),
    column("seen_at", "duration"),
    ListColumn(
        name="state",
        value=lambda row: row.state,
        kind="state",
        words=lambda row: "is paused",
    ),
    ListColumn(name="doubled", value=lambda row: (row.count or 0) * 2, only="table"),
    *members("note"),
]


def rows() -> list[Row]:
    seen = timezone.now() - timedelta(hours=2)
    return [
        Row(KEY, ["a", "b"], 1200, 0.75, AT, seen, "paused"),
        Row(KEY, [], None, 3.0, AT, None, "active", note="x"),
    ]


def written(found: list[Row], out: io.StringIO, **options: bool) -> tuple[str, bool]:
    console = Console(BaseCommand(stdout=out, stderr=io.StringIO()), **options)
    is_table = write_list(console, "rows", COLUMNS, found, none="There are none.", total=2)
    return out.getvalue(), is_table


def test_a_person_reads_a_table() -> None:
    text, is_table = written(rows(), io.StringIO())
    head, first, second = (re.split("  +", line) for line in text.splitlines())
    assert is_table
    assert head == [
        *("ID", "NAMES", "COUNT", "PER MINUTE", "MADE AT", "SEEN AT", "STATE", "DOUBLED"),
    ]
    made = ago(AT, timezone.now())
    assert made.startswith("in ") or made.endswith(" ago")
    assert first == [str(KEY), "a, b", "1,200", "0.8", made, "2h", "is paused", "2400"]
    assert second == [str(KEY), "-", "-", "3.0", made, "-", "is paused", "0"]


def test_a_program_gets_the_same_rows() -> None:
    found = rows()
    text, is_table = written(found, io.StringIO(), as_json=True)
    first, second = json.loads(text)["rows"]
    assert (is_table, json.loads(text)["total"]) == (False, 2)
    assert found[0].seen_at is not None
    assert first == {
        "id": str(KEY),
        "names": ["a", "b"],
        "count": 1200,
        "share": 0.75,
        "made_at": "2026-01-31T14:05:09.000Z",
        "seen_at": format_timestamp(found[0].seen_at),
        "state": "paused",
        "note": "",
    }
    assert (second["count"], second["seen_at"], second["note"]) == (None, None, "x")


def test_where_there_are_none_a_person_is_told_so() -> None:
    assert written([], io.StringIO()) == ("There are none.\n", False)
    assert json.loads(written([], io.StringIO(), as_json=True)[0])["rows"] == []


def test_on_a_terminal_a_state_has_its_colour_and_texts_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "130")
    found = rows()
    found[0].names = ["a-long-name"] * 20
    text, _is_table = written(found, Terminal())
    assert "\x1b[33mis paused\x1b[0m" in text
    assert "\x1b[34mis paused\x1b[0m" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, plain)) == 130
    assert plain[1].startswith("019539a4  ")
    assert "…" in plain[1]
    # Narrower, a column is left out; what cannot be left out is never cut.
    monkeypatch.setenv("COLUMNS", "80")
    found[0].state = "paused-by-somebody"
    text, _is_table = written(found, Terminal())
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, plain)) <= 80
    assert "MADE AT" not in plain[0]
    assert "is paused" in plain[1]


def test_ids_are_as_long_as_tells_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "130")
    found = rows()
    found[1].id = UUID("019539a4-b68c-7def-9000-1a2b3c4d5e6f")
    text, _is_table = written(found, Terminal(), no_color=True)
    shown = [line.split()[0] for line in text.splitlines()[1:]]
    assert shown == ["019539a4-b68c-7def-8", "019539a4-b68c-7def-9"]


def test_details_are_aligned_and_leave_out_what_has_no_value() -> None:
    out = io.StringIO()
    console = Console(BaseCommand(stdout=out))
    write_details(console, [("state", "active"), ("queue", ""), ("rescheduled until", "noon")])
    assert out.getvalue() == "  state             active\n  rescheduled until noon\n"
