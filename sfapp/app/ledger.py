"""Notes and incidents as the pages know them: written off the event loop, followed whoever wrote them.

Pages show ``book``, which is in memory: only opening a page, an edit and the watch ever touch the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence

from nicegui import Event, background_tasks

from sfapp.errors import IncidentError
from sfapp.incidents import Author, Book, IncidentLog, book_of, import_events, parse

WATCH_PAUSE = 2.0
"""Seconds between looks at the file: what another process writes is on the pages after at most this."""

Edit = Callable[[Author], Sequence[str]]
"""Writes as an author; the ids of its edits, for ``Author.undo``. Runs beside the event loop."""


class Ledger:
    """The log of notes and incidents behind the pages.

    Attributes:
        log: the file.
        book: what it amounted to when it was last read; free to use in the event loop.
        problem: why it could not be read, empty where it could.
        changed: fired in the event loop after ``book`` changed, through this process or another.
    """

    def __init__(self, log: IncidentLog) -> None:
        self.log = log
        self.book: Book = book_of(())
        self.problem = ""
        self.changed: Event[Book] = Event()
        self._read: tuple[int, ...] | None = None
        self._reading = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch the file beside the running event loop."""
        self._watching = background_tasks.create(self._watch(), name="incidents")

    def stop(self) -> None:
        """End the watch."""
        if self._watching is not None and not self._watching.done():
            self._watching.cancel()

    async def current(self) -> Book:
        """The book as the file now says; where it cannot be read, as it was, and ``problem`` says why."""
        async with self._reading:  # one at a time: an older book must not come after a newer
            self._read, found, self.problem = await asyncio.to_thread(self._look, self._read)
            if found is not None and found is not self.book:
                self.book = found
                self.changed.emit(found)
            return self.book

    async def write(self, name: str, edit: Edit) -> Sequence[str]:
        """Write under a name; what was written is in ``book`` when this returns.

        Raises:
            IncidentError: the file cannot be written, or a text is too long.
        """
        written = await asyncio.to_thread(edit, Author(self.log, name))
        await self.current()
        return written

    async def take_in(self, content: bytes) -> int:
        """Add the incidents of an exported file; how many of its edits were new.

        Raises:
            IncidentError: it is no such file, or the log cannot be written.
        """
        added = await asyncio.to_thread(lambda: import_events(self.log, parse(content)))
        await self.current()
        return added

    async def _watch(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await self.current()
                await asyncio.sleep(WATCH_PAUSE)

    def _look(self, before: tuple[int, ...] | None) -> tuple[tuple[int, ...] | None, Book | None, str]:
        """What the file looks like, its book where it is not as before, and what stands in the way."""
        try:
            status = os.stat(self.log.path)
        except FileNotFoundError:
            return None, None if before is None else self.log.book(), ""
        except OSError as error:
            return before, None, f"{self.log.path} cannot be read: {error.strerror}"
        signature = (status.st_ino, status.st_size, status.st_mtime_ns)
        if signature == before:
            return before, None, self.problem
        try:
            return signature, self.log.book(), ""
        except IncidentError as error:
            return before, None, str(error)
