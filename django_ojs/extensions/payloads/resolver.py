"""Resolve the references among a job's arguments (payload-limits §5.3), in the worker.

This happens before the handler is called, on its thread and within its timeout, outside of any
transaction. The stored job keeps its references.
"""

import io
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import IO, Any, Self
from uuid import UUID

from asgiref.sync import sync_to_async

from django_ojs.conf import of, settings
from django_ojs.extensions.payloads import offload, schemes
from django_ojs.extensions.payloads.parameter_kinds import (
    ParameterKind,
    ParameterKinds,
    PayloadFile,
    PayloadStream,
    UnverifiedPayloadStream,
)
from django_ojs.extensions.payloads.reader import Budget, Reader, too_large
from django_ojs.extensions.payloads.reference import Reference, is_reference
from django_ojs.extensions.payloads.schemes import s3
from django_ojs.extensions.payloads.settings import PayloadSettings
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload, PayloadRejected


def run(run: Any, kinds: ParameterKinds, go_on: Callable[[], Any]) -> Any:
    """Run a handler with its arguments resolved; see `Hooks.around_run`."""
    if run.context.is_async:
        return _run_async(run, kinds, go_on)
    with Resolved(run.job.id, run.job.args, kinds) as resolved:
        run.context.resolved(resolved.args)
        run.finish = resolved.finish
        return go_on()


async def _run_async(run: Any, kinds: ParameterKinds, go_on: Callable[[], Awaitable[Any]]) -> Any:
    resolved = await sync_to_async(Resolved)(run.job.id, run.job.args, kinds)
    with resolved:
        run.context.resolved(resolved.args)
        run.finish = resolved.finish
        return await go_on()


class Resolved:
    """The resolved arguments of one run. As a context manager, it closes streams and files."""

    def __init__(self, job_id: UUID, args: Sequence[Any], kinds: ParameterKinds) -> None:
        self._job_id = job_id
        self._readers: list[Reader] = []
        self._streams: list[PayloadStream] = []
        self._files: list[PayloadFile] = []
        try:
            self.args = [self._resolve(i, arg, kinds.at(i)) for i, arg in enumerate(args)]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def finish(self) -> None:
        """Read and check the rest of the streams. Raises the first error."""
        for reader in self._readers:
            reader.finish()

    def close(self) -> None:
        for reader in self._readers:
            reader.abandon()
        for stream in self._streams:
            stream.close()
        for file in self._files:
            file.close()

    def _resolve(self, index: int, arg: Any, kind: ParameterKind) -> Any:
        field = f"args[{index}]"
        if not is_reference(arg):
            return arg if kind is ParameterKind.VALUE else self._inline(arg, field, kind)
        reference = Reference.parse(arg, field)
        values = of(PayloadSettings)
        max_bytes = (
            values.payload_max_bytes
            if kind is ParameterKind.VALUE
            else values.payload_max_file_bytes
        )
        if reference.size is not None and reference.size > max_bytes:
            raise too_large(field, max_bytes)
        budget = Budget(values.payload_timeout.total_seconds())
        with budget:
            if offload.owns(reference.uri, self._job_id):
                # Only objects that were offloaded for this very job are readable without a setting.
                source = s3.open_(reference, field, budget, allowed=(offload.bucket(),))
            else:
                source = schemes.open_(reference, field, budget)
        reader = Reader(source, reference, field=field, max_bytes=max_bytes, budget=budget)
        return self._take(reader, field, kind)

    def _inline(self, arg: Any, field: str, kind: ParameterKind) -> Any:
        # A parameter of these types also gets an argument that was too small to be offloaded.
        data = json.dumps(arg).encode()
        source, reference = io.BytesIO(data), Reference(uri="")
        reader = Reader(source, reference, field=field, max_bytes=len(data), budget=Budget(60))
        return self._take(reader, field, kind)

    def _take(self, reader: Reader, field: str, kind: ParameterKind) -> Any:
        self._readers.append(reader)
        if kind is ParameterKind.UNVERIFIED_STREAM:
            return self._stream(UnverifiedPayloadStream(reader))
        if kind is ParameterKind.STREAM:
            if not reader.has_checksum:
                return self._stream(PayloadStream(reader))
            # The file has no name, so it is gone with the process, however that ends.
            spool = tempfile.TemporaryFile(prefix="ojs-")  # noqa: SIM115  # the stream closes it
            try:
                reader.copy_to(spool)
                spool.seek(0)
            except BaseException:
                spool.close()
                raise
            return self._stream(PayloadStream(spool.detach()))
        if kind is ParameterKind.FILE:
            # If the thread is interrupted before the file is in the list, its finalizer removes it.
            file: IO[bytes] = tempfile.NamedTemporaryFile(prefix="ojs-")  # noqa: SIM115  # it is closed with the run
            self._files.append(PayloadFile(file, 0))
            self._files[-1].size = reader.copy_to(file)
            file.flush()
            return self._files[-1]
        data = io.BytesIO()
        reader.copy_to(data)
        return _parsed(data.getvalue(), field)

    def _stream(self, stream: PayloadStream) -> PayloadStream:
        self._streams.append(stream)
        return stream


def _parsed(data: bytes, field: str) -> Any:
    try:
        return json.loads(data, path=field, exact_integers=settings().exact_integers)
    except InvalidPayload as error:
        raise PayloadRejected(
            f"the payload of {field} is not a JSON value: {error}",
            hint="A parameter annotated ojs.PayloadFile or ojs.PayloadStream takes any bytes.",
        ) from None
