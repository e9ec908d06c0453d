"""How a handler takes a payload, by the annotation of its parameter: as value, stream or file."""

import inspect
import io
from collections.abc import Iterable
from enum import Enum, auto
from typing import IO, Any, cast

from django_ojs.annotations import last_name
from django_ojs.extensions.payloads.reader import CHUNK, Reader


class PayloadStream(io.BufferedReader):
    """A payload as a binary stream, to be read once.

    With a checksum in its reference, the payload is received and verified before the handler is
    called (payload-limits §5.4). Without one it is read while it is received, and a wrong size
    raises at its end.
    """

    def __init__(self, source: io.RawIOBase) -> None:
        super().__init__(source, CHUNK)
        self.source = source

    def __del__(self) -> None:
        # Nothing refers to the stream any more, so the rest need not be read.
        if isinstance(getattr(self, "source", None), Reader):
            cast(Reader, self.source).abandon()
        super().__del__()


class UnverifiedPayloadStream(PayloadStream):
    """A payload as a binary stream, read while it is received, before its checksum is verified.

    Size and checksum are checked at the end: `read` then raises if one is wrong. What the handler
    has not read is read when it returns, and the job fails if size or checksum is wrong.
    """


class PayloadFile:
    """A payload in a temporary file, complete and checked. Removed when the handler returns."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self.size = size

    @property
    def path(self) -> str:
        return self._file.name

    def __fspath__(self) -> str:
        return self._file.name

    def open(self) -> IO[bytes]:
        return open(self._file.name, "rb")

    def close(self) -> None:
        """Remove the file. The worker calls this."""
        self._file.close()


class ParameterKind(Enum):
    """How a parameter takes a payload."""

    VALUE = auto()
    STREAM = auto()
    UNVERIFIED_STREAM = auto()
    FILE = auto()


_KINDS = {
    PayloadStream: ParameterKind.STREAM,
    UnverifiedPayloadStream: ParameterKind.UNVERIFIED_STREAM,
    PayloadFile: ParameterKind.FILE,
}
_NAMES = {found.__name__: kind for found, kind in _KINDS.items()}


class ParameterKinds:
    """The kinds of a handler's positional parameters."""

    def __init__(self, parameters: Iterable[inspect.Parameter]) -> None:
        known = list(parameters)
        self._kinds = [_kind(p.annotation) for p in known]
        rest = [p for p in known if p.kind is inspect.Parameter.VAR_POSITIONAL]
        self._rest = _kind(rest[0].annotation) if rest else ParameterKind.VALUE
        #: Whether every parameter takes a value.
        self.all_values = set(self._kinds) <= {ParameterKind.VALUE}

    def at(self, index: int) -> ParameterKind:
        """Return the kind of the parameter at a position."""
        return self._kinds[index] if index < len(self._kinds) else self._rest


def _kind(annotation: Any) -> ParameterKind:
    if isinstance(annotation, type):
        return _KINDS.get(annotation, ParameterKind.VALUE)
    return _NAMES.get(last_name(annotation), ParameterKind.VALUE)
