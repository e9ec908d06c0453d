"""`scripts/pictures`: its scene can be built, and each page that it photographs is there."""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.admin.users import at, root

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/pictures"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    # It sets variables for its own process.
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = spec_from_loader("pictures", SourceFileLoader("pictures", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # A dataclass looks its module up.
    monkeypatch.setitem(sys.modules, "pictures", module)
    spec.loader.exec_module(module)
    return module


def test_each_page_that_is_photographed_is_there(script: Any) -> None:
    now = timezone.now()
    client, statuses, names = root(), {}, []
    for each in script.scene(now):
        script.heartbeat(now)
        statuses[each.name] = client.get(at(each.address())).status_code
        names.append(each.name)
    assert set(statuses.values()) == {200}, statuses
    assert {f"{name}.png" for name in names} == {path.name for path in script.FOLDER.iterdir()}
