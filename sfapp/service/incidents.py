"""Notes and incidents in memory: edited outside the event loop, and synchronised with the log file, which
other processes write too.

Pages show ``state``. The disk is touched only when a page opens, on an edit, and by the watch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sfapp.errors import IncidentError, describe_error
from sfapp.incidents import (
    NAME,
    IncidentEditor,
    IncidentLog,
    IncidentState,
    UnavailableLog,
    import_events,
    parse,
    state_from_events,
)
from sfapp.packets.paths import SUFFIX
from sfapp.service.bucket_incidents import BucketIncidentLog
from sfapp.service.subscribers import Subscribers
from sfapp.storage import StoragePath

FOLDER = ".sfapp"
"""Folder next to packets with what is no packet."""

WATCH_PAUSE = 2.0
"""Seconds between checks of the file, the longest delay until another process's edit appears."""

PAGE_WAIT_S = 2.0
"""Seconds that a page waits for the content: the largest log that is allowed takes ten to read."""

_edit_threads = ThreadPoolExecutor(16, "sfapp-edits")
"""Threads of their own: edits may wait for a log that another process keeps locked, and pages must not."""

_LOG = logging.getLogger("sfapp")

Edit = Callable[[IncidentEditor], Sequence[str]]
"""Function that writes edits and returns their ids for ``IncidentEditor.undo``; runs on a thread."""


def incident_log_of(root: StoragePath, db: Path | None) -> IncidentLog:
    """Return the log of notes and incidents: next to the packets, or next to the store if one is there.

    Args:
        root: the first of the packets' folders.
        db: the file of the store; None in memory.
    """
    if isinstance(root, Path):
        return IncidentLog.for_packets(root)
    at_store = None if db is None else db.with_suffix(f".{NAME}")
    if at_store is not None and (root.storage.is_web or at_store.exists()):
        return IncidentLog(at_store)
    if root.storage.is_web:
        return UnavailableLog(
            f"notes and incidents are kept next to the packets, and {root} is on a web server: give --db "
            "FILE to keep them next to the store"
        )
    return BucketIncidentLog((root.parent if root.name.endswith(SUFFIX) else root) / FOLDER / NAME)


class IncidentService:
    """The notes and incidents of one log file.

    Attributes:
        log: the file.
        state: its content when it was last read; does not block the event loop.
        problem: why it could not be read, or that it is read for the first time; empty if it was read.
        changed: notified in the event loop after ``state`` changed, through this process or another.
    """

    def __init__(self, log: IncidentLog) -> None:
        self.log = log
        self.state: IncidentState = state_from_events(())
        self.problem = f"{log.shown} is still being read"
        self.changed: Subscribers[IncidentState] = Subscribers()
        self._signature: tuple[int, ...] | None = None
        self._reading = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch the file from the running event loop."""
        self._watching = asyncio.create_task(self._watch(), name="incidents")

    def stop(self) -> None:
        """End the watch."""
        if self._watching is not None and not self._watching.done():
            self._watching.cancel()

    async def current(self) -> IncidentState:
        """Return the present content of the file; if it cannot be read, the last one, with ``problem``
        set."""
        async with self._reading:  # one at a time: an older state must not replace a newer one
            self._signature, found, self.problem = await asyncio.to_thread(self._read, self._signature)
            if found is not None and found is not self.state:
                self.state = found
                self.changed.notify(found)
            return self.state

    async def shown(self) -> IncidentState:
        """Return what a page shows: the present content, or the last one if reading takes long. The page
        follows ``changed``."""
        reading = asyncio.create_task(self.current())
        await asyncio.wait([reading], timeout=PAGE_WAIT_S)
        return reading.result() if reading.done() else self.state

    async def write(self, name: str, edit: Edit) -> Sequence[str]:
        """Edit under an author's name; on return, ``state`` includes the edits.

        Raises:
            IncidentError: the file cannot be written, or a text is too long.
        """
        loop = asyncio.get_running_loop()
        written = await loop.run_in_executor(_edit_threads, edit, IncidentEditor(self.log, name))
        await self.current()
        return written

    async def import_incidents(self, content: bytes) -> int:
        """Add the incidents of an exported file; return how many of its edits were new.

        Raises:
            IncidentError: it is no such file, or the log cannot be written.
        """
        loop = asyncio.get_running_loop()
        added = await loop.run_in_executor(_edit_threads, lambda: import_events(self.log, parse(content)))
        await self.current()
        return added

    async def _watch(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                try:
                    await self.current()
                except Exception as error:  # noqa: BLE001  # The next edit may repair it.
                    problem = f"{self.log.shown} cannot be read: {describe_error(error)}"
                    if problem != self.problem:  # Logged once.
                        _LOG.exception("notes and incidents could not be read, and are tried again")
                    self.problem = problem
                await asyncio.sleep(WATCH_PAUSE)

    def _read(
        self, before: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...] | None, IncidentState | None, str]:
        """Return the file's signature, its content if that changed, and why it cannot be read."""
        try:
            signature = self.log.signature()
        except OSError as error:
            # No signature of a log, so that the problem ends with the next one.
            return (), None, f"{self.log.shown} cannot be read: {error.strerror}"
        if signature is None:
            return None, None if before is None else self.log.state(), ""
        if signature == before:
            return before, None, self.problem
        try:
            return signature, self.log.state(), ""
        except IncidentError as error:
            return before, None, str(error)
