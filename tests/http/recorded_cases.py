"""The cases that Schemathesis made for an API document, kept for the next run.

To make them takes several times as long as to send them, and they are the same until the document,
the packages or the test change: all of that is in the name of the folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from schemathesis.core import NOT_SET
from schemathesis.core.parameters import DelimitedValue
from schemathesis.generation.case import Case

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".hypothesis" / "schemathesis"
PACKAGES = ("schemathesis", "hypothesis", "jsonschema_rs")
FIELDS = (
    *("method", "path", "path_parameters", "headers", "cookies", "query", "body"),
    *("media_type", "multipart_content_types", "meta"),
)
#: Documents whose cases are kept: as many as branches that somebody works on at a time.
KEPT = 4


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> str | None:
        return "not set" if obj is NOT_SET else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, DelimitedValue):
            return DelimitedValue, (str(obj), obj.encoded)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: str) -> Any:
        return NOT_SET


class RecordedCases:
    """The cases of each operation of a schema, where all of them are known."""

    def __init__(self, schema: Any, *made_by: object) -> None:
        self.schema = schema
        self.labels = [result.ok().label for result in schema.get_all_operations()]
        parts = [
            *(json.dumps(schema.raw_schema, sort_keys=True), sys.version, repr(made_by)),
            *(version(name) for name in PACKAGES),
            Path(__file__).read_text(),
        ]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        self.folder = FOLDER / digest[:24]

    def _file(self, label: str) -> Path:
        return self.folder / hashlib.sha256(label.encode()).hexdigest()[:24]

    def complete(self) -> bool:
        return all(self._file(label).is_file() for label in self.labels)

    def of(self, label: str) -> list[Any]:
        """Return the cases of an operation, as they were before they were sent."""
        method, path = label.split(" ", maxsplit=1)
        operation = self.schema[path][method]
        found = []
        for fields in _Unpickler(io.BytesIO(self._file(label).read_bytes())).load():
            if fields["meta"] is not None:
                # Of strings, and so of the process that made them.
                fields["meta"]._initial_hashes.clear()
            found.append(Case(operation, fields.pop("method"), fields.pop("path"), **fields))
        return found

    def keep(self, label: str, cases: list[bytes]) -> None:
        """Keep the cases of an operation, which `frozen` has returned."""
        if not self.folder.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            by_age = sorted(FOLDER.iterdir(), key=lambda each: each.stat().st_mtime)
            for old in by_age[:-KEPT]:
                shutil.rmtree(old, ignore_errors=True)
        file = self._file(label)
        written = file.with_suffix(".part")
        written.write_bytes(_pickled([_unpickled(case) for case in cases]))
        written.replace(file)


def frozen(case: Any) -> bytes:
    """Return a case as it is now, before it is sent: what sends it may change it."""
    return _pickled({name: getattr(case, name) for name in FIELDS})


def _pickled(value: Any) -> bytes:
    into = io.BytesIO()
    _Pickler(into, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return into.getvalue()


def _unpickled(value: bytes) -> Any:
    return _Unpickler(io.BytesIO(value)).load()
