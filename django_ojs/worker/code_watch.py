"""See whether the code has changed, for a worker in development."""

import math
import time
from pathlib import Path

from django.utils.autoreload import iter_all_python_module_files

EVERY = 1.0


class CodeWatch:
    """Called now and then, says whether the code has changed since the last call.

    The code: the Python files of the loaded modules.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, float] = {}
        self._looked_at = -math.inf
        self()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at < EVERY:
            return False
        self._looked_at = now
        changed = False
        for path in iter_all_python_module_files():
            try:
                modified = path.stat().st_mtime
            except OSError:
                continue
            changed |= self._seen.get(path, modified) != modified
            self._seen[path] = modified
        return changed
