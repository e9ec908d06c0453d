"""How large the tests are that come in two sizes: the suite's, and that of `make faults`.

Mark such a test `sized`, so that `make faults` finds it, or `make fuzz` in `tests/http`.
"""

from __future__ import annotations

import os

FULL = os.environ.get("OJS_FAULTS") == "full"
