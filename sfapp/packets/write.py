"""Write one window as a packet file, atomically (packet.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sfapp.errors import PacketError
from sfapp.files import PathTakenError, output_writer, read_regular, write_atomic
from sfapp.model import RankTable, Window
from sfapp.model.window import NOT_MEASURED
from sfapp.packets.arrow_columns import nullable_columns
from sfapp.packets.checksum import BLANK, CHECKSUM_KEY, set_checksum
from sfapp.packets.faults import Faults
from sfapp.packets.manifest import check_attributes, check_layout, check_manifest, encode_manifest, shortened
from sfapp.packets.packet_layout import (
    HOSTNAME,
    LOCAL_RANK,
    MANIFEST_KEY,
    MAX_RANK_VALUE,
    MAX_VALUE,
    NODE_RANK,
    RANK,
    ROLE,
    SAMPLED_PREFIX,
    SIDE_PREFIX,
    STEP,
    TEXT_COLUMNS,
    WAIT_PREFIX,
    WALL,
)
from sfapp.packets.paths import part_rank_of
from sfapp.packets.reduced import check_planes, check_rows, own_values_of, values_of
from sfapp.packets.row_grid import Grid, check_ranks
from sfapp.packets.value_checks import (
    check_durations,
    check_names,
    check_range,
    check_side_channel,
    check_waits,
)
from sfapp.packets.window_draft import WindowDraft
from sfapp.terminal import first_line


def write_packet(window: Window | WindowDraft, path: Path, *, replaces: bool = True) -> int:
    """Write a window to ``path``, making its folder, and return the file's size in bytes.

    Readers see the old file or the new one. The window is checked against every rule that a reader checks.

    Args:
        replaces: whether a file of other content at ``path`` is replaced.

    Raises:
        PacketError: the window breaks a rule of the format, or the file cannot be written.
    """
    path = Path(path)
    draft = window if isinstance(window, WindowDraft) else WindowDraft.of(window)
    _check(draft, part_rank_of(path))
    ranks = draft.ranks
    manifest = replace(
        draft.manifest, layout=dict(ranks.layout) or None, attributes=shortened(ranks.attributes)
    )
    content = parquet_bytes(_table(draft), MANIFEST_KEY, encode_manifest(manifest), TEXT_COLUMNS)
    return write_whole(path, content, replaces=replaces)


def create_packet(window: Window | WindowDraft, path: Path) -> bool:
    """Write a window as ``write_packet`` does; return False if a file of other content has its path.

    Raises:
        PacketError: as ``write_packet``.
    """
    try:
        write_packet(window, path, replaces=False)
    except PacketError as error:
        if isinstance(error.__cause__, PathTakenError):
            return False
        raise
    return True


def write_whole(path: Path, content: Any, *, replaces: bool = True) -> int:
    """Write bytes to ``path`` atomically and return their number.

    Args:
        replaces: as of ``write_packet``.

    Raises:
        PacketError: the file cannot be written, or must not be replaced.
    """
    with _named_errors(path):
        try:
            return write_atomic(path, content, replaces=replaces)
        except PathTakenError:
            if not _holds(path, content):
                raise
            return len(content)


def write_output(path: Path, content: bytes) -> int:
    """Write bytes to what a user named for output (``output_writer``) and return their number.

    Raises:
        PacketError: the file cannot be written.
    """
    with _named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with output_writer(path) as file:
            return file.write(content)


def _holds(path: Path, content: Any) -> bool:
    try:
        return read_regular(path, len(content)) == bytes(content)
    except OSError:
        return False


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PacketError(
            f"cannot be written: {first_line(error.strerror or str(error))}", path=str(path)
        ) from error


def _check(window: WindowDraft, part_rank: int | None) -> None:
    """Check a window by the reader's rules; a fault's row is the row it would have in the file."""
    faults = Faults()
    check_manifest(window.manifest, faults)
    steps, ranks = window.step_N, window.ranks
    if (steps[1:] <= steps[:-1]).any():
        faults.add("steps must ascend, each once", column=STEP)
    if any(later <= earlier for earlier, later in zip(ranks.rank, ranks.rank[1:], strict=False)):
        faults.add("ranks must ascend, each once", column=RANK)
    grid = Grid(steps, np.asarray(ranks.rank, dtype=np.int64), None)
    check_range(STEP, steps, 0, MAX_VALUE, lambda cell: cell * len(ranks), faults)
    for name, values in ((RANK, ranks.rank), (LOCAL_RANK, ranks.local_rank), (NODE_RANK, ranks.node_rank)):
        check_range(name, np.asarray(values, dtype=np.int64), 0, MAX_RANK_VALUE, grid.row, faults)
    check_ranks(grid, window.manifest, part_rank, faults)
    check_layout(ranks.layout, len(ranks), faults)
    check_attributes(ranks.attributes, len(ranks), faults)
    for name, names in ((HOSTNAME, ranks.hostname), (ROLE, ranks.role)):
        check_names(name, names, grid.row, faults)
    for name, (value_NR, _) in window.side.items():
        check_side_channel(name, value_NR, grid.row, faults)
    for name in window.waits:
        if WAIT_PREFIX + name in window.stages:
            faults.add("is a stage, and the name of another stage's waits", column=WAIT_PREFIX + name)
    for name, plane in zip(window.stages, window.duration_SNR, strict=True):
        check_durations(name, plane, grid.row, faults)
        if name in window.waits:
            wait_NR = window.waits[name]
            known_NR = np.where(wait_NR == NOT_MEASURED, 0, wait_NR)
            check_durations(WAIT_PREFIX + name, known_NR, grid.row, faults)
            check_waits(name, wait_NR, plane, grid.row, faults)
    check_durations(WALL, window.wall_NR, grid.row, faults)
    if window.reduced is not None:
        check_planes(window.reduced, window.manifest, grid, faults)
        check_rows(window, grid, faults)
    faults.raise_first()


def _columns(window: WindowDraft) -> dict[str, Any]:
    """Return every column, flat, in packet.md's order; contiguous planes are not copied."""
    ranks = window.ranks
    columns: dict[str, Any] = {
        STEP: pa.array(np.repeat(window.step_N, len(ranks))),
        **_identity_columns(ranks, len(window.step_N)),
        WALL: _flat(window.wall_NR),
    }
    for name, plane in zip(window.stages, window.duration_SNR, strict=True):
        columns[name] = _flat(plane)
    for name, values_N in values_of(window).items():
        columns[name] = pa.array(np.repeat(values_N, len(ranks)))
    for name, values_N in own_values_of(window).items():
        values = np.repeat(values_N, len(ranks))
        columns[name] = pa.array(values, pa.int64(), mask=values == NOT_MEASURED)
    for name, wait_NR in window.waits.items():
        wait = wait_NR.ravel()
        columns[WAIT_PREFIX + name] = pa.array(wait, pa.int64(), mask=wait == NOT_MEASURED)
    for name, (value_NR, sampled_NR) in window.side.items():
        value = value_NR.ravel()
        columns[SIDE_PREFIX + name] = pa.array(value, pa.float64(), mask=np.isnan(value))
        columns[SAMPLED_PREFIX + name] = _flat(sampled_NR)
    return columns


