"""Moments at which the demonstration kills a worker. Nothing happens at them elsewhere."""

import os
import signal
from pathlib import Path
from typing import Final

#: The variable with the folder where the moments are noted at which a process was killed.
FOLDER: Final = "SHOP_KILLED_AT"


def pass_by(moment: str) -> None:
    """Kill this process, the first time that one comes by here, where the demonstration says so."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    try:
        Path(folder, moment).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
