"""The number of a parcel is the same in both languages."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from example_project.demo import node
from example_project.shop.labels import check_digit, tracking

NODE_UNAVAILABLE = node.unavailable_reason()
REFERENCES = [*(f"CK-2026-{number:05}" for number in range(50)), "Zażółć", ""]


@pytest.mark.skipif(bool(NODE_UNAVAILABLE), reason=NODE_UNAVAILABLE or "Node is installed")
def test_python_and_node_agree() -> None:
    handlers = node.WORKER.with_name("handlers.mjs").as_uri()
    script = (
        f"const {{ tracking }} = await import({json.dumps(handlers)});"
        f"console.log(JSON.stringify({json.dumps(REFERENCES)}.map(tracking)))"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [tracking(reference) for reference in REFERENCES]


def test_a_number_has_eight_digits_and_their_check_digit() -> None:
    # The example of the postal union's own standard.
    assert check_digit("47312482") == 9
    assert all(re.fullmatch(r"CK\d{9}BE", tracking(reference)) for reference in REFERENCES)
    assert len({tracking(reference) for reference in REFERENCES}) == len(REFERENCES)


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
