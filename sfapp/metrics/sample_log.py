"""Writing a run's samples beside its packets, and thinning them as they age.

Five minutes to a file, by the clock of whoever writes. After ten minutes a file's samples become one in ten
seconds, after two hours one in sixty; where all of a run's files together are larger than they may be, the
oldest go. Files are looked at, never needed: nothing here is synced to disk before it is said to be written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sfapp.errors import MetricsError
from sfapp.files import atomic_writer
from sfapp.metrics.downsampling import thinned
from sfapp.metrics.sample_files import (
    SUFFIX,
    VERSION,
    Header,
    lines,
    metrics_folder,
    read_header,
    read_pieces,
    sample_lines,
)
from sfapp.model.samples import AnySample

SEGMENT_S = 300
AGES: tuple[tuple[int, int], ...] = ((2 * 3600, 60), (600, 10))
"""From which age in seconds on, one sample stands for how many seconds; the oldest first."""

MAX_BYTES = 2**30
_NAME = "%Y%m%dT%H%M%SZ"


class MetricsLog:
    """The samples of one run; one writer at a time.

    Attributes:
        folder: where they go.
        lost: samples that could not be written. failure: why the newest of them could not.
    """

    def __init__(
        self, root: Path, run_id: str, *, max_bytes: int = MAX_BYTES, now_s: Callable[[], float] = time.time
    ) -> None:
        """Nothing is written before the first sample.

        Raises:
            PacketError: an empty run id.
        """
        self.folder = metrics_folder(root, run_id)
        self.lost = 0
        self.failure = ""
        self._run_id = run_id
        self._max_bytes = max_bytes
        self._now_s = now_s

    def add(self, samples: Sequence[AnySample]) -> None:
        """Append samples; all of a second together, not one by one. Never raises for what the disk does: that
        is counted as ``lost``."""
        if not samples:
            return
        try:
            self._append(sample_lines(samples))
        except OSError as error:
            self.lost += len(samples)
            self.failure = f"{error.strerror or error}: {self.folder}"

    def thin(self) -> Iterator[None]:
        """Thin the files that are old enough, and remove the oldest beyond the bound. About once a minute,
        from any thread: it takes no file that ``add`` may still append to.

        Yields after every few milliseconds' work, for whoever has something else to do meanwhile.

        Raises:
            OSError: a file cannot be read, written or removed.
        """
        segments = self._segments()
        for begin_s, path in segments:
            age_s = self._now_s() - (begin_s + SEGMENT_S)
            wanted = next((every_s for age, every_s in AGES if age_s >= age), 1)
            yield from self._thin_one(path, wanted)
        self._bound([path for _, path in segments[:-1]])

    def _append(self, data: bytes) -> None:
        begin_s = int(self._now_s()) // SEGMENT_S * SEGMENT_S
        path = self.folder / f"{datetime.fromtimestamp(begin_s, UTC):{_NAME}}{SUFFIX}"
        try:
            self._append_to(path, data)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._append_to(path, data)

    def _append_to(self, path: Path, data: bytes) -> None:
        with path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                data = lines(Header(version=VERSION, run_id=self._run_id, every_s=1), ()) + data
            else:
                file.seek(size - 1)
                if file.read(1) != b"\n":  # whoever wrote before was killed in the middle of a line
                    data = b"\n" + data
            file.write(data)

    def _segments(self) -> list[tuple[int, Path]]:
        """The files by their begin, seconds since 1970, oldest first; files of other names are not ours."""
        found = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                begin = datetime.strptime(path.name, _NAME + SUFFIX).replace(tzinfo=UTC)
            except ValueError:
                continue
            found.append((int(begin.timestamp()), path))
        return sorted(found)

    def _thin_one(self, path: Path, every_s: int) -> Iterator[None]:
        try:
            header = read_header(path)
            if header is None or header.every_s >= every_s:
                return
            with atomic_writer(path, sync=False) as file:
                file.write(lines(Header(version=VERSION, run_id=header.run_id, every_s=every_s), ()))
                for samples in thinned(read_pieces(path), every_s):
                    file.write(sample_lines(samples))
                    yield
        except MetricsError:  # Another program's file.
            return

    def _bound(self, oldest_first: Sequence[Path]) -> None:
        sizes = {path: path.stat().st_size for path in oldest_first}
        total = sum(sizes.values())
        for path in oldest_first:
            if total <= self._max_bytes:
                return
            path.unlink()
            total -= sizes[path]
