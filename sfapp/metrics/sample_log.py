"""Write a run's samples next to its packets, and downsample them as they age.

A file holds five minutes by the writer's clock. After ten minutes its samples are merged to one per ten
seconds, after two hours to one per minute; if a run's files exceed their bound, the oldest are removed.
Samples serve monitoring only, so nothing is synced to disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sfapp.errors import MetricsError
from sfapp.files import atomic_writer, open_regular
from sfapp.metrics.downsampling import downsampled
from sfapp.metrics.sample_files import (
    SUFFIX,
    VERSION,
    SampleFileHeader,
    file_bytes,
    metrics_folder,
    read_header,
    read_pieces,
    sample_lines,
)
from sfapp.model.samples import AnySample

SEGMENT_S = 300
AGES: tuple[tuple[int, int], ...] = ((2 * 3600, 60), (600, 10))
"""(age in seconds, seconds that one sample then stands for), oldest first."""

MAX_BYTES = 2**30
_NAME = "%Y%m%dT%H%M%SZ"


class MetricsLog:
    """Samples of one run. Only one writer may exist at a time.

    Attributes:
        folder: folder of the files.
        lost: number of samples that could not be written. failure: why the newest of them could not.
    """

    def __init__(
        self, root: Path, run_id: str, *, max_bytes: int = MAX_BYTES, now_s: Callable[[], float] = time.time
    ) -> None:
        """Prepare the log; nothing is written before the first sample.

        Raises:
            PacketError: the run id is empty.
        """
        self.folder = metrics_folder(root, run_id)
        self.lost = 0
        self.failure = ""
        self._run_id = run_id
        self._max_bytes = max_bytes
        self._now_s = now_s

    def add(self, samples: Sequence[AnySample]) -> None:
        """Append samples, all of one second in one call. Samples that cannot be written count as ``lost``."""
        if not samples:
            return
        try:
            self._append(sample_lines(samples))
        except OSError as error:
            self.lost += len(samples)
            self.failure = f"{error.strerror or error}: {self.folder}"

    def downsample(self) -> Iterator[None]:
        """Downsample files that are old enough, and remove the oldest above the bound.

        Called about once a minute, on any thread: files that ``add`` may still append to are not touched.
        Yields after every few milliseconds of work, so that the caller can spread it out.

        Raises:
            OSError: a file cannot be read, written or removed.
        """
        segments = self._segments()
        failed: OSError | None = None
        for begin_s, path in segments:
            age_s = self._now_s() - (begin_s + SEGMENT_S)
            wanted = next((every_s for age, every_s in AGES if age_s >= age), 1)
            try:
                yield from self._downsample_file(path, wanted)
            except OSError as error:  # One file must not keep the others from being merged and removed.
                failed = failed or error
        self._remove_oldest([path for _, path in segments[:-1]])
        if failed is not None:
            raise failed

    def _append(self, data: bytes) -> None:
        begin_s = int(self._now_s()) // SEGMENT_S * SEGMENT_S
        path = self.folder / f"{datetime.fromtimestamp(begin_s, UTC):{_NAME}}{SUFFIX}"
        try:
            self._append_to(path, data)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._append_to(path, data)

    def _append_to(self, path: Path, data: bytes) -> None:
        with open_regular(path, "ab+", follow_links=False) as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                data = (
                    file_bytes(SampleFileHeader(version=VERSION, run_id=self._run_id, every_s=1), ()) + data
                )
            else:
                file.seek(size - 1)
                if file.read(1) != b"\n":  # an earlier writer was killed within a line
                    data = b"\n" + data
            file.write(data)

    def _segments(self) -> list[tuple[int, Path]]:
        """Return (begin in seconds since 1970, path) of each file, oldest first.

        Other files are ignored, and so are pipes and folders.
        """
        found = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                begin = datetime.strptime(path.name, _NAME + SUFFIX).replace(tzinfo=UTC)
            except ValueError:
                continue
            if path.is_file():
                found.append((int(begin.timestamp()), path))
        return sorted(found)

    def _downsample_file(self, path: Path, every_s: int) -> Iterator[None]:
        try:
            header = read_header(path)
            if header is None or header.every_s >= every_s:
                return
            with atomic_writer(path, sync=False) as file:
                file.write(
                    file_bytes(SampleFileHeader(version=VERSION, run_id=header.run_id, every_s=every_s), ())
                )
                for samples in downsampled(read_pieces(path), every_s):
                    file.write(sample_lines(samples))
                    yield
        except MetricsError:  # Another program's file.
            return

    def _remove_oldest(self, oldest_first: Sequence[Path]) -> None:
        sizes = {path: path.stat().st_size for path in oldest_first}
        total = sum(sizes.values())
        for path in oldest_first:
            if total <= self._max_bytes:
                return
            path.unlink()
            total -= sizes[path]
