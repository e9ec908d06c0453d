"""A proxy before a server, on loopback, whose network can be slow, silent or cut."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def any_piece(_: bytes) -> bool:
    return True


class Proxy:
    """Passes bytes on between clients and a server, in a thread of its own."""

    def __init__(self, upstream: int | str) -> None:
        self._upstream = upstream
        #: Seconds by which each piece is late.
        self.delay = 0.0
        self._loop = asyncio.new_event_loop()
        # Set while bytes flow.
        self._flows = asyncio.Event()
        self._flows.set()
        self._stalls_answers = True
        self._stalls_at: Callable[[bytes], bool] = any_piece
        #: What it has read since it stalled, and not passed on.
        self.held: list[bytes] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        self._server = listening.result(20)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def stall(self, *, answers: bool = True, at: Callable[[bytes], bool] = any_piece) -> None:
        """Pass nothing on; connections stay open, and new ones are accepted.

        Without `answers`, what the server sends is passed on. A connection stalls at its first
        piece of which `at` is true.
        """
        self._stalls_answers, self._stalls_at = answers, at
        self._loop.call_soon_threadsafe(self._flows.clear)

    def resume(self) -> None:
        self._loop.call_soon_threadsafe(self._flow)

    def cut(self) -> None:
        """Reset all connections."""
        self._loop.call_soon_threadsafe(self._end, False)

    def half_close(self) -> None:
        """End one direction of all connections: the client's side, or the server's."""
        self._loop.call_soon_threadsafe(self._end, True)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        self._end(False)
        ended = asyncio.all_tasks() - {asyncio.current_task()}
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    def _flow(self) -> None:
        self.held.clear()
        self._flows.set()

    def _end(self, half: bool) -> None:
        for number, writer in enumerate(sorted(self._writers, key=id)):
            if not half:
                writer.transport.abort()
            elif number % 2:
                with suppress(OSError):
                    writer.write_eof()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there = await (
                asyncio.open_unix_connection(self._upstream)
                if isinstance(self._upstream, str)
                else asyncio.open_connection("127.0.0.1", self._upstream)
            )
            self._writers |= {writer, there}
            await asyncio.gather(
                self._pass(reader, there), self._pass(there_reader, writer, answers=True)
            )
        writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool = False
    ) -> None:
        try:
            while data := await reader.read(65_536):
                await asyncio.sleep(self.delay)
                stalls = not self._flows.is_set() and (self._stalls_answers or not answers)
                if stalls and self._stalls_at(data):
                    self.held.append(data)
                    await self._flows.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


@contextmanager
def proxy(upstream: int | str) -> Iterator[Proxy]:
    """Run a proxy before a server: on a port of loopback, or on a socket of this path."""
    made = Proxy(upstream)
    try:
        yield made
    finally:
        made.close()
