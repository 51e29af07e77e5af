"""Keep the references chosen by a user in ``<store>.references.json``.

Everything in the store is derived from the packets and may be deleted and built again. Choices may not, so
they are kept in a separate small file that is replaced atomically. What keeps no store reads those next to
the default one of its first folder, and so finds the problems that the app shows.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from sfapp.errors import StoreError
from sfapp.files import read_regular, write_atomic
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.storage import StoragePath
from sfapp.terminal import printable

_FORMAT = 1
_MAX_BYTES = 2**22
_MOST_RUNS = 2**16
_LOG = logging.getLogger("sfapp")
_Window = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Number of a window, as the store holds it. The file lies next to the packets, where others may write."""


@dataclass(frozen=True, slots=True)
class _ChoicesDocument:
    format: int = _FORMAT
    references: Annotated[dict[str, _Window], msgspec.Meta(max_length=_MOST_RUNS)] = field(
        default_factory=dict
    )


def default_path(root: Path) -> Path:
    """Return the path of the store of a packet folder, or of the folder of a packet file."""
    return (root if root.is_dir() else root.parent) / ".sfapp" / "store.duckdb"


class ReferenceChoices:
    """References chosen by the user, as run id → window number; in memory only if ``path`` is None."""

    def __init__(self, path: Path | None, *, saves: bool = True) -> None:
        """Read the file if it exists.

        Args:
            saves: write what is chosen to the file. Otherwise another process may, whose choices are followed
                until one is made here.

        Raises:
            StoreError: the file exists and cannot be read. It is never replaced unread.
        """
        self._path = path if saves else None
        self._followed = None if saves else path
        self._stamp: tuple[int, ...] = ()
        self._lock = threading.Lock()
        self._windows: Mapping[str, int] = {} if path is None else _load(path)

    @classmethod
    def for_store(cls, store: Path | None, roots: Sequence[StoragePath]) -> ReferenceChoices:
        """Return the choices of a store in a file, or of one in memory over these roots."""
        return cls.next_to(roots[0]) if store is None else cls(_file_of(store))

    @classmethod
    def next_to(cls, root: StoragePath) -> ReferenceChoices:
        """Return what is chosen next to the default store of a folder or packet file, to read only.

        Nothing for a bucket, nor if another user's file may not be read, which this one could not fix.
        """
        path = _file_of(default_path(root)) if isinstance(root, Path) else None
        try:
            return cls(path, saves=False)
        except StoreError as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
            _LOG.warning("%s may not be read: its references do not count", printable(str(path)))
            return cls(None, saves=False)

    @classmethod
    def next_to_any(cls, folders: Sequence[Path]) -> ReferenceChoices:
        """Return what is chosen next to any of these folders; the first with a choice for a run counts.

        Raises:
            StoreError: a file is there and cannot be read.
        """
        files = [_file_of(default_path(folder)) for folder in folders]
        read = [cls(file)._windows for file in files if os.path.exists(file)]
        found = cls(None)
        found._windows = dict(ChainMap(*map(dict, read)))
        return found

    @property
    def windows(self) -> Mapping[str, int]:
        """Every choice as run id → window number; the window need not exist."""
        return self._windows

    def follow(self) -> bool:
        """Read what another process has chosen since the last call; return whether anything differs.

        If the file is gone or cannot be read, for example on an unmounted share, the last choices stay.
        """
        with self._lock:
            if self._followed is None:
                return False
            try:
                found = self._followed.stat()
                stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
                before, last = self._windows, self._stamp
                self._stamp = stamp
                if stamp != last:
                    self._windows = _load(self._followed)
            except (OSError, StoreError):
                return False
            return self._windows != before

    def set(self, run_id: str, window: int | None) -> None:
        """Save a choice, or remove it if ``window`` is None.

        Raises:
            StoreError: it cannot be saved; nothing has changed then.
        """
        with self._lock:
            changed = {run: number for run, number in self._windows.items() if run != run_id}
            if window is not None:
                changed[run_id] = window
            if self._path is not None:
                _save(self._path, changed)
            self._followed = None
            self._windows = changed


def _file_of(store: Path) -> Path:
    return store.with_suffix(".references.json")


def _load(path: Path) -> dict[str, int]:
    try:
        document = msgspec.json.decode(read_regular(path, _MAX_BYTES), type=_ChoicesDocument)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, *UNREADABLE_JSON) as error:
        raise StoreError(
            f"{path} holds the references you chose and cannot be read ({error}): fix it, or remove it to "
            "go back to the measured ones"
        ) from error
    if document.format != _FORMAT:
        raise StoreError(
            f"{path} is of format {document.format}; this sfapp reads format {_FORMAT}: install a newer sfapp"
        )
    return document.references


def _save(path: Path, references: dict[str, int]) -> None:
    content = msgspec.json.format(msgspec.json.encode(_ChoicesDocument(references=references)))
    if len(references) > _MOST_RUNS or len(content) > _MAX_BYTES:
        raise StoreError(
            f"{path} holds the references of {len(references) - 1:,} runs, and no more fit: remove some"
        )
    try:
        write_atomic(path, content)
    except OSError as error:
        raise StoreError(f"the choice cannot be written to {path}: {error.strerror}") from error
