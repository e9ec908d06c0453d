"""The part of the schema that Django cannot express: functions, procedures and triggers."""

from importlib.resources import files
from typing import Any, Final

from django.db import migrations

_FOLDER: Final = files(__package__) / "sql"


class RunSQLFiles(migrations.RunSQL):
    """Run `sql/<vendor>/<name>.sql` on databases of that vendor; `drop.sql` reverses them all."""

    def __init__(self, vendor: str, *names: str) -> None:
        forwards = [text for name in names for text in statements(vendor, name)]
        super().__init__([*forwards], [*statements(vendor, "drop")])
        self.vendor = vendor
        self.names = names

    def deconstruct(self) -> Any:
        return (type(self).__name__, [self.vendor, *self.names], {})

    def database_forwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: Any, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, *states)


def statements(vendor: str, name: str) -> list[str]:
    """Return the statements of a file. A blank line separates two, and none contains one."""
    text = (_FOLDER / vendor / f"{name}.sql").read_text(encoding="utf-8")
    parts = [part.strip() for part in text.split("\n\n")]
    return [part for part in parts if not all(line.startswith("--") for line in part.splitlines())]
