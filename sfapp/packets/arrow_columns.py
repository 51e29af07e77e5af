"""Decode the bytes of a file into NumPy columns; everything that uses pyarrow for reading.

Everything that the footer reveals (columns, types, sizes) is checked before a page is decoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sfapp.compiled_modules import compiled_from
from sfapp.errors import PacketError
from sfapp.model import OWN_PLANES, PLANES, Manifest
from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.packets import page_sizes
from sfapp.packets.checksum import check_checksum
from sfapp.packets.faults import Faults, and_more, arrow_errors
from sfapp.packets.packet_layout import (
    FIXED_COLUMNS,
    MANIFEST_KEY,
    NO_MANIFEST,
    OWN_KEYS,
    REDUCED_PREFIX,
    ROLE,
    SAMPLED_PREFIX,
    SIDE_PREFIX,
    TEXT_COLUMNS,
    WAIT_PREFIX,
    WALL,
    Limits,
)
from sfapp.terminal import quoted

_PAGE_SIZES = compiled_from(page_sizes) or page_sizes

IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Text:
    """String column: ``values[code]`` for each row, -1 for null."""

    code: IntArray
    values: tuple[str, ...]


def _open(data: bytes, dictionaries: Sequence[str]) -> Any:
    return pq.ParquetFile(
        pa.BufferReader(data),
        read_dictionary=list(dictionaries),
        pre_buffer=False,
        page_checksum_verification=True,
    )


def fault_in_tail(tail: bytes) -> str:
    """Return why a file with these last bytes is no packet and holds no operator events; empty if it may be.

    A footer that begins before them is not examined.
    """
    if tail[-4:] != b"PAR1":
        return "not a readable Parquet file: Parquet magic bytes not found in footer"
    footer = 8 + int.from_bytes(tail[-8:-4], "little")
    if footer <= len(tail) and OWN_KEYS not in tail[-footer:]:
        return f"{NO_MANIFEST} (only the end of the file was read)"
    return ""


class PacketFile:
    """Open packet whose footer is read and whose columns are not decoded yet.

    Raises:
        PacketError: the bytes are not a Parquet file, or differ from their checksum.
    """

    def __init__(
        self, data: bytes, texts: Sequence[str] = TEXT_COLUMNS, manifest_key: bytes = MANIFEST_KEY
    ) -> None:
        check_checksum(data)
        self.size = len(data)
        self._data = data
        self._manifest_key = manifest_key
        with arrow_errors():
            try:
                self._file = _open(data, texts)
            except KeyError:  # One of them is absent; check_columns reports it more clearly.
                self._file = _open(data, ())
            self._metadata = self._file.metadata
            self._schema = self._file.schema_arrow
            self.names: list[str] = self._schema.names
            self.types: list[Any] = self._schema.types
            self.rows: int = self._metadata.num_rows

    @property
    def layout(self) -> str:
        """Return a hash of the names and types of all columns, in order: files with the same hash can be read
        together."""
        described = repr(list(zip(self.names, map(str, self.types), strict=True)))
        return hashlib.sha256(described.encode(errors="backslashreplace")).hexdigest()[:16]

    @property
    def manifest_json(self) -> bytes | None:
        """Return the manifest's bytes, or None if there is none."""
        with arrow_errors():
            found: bytes | None = (self._metadata.metadata or {}).get(self._manifest_key)
            return found

    def decoded_bytes(self, columns: int) -> int:
        """Return the memory of this many decoded columns, at 8 bytes per value."""
        return 8 * self.rows * columns

    def expanded_bytes(self, columns: int) -> int:
        """Return the memory that the file takes by its footer and the headers of its pages: its expanded
        pages, or so many decoded columns, whichever is more.

        Raises:
            PacketError: the footer or a header is damaged.
        """
        return max(self._pages_bytes, self.decoded_bytes(columns))

    @cached_property
    def _pages_bytes(self) -> int:
        # pyarrow does not examine single column chunks here: damage in them would end the process with a C++
        # exception, whereas its reader reports the same damage as a Python exception.
        with arrow_errors():
            groups = range(self._metadata.num_row_groups)
            claimed: int = sum(self._metadata.row_group(index).total_byte_size for index in groups)
        expanded: int = _PAGE_SIZES.expanded_pages(self._data)
        return max(claimed, expanded)

    def decode(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return these columns decoded, as pyarrow chunked arrays.

        They are read in batches up to the checked number of rows; reading a whole column would trust the
        number that its chunk claims. Row groups may claim more rows, too.

        Raises:
            PacketError: a page is damaged.
        """
        wanted = None if list(columns) == self.names else list(columns)
        with arrow_errors():
            batches, rows = [], 0
            for batch in self._file.iter_batches(self.rows, columns=wanted, use_threads=False):
                batches.append(batch)
                rows += batch.num_rows
                if rows > self.rows:
                    break
            if rows != self.rows:
                more = "or more " if rows > self.rows else ""
                raise PacketError(f"{rows} {more}rows in a file that claims {self.rows}")
            table = pa.Table.from_batches(batches)
            return {name: table.column(name) for name in columns}


def side_channels(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the side channels among these columns, in their order."""
    return tuple(
        dict.fromkeys(
            name.removeprefix(prefix)
            for name in names
            for prefix in (SIDE_PREFIX, SAMPLED_PREFIX)
            if name.startswith(prefix)
        )
    )


def measured_waits(names: Sequence[str], manifest: Manifest) -> tuple[str, ...]:
    """Return the stages whose waits are among these columns. A stage with the name of another stage's waits
    is a stage."""
    columns = set(names) - set(manifest.stages)
    return tuple(stage for stage in manifest.stages if WAIT_PREFIX + stage in columns)


def needed_columns(manifest: Manifest, channels: Sequence[str], waits: Sequence[str] = ()) -> tuple[str, ...]:
    """Return every column that a reader decodes; others in the file are ignored."""
    sides = (prefix + name for name in channels for prefix in (SIDE_PREFIX, SAMPLED_PREFIX))
    waited = (WAIT_PREFIX + stage for stage in waits)
    return (*FIXED_COLUMNS, *manifest.stages, *waited, *reduced_columns(manifest), *sides)


def column_of(plane: str, stage: str) -> str:
    """Return the name of the column with a plane of one stage of a reduced window."""
    return f"{REDUCED_PREFIX}{plane}.{stage}"


def reduced_columns(manifest: Manifest) -> tuple[str, ...]:
    """Return the additional columns of a reduced window; none for other windows."""
    if manifest.reduced is None:
        return ()
    planes = (column_of(plane, stage) for plane in PLANES for stage in manifest.stages)
    return (*planes, *own_columns(manifest))


def own_columns(manifest: Manifest) -> tuple[str, ...]:
    """Return those of them that are null where the waits of some rank are not known."""
    waited = () if manifest.reduced is None else manifest.reduced.waits
    return tuple(column_of(plane, stage) for plane in OWN_PLANES for stage in waited)


def check_columns(
    file: PacketFile, manifest: Manifest, channels: Sequence[str], waits: Sequence[str], faults: Faults
) -> bool:
    """Return whether each needed column exists once with a suitable type, and report the others."""
    before = len(faults.found)
    types = dict(zip(file.names, file.types, strict=True))
    counted: dict[str, int] = {}
    for name in file.names:
        counted[name] = counted.get(name, 0) + 1
    stages = frozenset(manifest.stages)
    durations = stages | {WALL, *reduced_columns(manifest), *(WAIT_PREFIX + stage for stage in waits)}
    for name in needed_columns(manifest, channels, waits):
        if name not in types:
            what = "a stage of the manifest is no column" if name in stages else "the column is missing"
            faults.add(what, column=name)
        elif counted[name] > 1:
            faults.add(f"{counted[name]} columns have this name", column=name)
        else:
            _check_type(name, types[name], name in durations, faults)
    for name in channels:
        if len(name) > MAX_NAME_LENGTH:
            faults.add(f"side channel {quoted(name)} has more than {MAX_NAME_LENGTH} characters")
    return len(faults.found) == before


def _check_type(name: str, kind: Any, is_duration: bool, faults: Faults) -> None:
    types = pa.types
    if name in TEXT_COLUMNS:
        value = kind.value_type if types.is_dictionary(kind) else kind
        fits, wanted = types.is_string(value) or types.is_large_string(value), "strings"
    elif is_duration:
        fits, wanted = types.is_integer(kind), "whole nanoseconds (never NaN or infinite)"
    elif name.startswith(SIDE_PREFIX):
        fits, wanted = types.is_floating(kind), "floating-point numbers"
    elif name.startswith(SAMPLED_PREFIX):
        fits, wanted = types.is_boolean(kind), "true or false"
    else:
        fits, wanted = types.is_integer(kind), "integers"
    if not fits:
        faults.add(f"holds {quoted(str(kind))[1:-1]}, not {wanted}", column=name)


def check_size(
    file: PacketFile, manifest: Manifest, columns: Sequence[str], limits: Limits, faults: Faults
) -> bool:
    """Return whether the file has rows and keeps within the limits, before any of it is decoded."""
    before = len(faults.found)
    if file.rows <= 0:
        faults.add("the file has no rows")
    cells = file.rows * len(manifest.stages)
    if cells > limits.max_cells:
        faults.add(
            f"{file.rows:,} rows × {len(manifest.stages)} stages are {cells:,} cells, "
            f"more than the {limits.max_cells:,} allowed"
        )
    expanded = file.expanded_bytes(len(columns))
    if expanded > limits.max_bytes:
        faults.add(f"expands to {expanded:,} bytes, more than the {limits.max_bytes:,} allowed")
    else:
        check_ratio(file, columns_of_rows(columns), limits, faults)
    return len(faults.found) == before


def columns_of_rows(columns: Sequence[str]) -> int:
    """Return the number of columns with a separate value in each row; the others repeat the value of a
    step."""
    return sum(not name.startswith(REDUCED_PREFIX) for name in columns)


def check_ratio(file: PacketFile, columns: int, limits: Limits, faults: Faults) -> None:
    """Report a file whose expanded size, according to its footer, exceeds the limit for its size. Nothing is
    decoded."""
    expanded = file.expanded_bytes(columns)
    if expanded > (allowed := max(limits.least_expanded, limits.max_ratio * file.size)):
        faults.add(
            f"expands from {file.size:,} to {expanded:,} bytes, more than the {allowed:,} allowed for its "
            "size: what a job measured does not shrink that far"
        )


def nullable_columns(manifest: Manifest, waits: Iterable[str]) -> frozenset[str]:
    """Return the columns that may have nulls, besides side channels."""
    return frozenset((ROLE, *(WAIT_PREFIX + stage for stage in waits), *own_columns(manifest)))


def is_full(name: str, column: Any, nullable: frozenset[str], faults: Faults) -> bool:
    """Return whether a column has no null or may have some, and report the first one otherwise."""
    if not column.null_count or name in nullable or name.startswith(SIDE_PREFIX):
        return True
    faults.add(f"is null{and_more(column.null_count - 1)}", row=_first_null(column), column=name)
    return False


def _first_null(column: Any) -> int:
    with arrow_errors():
        return int(np.argmax(column.is_null().to_numpy()))


def integers(column: Any) -> np.ndarray[Any, Any]:
    """Return an integer column without nulls as one array of its own width, copied only if it has several
    chunks.
    """
    parts = [chunk.to_numpy(zero_copy_only=True) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def nullable_integers(column: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return an integer column as one array, 0 for null, and where it is null."""
    with arrow_errors():
        return integers(column.fill_null(0)), np.asarray(column.is_null().to_numpy())


def text(column: Any) -> Text:
    """Return a string column as codes and values.

    Raises:
        PacketError: a value is not UTF-8, or a code has no value.
    """
    with arrow_errors():
        column.validate(full=True)  # pyarrow does not check the codes of a damaged file.
        if column.num_chunks > 1:  # Row groups have dictionaries of their own.
            column = column.unify_dictionaries()
        if column.null_count == len(column):  # Usual for roles; saves a tenth of reading.
            return Text(np.full(len(column), -1), ())
        indices = [
            chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices for chunk in column.chunks
        ]
        code = integers(pa.chunked_array(indices))
        dictionary = column.chunk(0).dictionary
        if len(dictionary) > len(code):  # Most values are unused; do not make Python strings of them.
            used = np.unique(code[code >= 0])
            dictionary = dictionary.take(pa.array(used))
            code = np.where(code < 0, -1, np.searchsorted(used, code))
        return Text(code, tuple(dictionary.to_pylist()))


def floats(column: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a floating-point column as float64, NaN for null."""
    with arrow_errors():
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def booleans(column: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a boolean column without nulls."""
    with arrow_errors():
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)
