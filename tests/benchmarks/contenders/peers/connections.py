"""A connection for contenders without Django."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from tests.benchmarks.server import NAME_VARIABLE, URL_VARIABLE


@cache
def own() -> Any:
    """Return this process's connection to the contender's database, in autocommit."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    return psycopg.connect(
        make_conninfo(os.environ[URL_VARIABLE], dbname=os.environ[NAME_VARIABLE]),
        autocommit=True,
    )
