"""Clients that OpenAPI Generator makes of the document work jobs, in three languages.

They need Java and the Python package openapi-generator-cli, and what their language needs.
`test_openapi_forms.py` always runs: it rejects what generators do not understand.

A client follows from the document, the programs here and the tools. It is made once for each of
these, which takes as long as hundreds of tests, and kept in pytest's cache (`make clean` empties
it). It works its job in every run: what the server answers is tested.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
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


def jar() -> Path:
    spec = importlib.util.find_spec("openapi_generator_cli")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("openapi-generator.jar")


def generate(language: str, folder: Path) -> None:
    """Make a client of the document that a server sends."""
    document = folder.with_name("openapi.json")
    document.write_text(json.dumps(DOCUMENT.read()))
    # Its own thread pools and compiled code are for servers that run for days.
    java = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", jar())
    run(*java, "generate", "-i", document, "-g", language, "-o", folder, cwd=folder.parent)


def python(folder: Path) -> None:
    generate("python", folder / "client")


def go(folder: Path) -> None:
    generate("go", folder / "client")
    for each in (folder / "client").glob("*_test.go"):
        each.unlink()
    shutil.rmtree(folder / "client/test", ignore_errors=True)
    (folder / "client/go.mod").unlink()
    (folder / "go.mod").write_text("module generated\n\ngo 1.18\n")
    shutil.copy(PROGRAMS / "main.go", folder)
    # Without a network: a client needs nothing beside the standard library.
    run("go", "build", "-o", "main", ".", cwd=folder, GOPROXY="off", GOFLAGS="-mod=mod")


def typescript(folder: Path) -> None:
    generate("typescript-fetch", folder / "client")
    shutil.copy(PROGRAMS / "main.ts", folder)
    # Not --strict: what is generated is written for TypeScript 4.9.
    options = ("--strictNullChecks", "--target", "es2020", "--module", "commonjs", "--outDir", "js")
    run("tsc", *options, "--lib", "es2020,dom", "main.ts", cwd=folder)


@dataclass(frozen=True)
class Language:
    """How a client is made and run, with the programs and the modules of Python that it needs."""

    make: Callable[[Path], None]
    command: Callable[[Path], tuple[object, ...]]
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


LANGUAGES = {
    "python": Language(
        make=python,
        command=lambda folder: (sys.executable, PROGRAMS / "client.py"),
        modules=("pydantic", "dateutil", "urllib3"),
    ),
    "go": Language(make=go, command=lambda folder: (folder / "main",), programs=("go",)),
    "typescript": Language(
        make=typescript,
        command=lambda folder: ("node", folder / "js/main.js"),
        programs=("node", "tsc"),
    ),
}


def digest(language: Language) -> str:
    """Return a name for what a client is made of."""
    found = hashlib.sha256(json.dumps(DOCUMENT.read(), sort_keys=True).encode())
    for file in (Path(__file__), *sorted(PROGRAMS.iterdir())):
        if file.is_file():
            found.update(file.read_bytes())
    for tool in (jar(), *filter(None, map(shutil.which, ("java", *language.programs)))):
        there = Path(tool).resolve()
        found.update(f"{there} {there.stat().st_size} {there.stat().st_mtime_ns}".encode())
    return found.hexdigest()[:16]


def made(name: str, language: Language, kept: Path) -> Path:
    """Return the folder with a client, which is made if there is none of the same."""
    folder = kept / f"{name}-{digest(language)}"
    if not folder.exists():
        for older in kept.glob(f"{name}-*"):
            shutil.rmtree(older)
        new = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=kept))
        language.make(new)
        new.rename(folder)
    return folder


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder that later runs find again, or one of this test where pytest keeps none."""
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    return cache.mkdir("generated-clients") if cache else tmp_path


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_generated_client_works_a_job(
    name: str, kept: Path, tmp_path: Path, live_server: LiveServer
) -> None:
    language = LANGUAGES[name]
    for program in language.programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    for module in language.modules:
        pytest.importorskip(module, reason=f"the Python package {module} is not installed")
    folder = made(name, language, kept)
    with override_settings(OJS={}):
        _, key = ApiKeyFactory(scopes=list(Scope))
        variables = {"OJS_URL": live_server.url, "OJS_API_KEY": key}
        command = language.command(folder)
        out = run(*command, cwd=tmp_path, GENERATED=str(folder / "client"), **variables)
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
