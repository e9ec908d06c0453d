"""What a page shows is compared with what came."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import together
from tests.docs import shape
from tests.docs.pages import ROOT, Block
from tests.docs.reader import check, commands

ONE, OTHER = "019539a4-b68c-7def-8000-1a2b3c4d5e6f", "01980000-b68c-7def-8000-1a2b3c4d5e6f"
MORNING, EVENING = "2025-06-01T08:55:00.000Z", "2026-02-12T20:30:15.123Z"
HEAD = "HTTP/1.1 200 OK\r\nOJS-Version: 1.0\r\n\r\n"
BODY = '{"specversion": "1.0"}'


def differ(shown: str, came: Any) -> bool:
    try:
        shape.compare(shape.parse(shown), came, shape.Ids())
    except AssertionError:
        return True
    return False


@together(
    ("shown", "came"),
    [
        ('{"a": 1, "b": [true, null]}', {"a": 1, "b": [True, None]}),
        (f'{{"id": "{ONE}", "at": "{MORNING}"}}', {"id": OTHER, "at": EVENING}),
        ('{"a": 1, …}', {"a": 1, "b": 2}),
        ('{"a": …}', {"a": [1, 2]}),
        ('{…, "b": {"c": …, …}}', {"a": 1, "b": {"c": 1, "d": 2}}),
        ("[1, …]", [1, 2, 3]),
        ('["ojs_…"]', ["ojs_abc"]),
        ('["… and …"]', ["this and that"]),
        ('["03:38:12 done in 0.1 ms"]', ["23:59:59 done in 12 s"]),
    ],
)
def test_responses_that_are_alike(shown: str, came: Any) -> None:
    assert not differ(shown, came)


@together(
    ("shown", "came"),
    [
        ('{"a": 1}', {"a": 2}),
        ('{"a": 1}', {"a": True}),
        ('{"a": 1}', {"a": 1, "b": 2}),
        ('{"a": 1, …}', {"b": 2}),
        ('{"a": []}', {"a": {}}),
        ("[1]", [1, 2]),
        ("[1, 2, …]", [1]),
        ('["a"]', ["b"]),
        (f'["{MORNING}"]', ["yesterday"]),
        (f'["{ONE}"]', ["1"]),
        # One id twice in the page is one id twice in the response.
        (f'["{ONE}", "{ONE}"]', [ONE, OTHER]),
    ],
)
def test_responses_that_differ(shown: str, came: Any) -> None:
    assert differ(shown, came)


@together(
    "shown",
    [
        "HTTP/1.1 404 Not Found\nOJS-Version: 1.0\n\n",
        "HTTP/1.1 200 OK\nX-Nothing: …\n\n",
        'HTTP/1.1 200 OK\n\n{"specversion": "0.9", …}',
        "HTTP/1.1 200 OK\n\n[]",
    ],
)
def test_a_head_or_a_body_that_differs(shown: str) -> None:
    check("HTTP/1.1 200 OK\nOJS-Version: …\n\n{…}", HEAD + BODY, shape.Ids())
    with pytest.raises(AssertionError):
        check(shown, HEAD + BODY, shape.Ids())


def test_a_block_is_split_into_commands_and_responses() -> None:
    text = (
        "$ curl -s http://127.0.0.1:8000/ojs/manifest \\\n    -H 'A: b'\n{}\n"
        "$ curl -d '{\n  \"a\": 1\n}' x\n"
        "$ KEY=$(python manage.py ojs_apikey list)\n"
    )
    block = Block(page=ROOT / "README.md", line=1, language="console", text=text)
    first, second, third = commands(block)
    assert first.text.endswith("\\\n    -H 'A: b'")
    assert first.response == "{}"
    assert second.text == "curl -d '{\n  \"a\": 1\n}' x"
    assert (third.text, third.response) == ("KEY=$(python manage.py ojs_apikey list)", "")
