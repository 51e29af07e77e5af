"""Notes and incidents next to the packets of a bucket, where several machines edit them."""

from __future__ import annotations

import errno
import random
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from sfapp.errors import IncidentError, StorageError
from sfapp.files import read_regular, write_atomic
from sfapp.incidents import MAX_BYTES, NAME, Event, IncidentLog, IncidentState
from sfapp.storage import ObjectPath, ObjectVersion, fetch_version, replace_version

_ATTEMPTS = 12
_LONGEST_PAUSE_S = 0.5


class BucketIncidentLog(IncidentLog):
    """Log that is one object. Safe to use from several threads and machines.

    A copy on this disk is read and appended to as any log. The copy then takes the object's place on the
    condition that the object is still the version that was copied; otherwise its present version is copied
    and the edits are appended again.
    """

    def __init__(self, remote: ObjectPath) -> None:
        """Use a log, without a request."""
        folder = tempfile.mkdtemp(prefix="sfapp-notes-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        super().__init__(Path(folder) / NAME)
        self.shown = str(remote)
        self._remote = remote
        self._version: ObjectVersion | None = None  # of the object that is copied
        self._copied: tuple[int, ...] | None = None  # signature of the copy of that version
        self._copying = threading.Lock()

    def signature(self) -> tuple[int, ...] | None:
        try:
            found = self._remote.storage.found(self._remote)
        except StorageError as error:
            raise OSError(errno.EIO, self._reason(error), self.shown) from None
        return None if found is None else (found.stamp.size, found.stamp.mtime_ns)

    def state(self) -> IncidentState:
        with self._copying:
            self._copy()
            return super().state()

    def append(self, events: Sequence[Event]) -> IncidentState:
        with self._copying:
            for attempt in range(_ATTEMPTS):
                self._copy()
                before = self._content()
                state = super().append(events)
                content = self._content()
                if content == before or self._replace(content):  # An earlier attempt may have arrived.
                    return state
                time.sleep(min(_LONGEST_PAUSE_S, 0.02 * 2**attempt) * random.random())
        raise IncidentError(
            f"{self.shown} was edited by others at the same time, {_ATTEMPTS} times: try again"
        )

    def _copy(self) -> None:
        """Copy the object if it has changed, or if the copy has: programs that clean /tmp remove old files.

        Raises:
            IncidentError: it cannot be read.
        """
        try:
            if super().signature() != self._copied:
                self._version = None
            found = fetch_version(self._remote, self._version, MAX_BYTES)
            if found is not None:
                write_atomic(self.path, found[0], sync=False)
                self._version, self._copied = found[1], super().signature()
        except FileNotFoundError:
            self.path.unlink(missing_ok=True)
            self._version = None
        except (StorageError, OSError) as error:
            raise IncidentError(f"{self.shown} cannot be read: {self._reason(error)}") from None

    def _replace(self, content: bytes) -> bool:
        """Put the copy into the place of the version that was copied; return False if there is another one.

        Raises:
            IncidentError: it cannot be written.
        """
        version = self._version
        self._version = None  # Unless this succeeds, the copy differs from the object.
        try:
            self._version = replace_version(self._remote, content, version)
        except StorageError as error:
            raise IncidentError(
                f"{self.shown} cannot be written: {self._reason(error)}. Notes on packets in a bucket need "
                f"permission to put objects, or an empty file FILE.{NAME} next to the store --db FILE.duckdb"
            ) from None
        self._copied = super().signature()
        return self._version is not None

    def _content(self) -> bytes:
        try:
            return read_regular(self.path, 2 * MAX_BYTES)
        except FileNotFoundError:
            return b""

    def _reason(self, error: Exception) -> str:
        text = error.strerror if isinstance(error, OSError) else None
        return (text or str(error)).removeprefix(f"{self.shown}: ")
