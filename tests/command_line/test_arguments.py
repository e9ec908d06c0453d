"""Numbers in the arguments of commands."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from django_ojs.command_line.subcommand import whole_number
from tests.cases import together

pytestmark = pytest.mark.once


@together(("text", "number"), [("1", 1), ("1000000", 1_000_000), ("0" * 20 + "15", 15)])
def test_a_whole_number(text: str, number: int) -> None:
    assert whole_number(text) == number


@together("text", ["0", "000", "1000001", "0" * 9 + "2000000", "-1", "1.0", "", "²"])
def test_what_is_none_is_rejected(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="from 1 to 1000000"):
        whole_number(text)
