"""Keep the references chosen by a user in ``<store>.references.json``.

Everything in the store is derived from the packets and may be deleted and built again. Choices may not, so
they are kept in a separate small file that is replaced atomically.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from sfapp.errors import StoreError
from sfapp.files import read_regular, write_atomic
from sfapp.model.parse import UNREADABLE_JSON

_FORMAT = 1
_MAX_BYTES = 2**22
_MOST_RUNS = 2**16
_Window = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Number of a window, as the store holds it. The file lies next to the packets, where others may write."""


@dataclass(frozen=True, slots=True)
class _ChoicesDocument:
    format: int = _FORMAT
    references: Annotated[dict[str, _Window], msgspec.Meta(max_length=_MOST_RUNS)] = field(
        default_factory=dict
    )


class ReferenceChoices:
    """References chosen by the user, as run id → window number; in memory only if ``path`` is None."""

    def __init__(self, path: Path | None) -> None:
        """Read the file if it exists.

        Raises:
            StoreError: the file exists and cannot be read. It is never replaced unread.
        """
        self._path = path
        self._lock = threading.Lock()
        self._windows: Mapping[str, int] = {} if path is None else _load(path)

    @classmethod
    def for_store(cls, store: Path | None) -> ReferenceChoices:
        return cls(None if store is None else store.with_suffix(".references.json"))

    def pairs(self) -> list[tuple[str, int]]:
        """Return every choice as run id and window number; the window need not be in the store."""
        return list(self._windows.items())

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
            self._windows = changed


def _load(path: Path) -> dict[str, int]:
    try:
        document = msgspec.json.decode(read_regular(path, _MAX_BYTES), type=_ChoicesDocument)
    except FileNotFoundError:
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
