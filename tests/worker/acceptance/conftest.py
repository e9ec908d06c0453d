"""Workers as processes, ended whatever happens in the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.worker.processes import Tree


class Start(Protocol):
    """Starts a worker; see `Tree`."""

    def __call__(
        self, *arguments: str, ojs: dict[str, Any] | None = None, **values: Any
    ) -> Tree: ...


@pytest.fixture
def start(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a worker on the databases of this test."""
    trees: list[Tree] = []

    def begin(*arguments: str, ojs: dict[str, Any] | None = None, **values: Any) -> Tree:
        output = tmp_path / f"worker-{len(trees)}.log"
        tree = Tree(process_environment, output, *arguments, ojs=ojs, **values)
        trees.append(tree)
        return tree

    try:
        yield begin
    finally:
        for tree in trees:
            tree.kill()
            tree.forgotten()
            # Pytest shows it when the test has failed.
            print(f"--- worker {tree.pid}, exit code {tree.process.returncode}\n{tree.log}")
