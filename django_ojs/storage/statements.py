"""The statements of an extension: files in a folder of its own, one folder a database."""

from functools import cache
from pathlib import Path
from typing import Any, Final

from django_ojs.storage import database
from django_ojs.storage.dialects import sql_files


class Statements:
    """The files `<database>/<name>.sql`, in which `{now}` is the time at which a statement began.

    They have the placeholders of the states that those of the core have (see `sql_files`).
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder

    def rows(self, name: str, values: Any) -> list[Any]:
        """Execute a statement on the database of the jobs, and return its rows."""
        connection = database.connection()
        with connection.cursor() as cursor:
            cursor.execute(_load(self._folder, connection.vendor, name), values)
            return list(cursor.fetchall())


@cache
def _load(folder: Path, vendor: str, name: str) -> str:
    now = database.dialect().now
    return sql_files.load(str(folder / sql_files.folder_of(vendor)), name, now=now)
