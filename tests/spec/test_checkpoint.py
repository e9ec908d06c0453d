"""What a checkpoint may hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from django_ojs.extensions.checkpoints.spec import MAX_BYTES, encode
from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge
from tests.cases import together


@together("state", [{"row": 5}, [1, 2], "here", 7, 0.5, True, None, {}])
def test_a_state_is_any_value_of_json(state: Any) -> None:
    assert encode(state)


@pytest.mark.parametrize("state", [datetime.now(UTC), {"at": object()}, float("nan"), 2**60])
def test_what_json_cannot_represent_is_rejected(state: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        encode(state)
    assert caught.value.details["field"].startswith("state")


def test_the_integers_of_a_site_that_is_all_python_are_exact() -> None:
    assert encode({"row": 2**60}, exact_integers=True) == '{"row":1152921504606846976}'


@pytest.mark.requirement("DUR-006")
def test_the_largest_state_has_one_mebibyte_as_json() -> None:
    assert MAX_BYTES == 1_048_576
    encode("é" * (MAX_BYTES // 2 - 1))
    with pytest.raises(PayloadTooLarge) as caught:
        encode("é" * (MAX_BYTES // 2))
    assert caught.value.details["actual_bytes"] == MAX_BYTES + 2
    assert caught.value.details["max_bytes"] == MAX_BYTES
    assert "reference" in (caught.value.hint or "")
