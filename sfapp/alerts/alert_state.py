"""Keep what each target knows in a file, so that nothing is sent again after a restart.

The file is replaced atomically. One process uses it at a time.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock

import msgspec

from sfapp.alerts.changes import Known, KnownProblem
from sfapp.errors import AlertError
from sfapp.files import open_regular, read_regular, write_atomic
from sfapp.model.parse import UNREADABLE_JSON

_VERSION = 1
_MAX_FILE_BYTES = 64 << 20


class _StateFile(msgspec.Struct, kw_only=True):
    version: int
    targets: dict[str, dict[str, KnownProblem]]


class AlertState:
    """What each target knows, in memory and on disk. Methods may be called on any thread."""

    def __init__(self, path: Path, targets: Mapping[str, Known], run_id: str | None = None) -> None:
        """Start with this content; ``open`` reads it from the file."""
        self._path, self._run_id = path, run_id
        self._targets = dict(targets)
        self._lock = Lock()
        self._is_saved = True

    @classmethod
    @contextmanager
    def open(cls, path: Path, run_id: str | None = None) -> Iterator[AlertState]:
        """Read the state, and keep other processes from using the file within the block.

        Args:
            run_id: the only run of which targets get messages; what they know of it is kept apart.

        Raises:
            AlertError: another process uses it, it cannot be read or written, or is no state of alerts.
        """
        with ExitStack() as files:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                lock = path.with_name(f"{path.name}.lock")
                file = open_regular(lock, "ab+", permissions=0o600, follow_links=False)
                fcntl.flock(files.enter_context(file), fcntl.LOCK_EX | fcntl.LOCK_NB)
                state = cls(path, _read(path), run_id)
            except BlockingIOError:
                raise AlertError(
                    f"another process sends alerts with the state {path}: stop it, or name another file with "
                    "--state"
                ) from None
            except OSError as error:
                raise AlertError(
                    f"the state {path} cannot be used ({error.strerror or error}): name another file with "
                    "--state"
                ) from error
            yield state

    def known_by(self, target: str) -> Known | None:
        """Return what a target knows; None before its first look."""
        with self._lock:
            return self._targets.get(self._name(target))

    def keep(self, target: str, known: Known) -> None:
        """Write what a target knows, unless it is on disk.

        Raises:
            OSError: it cannot be written; it is known in memory nevertheless.
        """
        with self._lock:
            name = self._name(target)
            if self._targets.get(name) == known and self._is_saved:
                return
            self._targets[name], self._is_saved = known, False
            content = {"version": _VERSION, "targets": self._targets}
            write_atomic(self._path, msgspec.json.encode(content), mode=0o600)
            self._is_saved = True

    def _name(self, target: str) -> str:
        """Return a name for a target that does not show its secrets."""
        text = target if self._run_id is None else f"{target}\n{self._run_id}"
        return sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _read(path: Path) -> dict[str, dict[str, KnownProblem]]:
    """Return the content of the file; empty if there is none.

    Raises:
        AlertError: it is no state of alerts of this version.
        OSError: it cannot be read.
    """
    try:
        content = read_regular(path, _MAX_FILE_BYTES, follow_links=False)
    except FileNotFoundError:
        return {}
    try:
        state = msgspec.json.decode(content, type=_StateFile)
    except UNREADABLE_JSON as error:
        raise AlertError(f"{path} is no state of alerts ({error}): name another file with --state") from error
    if state.version != _VERSION:
        raise AlertError(
            f"{path} was written by another version of sfapp: name another file with --state, or remove it"
        )
    return state.targets
