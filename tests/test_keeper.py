"""What a keeper has started ends with the process that wanted it, in whatever way that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.keeper import Keeper, remove_at_the_end
from tests.worker.processes import ROOT
from tests.worker.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers adopt as Linux does")

#: A program with a child that has left its session and lost its parent, as servers do.
LEAVES_A_SERVER = ["sh", "-c", "setsid sh -c 'sleep 600 & echo $! > orphan' ; exec sleep 600"]


def _orphan(home: Path) -> psutil.Process:
    file = home / "orphan"
    eventually(lambda: file.exists() and file.read_text(), "the program has started")
    return psutil.Process(int(file.read_text()))


def test_all_descendants_end_when_it_is_closed(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, "program", LEAVES_A_SERVER)
    orphan = _orphan(tmp_path)
    assert orphan.ppid() == keeper.pid
    keeper.close()
    assert not orphan.is_running()


def test_a_stopped_program_ends_as_well(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, "program", LEAVES_A_SERVER)
    orphan = _orphan(tmp_path)
    orphan.suspend()
    keeper.close()
    assert not orphan.is_running()


def test_all_end_and_the_folder_goes_when_the_owner_is_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    code = (
        "import sys, time; from pathlib import Path;"
        f"from {Keeper.__module__} import Keeper, {remove_at_the_end.__name__} as remove;"
        "home = Path(sys.argv[1]); remover = remove(home);"
        "keeper = Keeper(home, 'program', sys.argv[2:]); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(home), *LEAVES_A_SERVER], cwd=ROOT
    ) as owner:
        orphan = _orphan(home)
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not orphan.is_running(), "the orphan has ended")
    eventually(lambda: not home.exists(), "its folder is removed")
