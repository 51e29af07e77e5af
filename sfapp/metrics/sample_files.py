"""Read and write files of samples: a header and one sample per line, as JSON.

A file is only appended to, or replaced as a whole. Its content is not trusted: an invalid line is skipped and
counted; the last line of a growing file may be incomplete and is read later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from sfapp.errors import MetricsError
from sfapp.files import open_regular, subfolders
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.model.samples import AnySample
from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.packets import packet_path

FOLDER = "metrics"
SUFFIX = ".jsonl"
VERSION = 1

MAX_LINE_BYTES = 64 * 1024
CHUNK_BYTES = 2 * 2**20
"""Bytes per read: some ten thousand samples, which take six times as much memory."""

PIECE_BYTES = 2 * MAX_LINE_BYTES
"""Bytes per read where time and memory are short: some hundred samples."""


class SampleFileHeader(msgspec.Struct, frozen=True, tag_field="kind", tag="segment", kw_only=True):
    """First line of a file.

    Attributes:
        version: version of the format.
        every_s: seconds that each sample of the file stands for.
    """

    version: Annotated[int, msgspec.Meta(ge=1)]
    run_id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
    every_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)]


@dataclass(frozen=True, slots=True)
class SampleChunk:
    """Samples of consecutive lines of a file.

    Attributes:
        samples: in the order of the lines.
        end: offset of the next line, in bytes.
        refused: number of invalid lines.
        is_last: whether the file held no further complete line.
    """

    header: SampleFileHeader
    samples: tuple[AnySample, ...]
    end: int
    refused: int
    is_last: bool


_ENCODER = msgspec.json.Encoder()
_HEADER = msgspec.json.Decoder(SampleFileHeader)
_SAMPLE = msgspec.json.Decoder(AnySample)


def metrics_folder(root: Path, run_id: str) -> Path:
    """Return the folder for a run's samples, ``<root>/<run>/metrics``.

    Raises:
        PacketError: the run id is empty.
    """
    return packet_path(root, run_id, 0).parent / FOLDER


def find_folders(roots: Iterable[Path]) -> list[Path]:
    """Return every folder of samples below these packet directories, sorted: in a run's folder, or one level
    further down."""
    found: set[Path] = set()
    for root in roots:
        runs = subfolders(root)
        places = (root, *runs, *(place for run in runs for place in subfolders(run)))
        found.update(path for place in places if os.path.isdir(path := place / FOLDER))
    return sorted(found)


def segments_in(folders: Iterable[Path]) -> list[Path]:
    """Return every file of samples in these folders, sorted."""
    found = (path for folder in folders for path in folder.glob(f"*{SUFFIX}"))
    return sorted(path for path in found if not path.name.startswith("."))


def file_bytes(header: SampleFileHeader, samples: Sequence[AnySample]) -> bytes:
    """Return the bytes of a complete file."""
    return _ENCODER.encode(header) + b"\n" + sample_lines(samples)


def sample_lines(samples: Sequence[AnySample]) -> bytes:
    """Return the lines to append for some samples."""
    return b"".join(_ENCODER.encode(sample) + b"\n" for sample in samples)


def read_header(path: Path) -> SampleFileHeader | None:
    """Read the first line of a file; return None while it is incomplete.

    Raises:
        MetricsError: the line is not a header, or has a newer version.
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        return _header(path, file.readline(MAX_LINE_BYTES))


def read_segment(path: Path, begin: int = 0, size: int = CHUNK_BYTES) -> SampleChunk | None:
    """Read the complete lines of one chunk of a file; return None while the header is incomplete.

    Args:
        begin: ``end`` of an earlier chunk; 0 is the start of the file.
        size: maximum number of bytes to read; must exceed the longest line.

    Raises:
        MetricsError: the file has no header, or one of a newer version.
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        first = file.readline(MAX_LINE_BYTES)
        header = _header(path, first)
        if header is None:
            return None
        begin = max(begin, len(first))
        file.seek(begin)
        block = file.read(size)
    whole = block.rfind(b"\n") + 1
    if not whole and len(block) > MAX_LINE_BYTES:  # no valid line is that long: skip it
        return SampleChunk(header, (), begin + len(block), 1, len(block) < size)
    found = [_sample(line) for line in block[:whole].splitlines()]
    samples = tuple(sample for sample in found if sample is not None)
    return SampleChunk(header, samples, begin + whole, len(found) - len(samples), len(block) < size)


def read_pieces(path: Path) -> Iterator[Sequence[AnySample]]:
    """Yield all samples of a file that is complete, a few at a time.

    Raises:
        MetricsError, OSError: as ``read_segment``.
    """
    begin = 0
    while (chunk := read_segment(path, begin, PIECE_BYTES)) is not None:
        yield chunk.samples
        if chunk.is_last:
            return
        begin = chunk.end


def _header(path: Path, line: bytes) -> SampleFileHeader | None:
    if not line.endswith(b"\n"):
        if len(line) < MAX_LINE_BYTES:
            return None
        raise MetricsError(f"{path}: the first line is not a sample header")
    try:
        header = _HEADER.decode(line)
    except UNREADABLE_JSON as error:
        raise MetricsError(f"{path}: the first line is not a sample header ({error})") from None
    if header.version > VERSION:
        raise MetricsError(
            f"{path}: samples of format {header.version}; this sfapp reads up to {VERSION}: "
            "install a newer one"
        )
    return header


def _sample(line: bytes) -> AnySample | None:
    try:
        sample: AnySample = _SAMPLE.decode(line)
    except UNREADABLE_JSON:
        return None
    return sample
