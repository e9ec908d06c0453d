"""The numbers of parcels, and of their collection, which is the same in both languages."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from example_project.demo import node
from example_project.shop.labels import check_digit, collection, parcels, tracking

NODE_UNAVAILABLE = node.unavailable_reason()
REFERENCES = [*(f"CK-2026-{number:05}" for number in range(50)), "Zażółć", ""]

PARCELS = [[tracking(name, parcel) for parcel in range(n % 5)] for n, name in enumerate(REFERENCES)]


@pytest.mark.skipif(bool(NODE_UNAVAILABLE), reason=NODE_UNAVAILABLE or "Node is installed")
def test_python_and_node_agree() -> None:
    handlers = node.WORKER.with_name("handlers.mjs").as_uri()
    script = (
        f"const {{ collection }} = await import({json.dumps(handlers)});"
        f"console.log(JSON.stringify({json.dumps(PARCELS)}.map(collection)))"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [collection(numbers) for numbers in PARCELS]


def test_a_number_has_eight_digits_and_their_check_digit() -> None:
    # The example of the postal union's own standard.
    assert check_digit("47312482") == 9
    numbers = {tracking(reference, parcel) for reference in REFERENCES for parcel in (1, 2)}
    assert all(re.fullmatch(r"CK\d{9}BE", number) for number in numbers)
    assert len(numbers) == 2 * len(REFERENCES)


def test_four_products_fit_into_a_parcel() -> None:
    assert [parcels(products) for products in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]


def program(folder: Path, version: str) -> None:
    file = folder / "node"
    file.write_text(f"#!/bin/sh\necho {version}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (None, "Node is not installed"),
        ("v16.20.2", "Node is older than 18"),
        ("what?", "Node is older than 18"),
        ("v18.0.0", ""),
        ("v24.1.0", ""),
    ],
)
def test_the_reason_why_node_is_unavailable_is_returned(
    version: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version is not None:
        program(tmp_path, version)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node.unavailable_reason() == reason
