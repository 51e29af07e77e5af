"""From the bytes of a file to plain numpy columns: all that touches pyarrow when reading.

Everything that can be told from the footer (columns, types, sizes) is checked before a page is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sfapp.errors import PacketError
from sfapp.model import PLANES, Manifest
from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.packets.faults import Faults, and_more, arrow_errors
from sfapp.packets.packet_layout import (
    FIXED_COLUMNS,
    MANIFEST_KEY,
    REDUCED_PREFIX,
    ROLE,
    SAMPLED_PREFIX,
    SIDE_PREFIX,
    TEXT_COLUMNS,
    WALL,
    Limits,
)
from sfapp.terminal import quoted

IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Text:
    """A string column: ``values[code]`` for each row, -1 standing for null."""

    code: IntArray
    values: tuple[str, ...]


def _open(data: bytes, dictionaries: Sequence[str]) -> Any:
    return pq.ParquetFile(
        pa.BufferReader(data),
        read_dictionary=list(dictionaries),
        pre_buffer=False,
        page_checksum_verification=True,
    )


class PacketFile:
    """An open packet: its footer read, nothing decoded yet.

    Raises:
        PacketError: the bytes are not a Parquet file.
    """

    def __init__(
        self, data: bytes, texts: Sequence[str] = TEXT_COLUMNS, manifest_key: bytes = MANIFEST_KEY
    ) -> None:
        self._manifest_key = manifest_key
        with arrow_errors():
            try:
                self._file = _open(data, texts)
            except KeyError:  # one of them is absent, which check_columns says in better words
                self._file = _open(data, ())
            self._metadata = self._file.metadata
            self._schema = self._file.schema_arrow
            self.names: list[str] = self._schema.names
            self.types: list[Any] = self._schema.types
            self.rows: int = self._metadata.num_rows

    @property
    def manifest_json(self) -> bytes | None:
        """The manifest as written, None where there is none."""
        with arrow_errors():
            found: bytes | None = (self._metadata.metadata or {}).get(self._manifest_key)
            return found

    def expanded_bytes(self, columns: int) -> int:
        """What the file takes in memory, by its footer: its pages expanded, or 8 bytes a value of so many
        columns, whichever is more.

        Nothing is asked of single column chunks: pyarrow lets an exception of C++ pass there, so that damage
        in them would end the process, where its reader reports the same damage in good order.
        """
        with arrow_errors():
            groups = range(self._metadata.num_row_groups)
            pages: int = sum(self._metadata.row_group(index).total_byte_size for index in groups)
        return max(pages, 8 * self.rows * columns)

    def decode(self, columns: Sequence[str]) -> dict[str, Any]:
        """These columns as pyarrow chunked arrays, decoded.

        Taken as batches, because those end at the number of rows that has been checked, where reading a whole
        column would follow what its own chunk claims to hold.

        Raises:
            PacketError: a page is damaged.
        """
        wanted = None if list(columns) == self.names else list(columns)
        with arrow_errors():
            batches = list(self._file.iter_batches(self.rows, columns=wanted, use_threads=False))
            table = pa.Table.from_batches(batches)
            if table.num_rows != self.rows:
                raise PacketError(f"{table.num_rows} rows in a file that claims {self.rows}")
            return {name: table.column(name) for name in columns}


def side_channels(names: Sequence[str]) -> tuple[str, ...]:
    """The names of the side channels among these columns, in their order."""
    return tuple(
        dict.fromkeys(
            name.removeprefix(prefix)
            for name in names
            for prefix in (SIDE_PREFIX, SAMPLED_PREFIX)
            if name.startswith(prefix)
        )
    )


def needed_columns(manifest: Manifest, channels: Sequence[str]) -> tuple[str, ...]:
    """Every column a reader decodes; any other in the file is ignored."""
    sides = (prefix + name for name in channels for prefix in (SIDE_PREFIX, SAMPLED_PREFIX))
    return (*FIXED_COLUMNS, *manifest.stages, *reduced_columns(manifest), *sides)


def column_of(plane: str, stage: str) -> str:
    """The column that holds a plane of one stage of a reduced window."""
    return f"{REDUCED_PREFIX}{plane}.{stage}"


def reduced_columns(manifest: Manifest) -> tuple[str, ...]:
    """The columns that a reduced window has beside those of every packet; none for any other."""
    if manifest.reduced is None:
        return ()
    return tuple(column_of(plane, stage) for plane in PLANES for stage in manifest.stages)


def check_columns(file: PacketFile, manifest: Manifest, channels: Sequence[str], faults: Faults) -> bool:
    """Whether the needed columns are there, each once and of a type that holds what it means; report those
    that are not."""
    before = len(faults.found)
    types = dict(zip(file.names, file.types, strict=True))
    counted: dict[str, int] = {}
    for name in file.names:
        counted[name] = counted.get(name, 0) + 1
    stages = frozenset(manifest.stages)
    durations = stages | {WALL, *reduced_columns(manifest)}
    for name in needed_columns(manifest, channels):
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
    """Whether the file has rows and keeps within the limits, told before any of it is decoded."""
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
    return len(faults.found) == before


def without_nulls(columns: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """The columns that are full where they must be; of any other the first null is reported."""
    full = {}
    for name, column in columns.items():
        if column.null_count and name != ROLE and not name.startswith(SIDE_PREFIX):
            faults.add(f"is null{and_more(column.null_count - 1)}", row=_first_null(column), column=name)
        else:
            full[name] = column
    return full


def _first_null(column: Any) -> int:
    with arrow_errors():
        return int(np.argmax(column.is_null().to_numpy()))


def integers(column: Any) -> np.ndarray[Any, Any]:
    """An integer column without nulls as one array of its own width; not copied if it is one chunk."""
    parts = [chunk.to_numpy(zero_copy_only=True) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def text(column: Any) -> Text:
    """A string column as codes and values.

    Raises:
        PacketError: a value is not UTF-8, or a code stands for no value.
    """
    with arrow_errors():
        column.validate(full=True)  # pyarrow takes codes from a damaged file as they come
        if column.num_chunks > 1:  # row groups have dictionaries of their own
            column = column.unify_dictionaries()
        indices = [
            chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices for chunk in column.chunks
        ]
        code = integers(pa.chunked_array(indices))
        dictionary = column.chunk(0).dictionary
        if len(dictionary) > len(code):  # most of it unused: not worth as many Python strings
            used = np.unique(code[code >= 0])
            dictionary = dictionary.take(pa.array(used))
            code = np.where(code < 0, -1, np.searchsorted(used, code))
        return Text(code, tuple(dictionary.to_pylist()))


def floats(column: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A floating-point column as float64, NaN for null."""
    with arrow_errors():
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def booleans(column: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A column of true and false without nulls."""
    with arrow_errors():
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)
