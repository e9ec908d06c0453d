"""Detect changes of the code, to reload a worker in development."""

import math
import time
from pathlib import Path

from django.utils.autoreload import iter_all_python_module_files

#: Seconds between two checks of the files.
INTERVAL = 1.0


class CodeWatch:
    """Calling it returns whether a file of a loaded Python module changed since the last check."""

    def __init__(self) -> None:
        self._modified: dict[Path, float] = {}
        self._checked_at = -math.inf
        self()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._checked_at < INTERVAL:
            return False
        self._checked_at = now
        changed = False
        for path in iter_all_python_module_files():
            try:
                modified = path.stat().st_mtime
            except OSError:
                continue
            changed |= self._modified.get(path, modified) != modified
            self._modified[path] = modified
        return changed
