"""The texts that the subcommands write."""

from __future__ import annotations

import pytest

from django_ojs.command_line.console import printable

NARROW, NO_BREAK = "\u202f", "\u00a0"


def test_spaces_of_all_widths_stay() -> None:
    text = f"12{NARROW}345 t\u00e2ches{NARROW}; \u00ab{NO_BREAK}abc{NO_BREAK}\u00bb\u3000\u2003x"
    assert printable(text) == text


@pytest.mark.parametrize(
    "character",
    [
        *("\x1b", "\n", "\r", "\0", "\x7f", "\x9b"),
        *("\u2028", "\u2029"),
        *("\u202e", "\u2066", "\u200b", "\ufeff"),
        *("\ue000", "\ud800", "\u0378"),
    ],
    ids=ascii,
)
def test_what_controls_a_terminal_is_replaced(character: str) -> None:
    assert printable(f"a{character}b{NARROW}c") == f"a?b{NARROW}c"
