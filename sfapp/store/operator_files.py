"""Files of operator events beside the packets: which there are, so that pages follow when one comes or goes.

They are read when a page asks for them, never stored: what is kept here is only what the last scan saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from sfapp.store.scan import FileStamp, as_text


class OperatorFiles:
    """What the last scan saw. Empty before the first; safe to ask from any thread."""

    def __init__(self) -> None:
        self._stamps: Mapping[str, FileStamp] = {}
        self._of_window: Mapping[str, tuple[str, ...]] = {}

    @property
    def stamps(self) -> Mapping[str, FileStamp]:
        """By file name."""
        return self._stamps

    def note(self, stamps: Mapping[str, FileStamp]) -> int:
        """Take over what a scan saw; how many files came, changed or went since the last one."""
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

    def for_packets(self, packets: Iterable[Path]) -> tuple[str, ...]:
        """What tells the files of one window from others, and from what they were: name, size and time of
        writing of each.

        Args:
            packets: the files that the window is made of.
        """
        windows = {_window_of(as_text(path)) for path in packets}
        return tuple(file for window in sorted(windows) for file in self._of_window.get(window, ()))


def _window_of(name: str) -> str:
    """What the names of a window's packet, of its parts and of its operator events begin with."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.partition('.')[0]}"
