"""The statements of an extension: files in its own folder, in a subfolder for each database."""

from functools import cache
from pathlib import Path
from typing import Any, Final

from django_ojs.storage import database
from django_ojs.storage.dialects import sql_files
from django_ojs.storage.dialects.base import Dialect


class Statements:
    """The files `<database>/<name>.sql`, in which `{now}` is the time at which a statement began.

    They have the placeholders for states of `sql_files`, and those of `values`. A statement that
    several databases understand is in the folder `common`.
    """

    def __init__(self, folder: Path, **values: str) -> None:
        self._folder: Final = folder
        self._values: Final = tuple(values.items())

    def rows(self, name: str, values: Any, *, is_repeated: bool = False, **parts: str) -> list[Any]:
        """Execute a statement, completed with `parts`, and return its rows; see `Dialect.rows`.

        It is executed on the database of the jobs. With `is_repeated`, a worker's session may keep
        its plan.
        """
        statement = self.text(name)
        return database.dialect().rows(
            database.connection(),
            statement.format(**parts) if parts else statement,
            values,
            is_repeated=is_repeated,
        )

    def run(self, name: str, values: Any) -> None:
        """Execute a statement that returns no rows."""
        with database.connection().cursor() as cursor:
            cursor.execute(self.text(name), values)

    def text(self, name: str, dialect: Dialect | None = None) -> str:
        """Return a statement, for the database of the jobs or another one."""
        return _load(self._folder, dialect or database.dialect(), name, self._values)


@cache
def _load(folder: Path, dialect: Dialect, name: str, values: tuple[tuple[str, str], ...]) -> str:
    own = folder / dialect.name
    chosen = own if (own / f"{name}.sql").exists() else folder / "common"
    return sql_files.load(chosen, name, now=dialect.now, **dict(values))
