"""Clients that OpenAPI Generator makes of the document work jobs, in three languages.

They need Java and the Python package openapi-generator-cli, and what their language needs.
`test_openapi_forms.py` always runs: it rejects what generators do not understand.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

from django_ojs.http.views.openapi import DOCUMENT
from django_ojs.spec.scopes import Scope
from tests.model_factories import ApiKeyFactory

PROGRAMS = Path(__file__).parent / "generated"
#: A machine with other work may need many times as long as an idle one: ten seconds.
LIMIT = 600


def _reason() -> str | None:
    """Return why no client can be generated here."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if importlib.util.find_spec("openapi_generator_cli") is None:
        return "the Python package openapi-generator-cli is not installed"
    return None


REASON = _reason()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.once,
    pytest.mark.timeout(2 * LIMIT),
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(REASON is not None, reason=REASON or "it is installed"),
]


def run(*command: object, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


def generate(language: str, folder: Path, **options: str) -> None:
    """Make a client of the document that a server sends."""
    spec = importlib.util.find_spec("openapi_generator_cli")
    assert spec is not None
    assert spec.origin is not None
    jar = Path(spec.origin).with_name("openapi-generator.jar")
    document = folder.with_name("openapi.json")
    document.write_text(json.dumps(DOCUMENT.read()))
    more = [f"--additional-properties={name}={value}" for name, value in options.items()]
    # Its own thread pools and compiled code are for servers that run for days.
    java = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", jar)
    run(*java, "generate", "-i", document, "-g", language, "-o", folder, *more, cwd=folder.parent)


def python(folder: Path) -> list[object]:
    for module in ("pydantic", "dateutil", "urllib3"):
        pytest.importorskip(module, reason=f"the Python package {module} is not installed")
    generate("python", folder / "client")
    return [sys.executable, PROGRAMS / "client.py"]


def go(folder: Path) -> list[object]:
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    generate("go", folder / "client")
    for each in (folder / "client").glob("*_test.go"):
        each.unlink()
    shutil.rmtree(folder / "client/test", ignore_errors=True)
    (folder / "client/go.mod").unlink()
    (folder / "go.mod").write_text("module generated\n\ngo 1.18\n")
    shutil.copy(PROGRAMS / "main.go", folder)
    # Without a network: a client needs nothing beside the standard library.
    run("go", "build", "-o", "main", ".", cwd=folder, GOPROXY="off", GOFLAGS="-mod=mod")
    return [folder / "main"]


def typescript(folder: Path) -> list[object]:
    for program, name in (("node", "Node"), ("tsc", "The TypeScript compiler")):
        if shutil.which(program) is None:
            pytest.skip(f"{name} is not installed")
    generate("typescript-fetch", folder / "client")
    shutil.copy(PROGRAMS / "main.ts", folder)
    # Not --strict: what is generated is written for TypeScript 4.9.
    options = ("--strictNullChecks", "--target", "es2020", "--module", "commonjs", "--outDir", "js")
    run("tsc", *options, "--lib", "es2020,dom", "main.ts", cwd=folder)
    return ["node", folder / "js/main.js"]


@pytest.mark.parametrize("language", [python, go, typescript], ids=lambda each: each.__name__)
def test_a_generated_client_works_a_job(
    language: Callable[[Path], list[object]], tmp_path: Path, live_server: LiveServer
) -> None:
    command = language(tmp_path)
    with override_settings(OJS={}):
        _, key = ApiKeyFactory(scopes=list(Scope))
        variables = {"OJS_URL": live_server.url, "OJS_API_KEY": key}
        out = run(*command, cwd=tmp_path, GENERATED=str(tmp_path / "client"), **variables)
    found: dict[str, Any] = json.loads(out)
    key, *state = found.pop("pushed")
    assert state == ["available", 5]
    assert found == {
        "many": [1, "fails"],
        "fetched": [key, [{"to": "ada"}, 1], "fails"],
        "progress": 0.5,
        "acked": ["completed", True],
        "failed": ["discarded", "Boom"],
        "ended": ["completed", {"sent": True}],
        "listed": True,
        "workflow": ["order-1", "b"],
        "worker": "w",
        "rejected": "invalid_request",
    }
