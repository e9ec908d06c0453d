"""The runner of curl commands notices what a page gets wrong."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.cases import together
from tests.docs import curl, shape
from tests.docs.pages import ROOT, Block

ONE, OTHER = "019539a4-b68c-7def-8000-1a2b3c4d5e6f", "01980000-b68c-7def-8000-1a2b3c4d5e6f"
MORNING, EVENING = "2025-06-01T08:55:00.000Z", "2026-02-12T20:30:15.123Z"


def console(text: str) -> Block:
    return Block(page=ROOT / "README.md", line=1, language="console", text=text)


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


def test_a_block_is_split_into_commands_and_responses() -> None:
    first, second, third = curl.commands(
        console(
            "$ curl -s http://127.0.0.1:8000/ojs/manifest \\\n    -H 'A: b'\n{}\n"
            "$ curl -d '{\n  \"a\": 1\n}' x\n"
            "$ KEY=$(python manage.py ojs_apikey list)\n"
        )
    )
    assert first.text.endswith("\\\n    -H 'A: b'")
    assert first.response == "{}"
    assert second.text == "curl -d '{\n  \"a\": 1\n}' x"
    assert (third.variable, third.response) == ("KEY", "")


def test_manage_py_is_left_to_the_other_runner() -> None:
    text = "$ python manage.py migrate\n$ OJS_DEMO_DATABASE=sqlite make demo\n"
    assert not any(command.is_for_us for command in curl.commands(console(text)))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.django_db(transaction=True)
class TestAgainstAServer:
    def run(self, live_server: LiveServer, text: str) -> None:
        shell = curl.Shell(url=live_server.url, key="ojs_none")
        for command in curl.commands(console(text)):
            shell.run(command)

    def test_a_page_that_is_right(self, live_server: LiveServer) -> None:
        self.run(
            live_server,
            f"""\
$ JOBS=http://127.0.0.1:8000/ojs/v1/jobs
$ curl -si $JOBS -H 'Content-Type: application/json' -d '{{"type": "a.b", "args": [1]}}'
HTTP/1.1 201 Created
Location: /ojs/v1/jobs/{ONE}
OJS-Version: 1.0

{{"job": {{"id": "{ONE}", "state": "available", "created_at": "{MORNING}", …}}}}
$ curl -s "$OJS_URL/ojs/v1/jobs/{ONE}"
{{"job": {{"id": "{ONE}", "args": [1], …}}}}
$ KEY=$(python manage.py ojs_apikey create --name docs --scope worker)
$ curl -s $OJS_URL/nothing/$KEY > /dev/null
""",
        )

    @pytest.mark.parametrize(
        "response",
        [
            "HTTP/1.1 404 Not Found\nOJS-Version: 1.0\n\n",
            "HTTP/1.1 200 OK\nX-Nothing: …\n\n",
            'HTTP/1.1 200 OK\n\n{"specversion": "0.9", …}',
            "HTTP/1.1 200 OK\n\n[]",
        ],
    )
    def test_a_page_that_is_wrong(self, live_server: LiveServer, response: str) -> None:
        with pytest.raises(AssertionError):
            self.run(live_server, f"$ curl -si http://127.0.0.1:8000/ojs/manifest\n{response}\n")

    def test_a_command_that_fails(self, live_server: LiveServer) -> None:
        with pytest.raises(AssertionError, match="ended with 22"):
            self.run(live_server, "$ curl -sf http://127.0.0.1:8000/ojs/v1/nothing\n")
