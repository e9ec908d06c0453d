"""The health file of a worker, and the probe that reads it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_ojs.worker import health
from django_ojs.worker.health import HealthFile, main, problem
from tests.worker.processes import ROOT, Tree
from tests.worker.waiting import eventually


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "health")


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_worker_that_writes_is_alive_and_ready_when_it_says_so(path: str, is_ready: bool) -> None:
    HealthFile(path).write(is_ready=is_ready)
    assert problem(path) is None
    assert (problem(path, ready=True) is None) == is_ready
    assert (main([path]), main(["--ready", path])) == (0, 0 if is_ready else 1)


def test_it_is_written_once_a_second(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(health.time, "monotonic", lambda: now)
    file = HealthFile(path)
    file.write(is_ready=False)
    file.write(is_ready=True)
    assert problem(path, ready=True) is not None
    now += health.WRITE_INTERVAL
    file.write(is_ready=True)
    assert problem(path, ready=True) is None
    file.remove()
    file.remove()
    assert "no worker has started" in (problem(path) or "")


@pytest.mark.parametrize(("passed", "words"), [(61, "61 s old"), (-5, "does not run"), (59, None)])
def test_a_worker_that_does_not_write_is_not_alive(
    path: str, passed: float, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(health.time, "monotonic", lambda: now)
    HealthFile(path).write(is_ready=True)
    now += passed
    found = problem(path)
    assert found is None if words is None else words in str(found)


@pytest.mark.parametrize("text", ["", "hello", "x ready", "1 2 3"])
def test_another_file_is_no_health_file(
    path: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(path).write_text(text)
    assert main([path]) == 1
    assert "is no health file" in capsys.readouterr().err


@pytest.mark.django_db(transaction=True)
@pytest.mark.once
def test_a_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("ojs_worker", "--health-file", str(tmp_path / "missing" / "health"))


@pytest.mark.smoke
def test_the_probe_of_a_real_worker(process_environment: dict[str, str], tmp_path: Path) -> None:
    path = str(tmp_path / "health")

    def probe(*arguments: str) -> Any:
        # Without settings, and without Django: `-S` leaves the installed packages out.
        command = [sys.executable, "-S", "-m", "django_ojs.worker.health", path, *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, env={}).returncode

    worker = Tree(process_environment, tmp_path / "log", "--health-file", path)
    try:
        eventually(lambda: probe("--ready") == 0, "the worker is ready")
        assert probe() == 0
        worker.signal(signal.SIGSTOP)
        eventually(lambda: probe("--max-age", "1.5") == 1, "the worker is not alive")
        worker.signal(signal.SIGCONT)
        eventually(lambda: probe("--max-age", "1.5") == 0, "the worker is alive again")
        worker.process.terminate()
        assert worker.ends() == 0
        assert probe() == 1
    finally:
        worker.kill()
