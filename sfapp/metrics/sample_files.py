"""One file of samples: a header and a sample a line, JSON. Only ever appended to, or replaced as a whole.

Nothing in a file is trusted. A line that is no sample is left out and counted; the last line of a file that
is being written may be half there, and waits for its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from sfapp.errors import MetricsError
from sfapp.model.samples import AnySample
from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.packets import packet_path

FOLDER = "metrics"
SUFFIX = ".jsonl"
VERSION = 1

MAX_LINE_BYTES = 64 * 1024
CHUNK_BYTES = 2 * 2**20
"""Read at once: some ten thousand samples, which take six times as much memory."""

PIECE_BYTES = 2 * MAX_LINE_BYTES
"""The same where it is to take a moment and next to no memory: some hundreds of samples."""

_PLACES = (FOLDER, f"*/{FOLDER}", f"*/*/{FOLDER}")
"""Where they lie below a folder of packets: in that of a run, or one level further down."""


class Header(msgspec.Struct, frozen=True, tag_field="kind", tag="segment", kw_only=True):
    """The first line of a file.

    Attributes:
        version: of the format.
        every_s: how many seconds each of its samples stands for.
    """

    version: Annotated[int, msgspec.Meta(ge=1)]
    run_id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
    every_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a file.

    Attributes:
        samples: in the order of the lines.
        end: where the next piece begins, in bytes.
        refused: lines that are no samples.
        is_last: whether the file held no further whole line.
    """

    header: Header
    samples: tuple[AnySample, ...]
    end: int
    refused: int
    is_last: bool


_ENCODER = msgspec.json.Encoder()
_HEADER = msgspec.json.Decoder(Header)
_SAMPLE = msgspec.json.Decoder(AnySample)


def metrics_folder(root: Path, run_id: str) -> Path:
    """Where the samples of a run lie: ``<root>/<run>/metrics``.

    Raises:
        PacketError: an empty run id.
    """
    return packet_path(root, run_id, 0).parent / FOLDER


def find_folders(roots: Iterable[Path]) -> list[Path]:
    """Every folder of samples below these folders of packets, each once, sorted."""
    return sorted({path for root in roots if root.is_dir() for place in _PLACES for path in root.glob(place)})


def segments_in(folders: Iterable[Path]) -> list[Path]:
    """Every file of samples in these folders, sorted."""
    found = (path for folder in folders for path in folder.glob(f"*{SUFFIX}"))
    return sorted(path for path in found if not path.name.startswith("."))


def lines(header: Header, samples: Sequence[AnySample]) -> bytes:
    """A whole file."""
    return _ENCODER.encode(header) + b"\n" + sample_lines(samples)


def sample_lines(samples: Sequence[AnySample]) -> bytes:
    """What is appended for some samples."""
    return b"".join(_ENCODER.encode(sample) + b"\n" for sample in samples)


def read_header(path: Path) -> Header | None:
    """The first line of a file; None while it is not whole yet.

    Raises:
        MetricsError: it is no header of ours, or of a newer format.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return _header(path, file.readline(MAX_LINE_BYTES))


def read_segment(path: Path, begin: int = 0, size: int = CHUNK_BYTES) -> Chunk | None:
    """The whole lines of a file from some place on, as far as one reading goes; None without a whole header.

    Args:
        begin: where an earlier piece ended; 0 is the start of the file.
        size: bytes read at most; more than a line may have.

    Raises:
        MetricsError: it has no header of ours, or one of a newer format.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        first = file.readline(MAX_LINE_BYTES)
        header = _header(path, first)
        if header is None:
            return None
        begin = max(begin, len(first))
        file.seek(begin)
        block = file.read(size)
    whole = block.rfind(b"\n") + 1
    if not whole and len(block) > MAX_LINE_BYTES:  # no line of ours is that long: past it
        return Chunk(header, (), begin + len(block), 1, len(block) < size)
    found = [_sample(line) for line in block[:whole].splitlines()]
    samples = tuple(sample for sample in found if sample is not None)
    return Chunk(header, samples, begin + whole, len(found) - len(samples), len(block) < size)


def read_pieces(path: Path) -> Iterator[Sequence[AnySample]]:
    """All samples of a file that nobody writes to any more, a few at a time.

    Raises:
        MetricsError, OSError: as ``read_segment``.
    """
    begin = 0
    while (chunk := read_segment(path, begin, PIECE_BYTES)) is not None:
        yield chunk.samples
        if chunk.is_last:
            return
        begin = chunk.end


def _header(path: Path, line: bytes) -> Header | None:
    if not line.endswith(b"\n"):
        if len(line) < MAX_LINE_BYTES:
            return None
        raise MetricsError(f"{path}: the first line is no header of samples")
    try:
        header = _HEADER.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MetricsError(f"{path}: the first line is no header of samples ({error})") from None
    if header.version > VERSION:
        raise MetricsError(
            f"{path}: samples of format {header.version}; this sfapp reads up to {VERSION}: "
            "install a newer one"
        )
    return header


def _sample(line: bytes) -> AnySample | None:
    try:
        return _SAMPLE.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
