"""The settings of the test suite on MySQL, for tools that take the name of a module.

`OJS_TEST_DATABASE=mysql` does the same for `tests.settings`.
"""

from __future__ import annotations

import os

os.environ["OJS_TEST_DATABASE"] = "mysql"

from tests.settings import *  # noqa: F403 - the variable decides what this imports
