"""Track the files of operator events next to the packets, so that pages notice when one appears or
disappears.

They are read on request and never stored; only the result of the last scan is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sfapp.packets.paths import events_stem
from sfapp.storage import FileStamp, StoragePath, as_text


class OperatorFiles:
    """Files of operator events found by the last scan; safe to use from any thread."""

    def __init__(self) -> None:
        self._stamps: Mapping[str, FileStamp] = {}
        self._of_window: Mapping[str, tuple[str, ...]] = {}

    @property
    def stamps(self) -> Mapping[str, FileStamp]:
        """Size and modification time by file name."""
        return self._stamps

    def note(self, stamps: Mapping[str, FileStamp]) -> int:
        """Store the result of a scan and return the number of files that appeared, changed or disappeared."""
        changed = sum(
            self._stamps.get(name) != stamps.get(name) for name in self._stamps.keys() | stamps.keys()
        )
        if changed:
            of_window = defaultdict(list)
            for name, stamp in sorted(stamps.items()):
                of_window[_window_of(name)].append(f"{name} {stamp.size} {stamp.mtime_ns}")
            self._of_window = {window: tuple(found) for window, found in of_window.items()}
            self._stamps = stamps
        return changed

    def for_packets(self, packets: Iterable[StoragePath]) -> tuple[str, ...]:
        """Return a fingerprint of a window's files of operator events: name, size and modification time of
        each.

        Args:
            packets: the packet files of the window.
        """
        windows = {_window_of(as_text(path)) for path in packets if events_stem(path) is not None}
        return tuple(file for window in sorted(windows) for file in self._of_window.get(window, ()))


def _window_of(name: str) -> str:
    """Return the common prefix of the names of a window's packet, parts and files of operator events."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.partition('.')[0]}"