@lru_cache(maxsize=1)
def _identity_columns(ranks: RankTable, steps: int) -> dict[str, Any]:
    """Return the columns that identify each row's rank, cached because all windows of a job have the same
    ranks.
    """
    return {
        RANK: _tiled(ranks.rank, steps),
        LOCAL_RANK: _tiled(ranks.local_rank, steps),
        NODE_RANK: _tiled(ranks.node_rank, steps),
        HOSTNAME: _tiled_text(ranks.hostname, steps),
        ROLE: _tiled_text(ranks.role, steps),
    }


def _table(window: WindowDraft) -> Any:
    columns = _columns(window)
    nullable = nullable_columns(window.manifest, window.waits)
    fields = [
        pa.field(name, column.type, nullable=name in nullable or name.startswith(SIDE_PREFIX))
        for name, column in columns.items()
    ]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _flat(values: np.ndarray[Any, Any]) -> Any:
    return pa.array(values.ravel())


def _tiled(values: tuple[int, ...], times: int) -> Any:
    return pa.array(np.tile(np.asarray(values, dtype=np.int32), times))


def _tiled_text(values: tuple[str | None, ...], times: int) -> Any:
    distinct = tuple(dict.fromkeys(value for value in values if value is not None))
    code_of: dict[str | None, int] = {value: code for code, value in enumerate(distinct)}
    code = np.tile(np.asarray([code_of.get(value, -1) for value in values], dtype=np.int32), times)
    null = code < 0
    indices = pa.array(code, mask=null) if null.any() else pa.array(code)
    return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, pa.string()))


def parquet_bytes(table: Any, key: bytes, head: bytes, texts: Collection[str]) -> Any:
    """Return a file's bytes, with one row group, a checksum on every page and one of the whole file.

    One row group lets a reader find each plane in one piece. The file is built in memory, because writing to
    a Python file would take the interpreter lock for every page. Pages of version 2 are left uncompressed
    where compression gains nothing, as in most duration columns, which makes reading 30 % faster.

    Args:
        key, head: key and value of the footer's metadata.
        texts: columns of names, stored with a dictionary. Integers are stored as differences.
    """
    schema = table.schema
    integers = [field.name for field in schema if pa.types.is_integer(field.type)]
    content = pa.BufferOutputStream()
    with pq.ParquetWriter(
        content,
        schema,
        compression="zstd",
        use_dictionary=[name for name in texts if name in schema.names],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        data_page_version="2.0",
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
        writer.add_key_value_metadata({key: head, CHECKSUM_KEY: BLANK})
    found = content.getvalue()
    set_checksum(found)
    return found
