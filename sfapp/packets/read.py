"""Read one packet file: hash it, check every rule of packet.md and build its window.

A file is read from disk once, hashed, and parsed from memory, so that the checked bytes are the hashed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from sfapp.errors import PacketError
from sfapp.files import may_pass
from sfapp.model import DIMENSIONS, Manifest, RankTable, Window
from sfapp.model.window import NOT_MEASURED
from sfapp.packets.arrow_columns import (
    IntArray,
    PacketFile,
    booleans,
    check_columns,
    check_size,
    columns_of_rows,
    fault_in_tail,
    floats,
    integers,
    measured_waits,
    needed_columns,
    nullable_columns,
    nullable_integers,
    side_channels,
    text,
)
from sfapp.packets.attempts import placed
from sfapp.packets.column_access import Columns, decoded
from sfapp.packets.faults import Faults
from sfapp.packets.manifest import check_attributes, check_layout, check_manifest, decode_manifest
from sfapp.packets.memory_budget import PROCESS_BUDGET
from sfapp.packets.packet_layout import (
    HOSTNAME,
    LOCAL_RANK,
    MAX_RANK_VALUE,
    NO_MANIFEST,
    NODE_RANK,
    RANK,
    ROLE,
    SAMPLED_PREFIX,
    SIDE_PREFIX,
    STEP,
    TEXT_COLUMNS,
    WAIT_PREFIX,
    WALL,
    Limits,
)
from sfapp.packets.paths import is_thinned, part_rank_of
from sfapp.packets.reduced import check_rows, read_planes
from sfapp.packets.row_grid import Grid, check_ranks, check_same_every_step, grid_of
from sfapp.packets.value_checks import (
    check_durations,
    check_names,
    check_range,
    check_side_channel,
    check_waits,
)
from sfapp.packets.window_draft import BoolArray, FloatArray, WindowDraft
from sfapp.storage import FileContent, StoragePath, location, storage_of

DEFAULT_LIMITS = Limits()

_THINNED = (
    "window {} was thinned (sfapp compact), and its verdict stays; open the part in a folder of its own"
)
"""Why a part is refused that comes after the rows which it could be compared and merged with are gone."""

_MEMORY_FACTOR = 2
"""Memory for reading a packet, relative to the memory of its columns."""


@dataclass(frozen=True, slots=True)
class Packet:
    """Packet file and the window, or part of a window, in it.

    Attributes:
        size, sha256: of the file, in bytes and in hex.
        part_rank: rank of the part; None for a whole window.
        mtime_ns: modification time, ns since 1970; the newer of two files is used.
        layout: hash of the names and types of its columns.
    """

    window: Window
    path: StoragePath
    size: int
    sha256: str
    part_rank: int | None
    mtime_ns: int
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Refused file with the first reason in one line. ``sha256`` is empty if it is not read.

    Attributes:
        may_pass: whether the reason says nothing of the file, which may be read later.
    """

    path: StoragePath
    size: int
    sha256: str
    reason: str
    may_pass: bool = False


def read_packet(path: StoragePath, limits: Limits = DEFAULT_LIMITS) -> Packet:
    """Return the packet in a file, after all checks.

    Raises:
        PacketError: the first fault found, with row and column if it has them.
        PacketVersionError: the file is of a newer format.
    """
    path = location(path)
    try:
        return _packet(path, fetch(path, limits), limits)
    except PacketError as error:
        raise at_path(path, error) from error


def load_packet(path: StoragePath, limits: Limits = DEFAULT_LIMITS) -> Packet | Quarantined:
    """Return the packet in a file, or the reason why it is refused. No content of a file raises.

    A part that a rank of a streamed job wrote has its window's number in the run (``attempts.placed``). A
    part of a window that was thinned is refused: it would replace the verdict on all of its ranks and steps.
    Safe to call from many threads at once.
    """
    path = location(path)
    try:
        content = fetch(path, limits)
    except PacketError as error:
        return _not_read(path, error)
    return _loaded(path, content, limits)


def load_packets(
    paths: Iterable[StoragePath], limits: Limits = DEFAULT_LIMITS
) -> Iterator[Packet | Quarantined]:
    """Yield what ``load_packet`` returns for each file, in order; a remote storage fetches ahead."""
    for storage, group in groupby(paths, storage_of):
        of_storage = list(group)
        contents = storage.fetch_ahead(of_storage, limits.max_bytes, fault_in_tail)
        for path, content in zip(of_storage, contents, strict=True):
            if isinstance(content, PacketError):
                yield _not_read(path, content)
            else:
                yield _loaded(path, content, limits)


def validate_packet(path: StoragePath, limits: Limits = DEFAULT_LIMITS) -> list[PacketError]:
    """Return every fault of one packet file; empty if it has none.

    A fault that makes the rest unreadable ends the list. A fault in many rows of a column is listed once, at
    its first row, with their number.
    """
    path = location(path)
    faults = Faults()
    try:
        content = fetch(path, limits)
        _parse(PacketFile(data_of(content, limits)), part_rank_of(path), limits, faults)
    except PacketError as error:
        faults.found.append(error)
    return [at_path(path, error) for error in faults.found]


def at_path(path: StoragePath, error: PacketError) -> PacketError:
    """Return the same error with the file's path."""
    return type(error)(error.reason, path=str(path), row=error.row, column=error.column)


def fetch(path: StoragePath, limits: Limits) -> FileContent:
    """Return a file's bytes and their hash; only the hash if the file is larger than the limits.

    Raises:
        PacketError: it cannot be read, or is no regular file.
    """
    return storage_of(path).fetch(path, limits.max_bytes, fault_in_tail)


def data_of(content: FileContent, limits: Limits) -> bytes:
    """Return the bytes of a file that has been read.

    Raises:
        PacketError: it is larger than the limits, or its end shows that it is of no use.
    """
    if content.fault:
        raise PacketError(content.fault)
    if content.data is None:
        raise PacketError(f"{content.size:,} bytes on disk, more than the {limits.max_bytes:,} allowed")
    return content.data


def _loaded(path: StoragePath, content: FileContent, limits: Limits) -> Packet | Quarantined:
    try:
        packet = _packet(path, content, limits)
    except PacketError as error:
        return Quarantined(path, content.size, content.sha256, error.fault)
    window = packet.window
    try:
        manifest = placed(window.manifest, window.ranks.rank[0], path)
    except PacketError as error:
        return _not_read(path, error)
    if packet.part_rank is not None and is_thinned(path.parent, manifest.window):
        return Quarantined(path, content.size, content.sha256, _THINNED.format(manifest.window))
    if manifest is window.manifest:
        return packet
    return replace(packet, window=replace(window, manifest=manifest))


def _not_read(path: StoragePath, error: PacketError) -> Quarantined:
    return Quarantined(path, 0, "", error.fault, may_pass(error))


def _packet(path: StoragePath, content: FileContent, limits: Limits) -> Packet:
    part_rank = part_rank_of(path)
    faults = Faults()
    try:
        file = PacketFile(data_of(content, limits))
        window = _parse(file, part_rank, limits, faults)
    except PacketError as last:
        raise (faults.found[0] if faults.found else last) from last
    if window is None:
        raise faults.found[0]
    return Packet(window, path, content.size, content.sha256, part_rank, content.mtime_ns, file.layout)


def _parse(file: PacketFile, part_rank: int | None, limits: Limits, faults: Faults) -> Window | None:
    """Return the window in a file, or None with the faults reported. Each part is checked only if the
    parts it depends on are valid.
    """
    raw = file.manifest_json
    if raw is None:
        raise PacketError(NO_MANIFEST)
    manifest = decode_manifest(raw)
    channels = side_channels(file.names)
    waited = measured_waits(file.names, manifest)
    needed = needed_columns(manifest, channels, waited)
    if not (
        check_manifest(manifest, faults)
        and check_columns(file, manifest, channels, waited, faults)
        and check_size(file, manifest, needed, limits, faults)
    ):
        return None
    with PROCESS_BUDGET.reserve(_MEMORY_FACTOR * file.decoded_bytes(columns_of_rows(needed))):
        columns = decoded(file, needed, nullable_columns(manifest, waited), faults)
        return _window(columns, manifest, channels, waited, part_rank, faults)


def _window(
    columns: Columns,
    manifest: Manifest,
    channels: Sequence[str],
    waited: Sequence[str],
    part_rank: int | None,
    faults: Faults,
) -> Window | None:
    """Return the window in these columns, or None with the faults reported."""
    step, rank = columns.get(STEP), columns.get(RANK)
    grid = None if step is None or rank is None else grid_of(integers(step), integers(rank), faults)
    if grid is None:
        return None
    check_ranks(grid, manifest, part_rank, faults)
    duration_SNR = _durations(columns, manifest, grid, faults)
    wall_NR = _wall(columns, grid, faults)
    ranks = _identities(columns, manifest, grid, faults)
    side = _side_channels(columns, channels, grid, faults)
    measured = _waits(columns, waited, duration_SNR, manifest, grid, faults)
    reduced = None if manifest.reduced is None else read_planes(columns, manifest, grid, faults)
    if faults.found or ranks is None or wall_NR is None:
        return None
    draft = WindowDraft(
        manifest=replace(manifest, layout=None, attributes=None),
        duration_SNR=duration_SNR,
        wall_NR=_own(wall_NR, np.int64),
        step_N=grid.step_N,
        ranks=ranks,
        side=side,
        waits=measured,
        reduced=reduced,
    )
    check_rows(draft, grid, faults)
    return None if faults.found else draft.window()


def _own(values: np.ndarray[Any, Any], kind: type) -> Any:
    """Return a writable copy: arrays that pyarrow decoded are read-only."""
    return np.array(values, dtype=kind, order="C")


# A column with nulls has been reported and is absent from ``columns``; the checks below use the others.


def _durations(columns: Columns, manifest: Manifest, grid: Grid, faults: Faults) -> IntArray:
    """Return the stage-major matrix, int64 [S, N, R], copying each plane once."""
    planes = np.empty((len(manifest.stages), *grid.shape), dtype=np.int64)
    for plane, stage in zip(planes, manifest.stages, strict=True):
        if stage in columns:
            values = grid.arrange(integers(columns[stage]))
            check_durations(stage, values, grid.row, faults)
            plane[...] = values
    return planes


def _waits(
    columns: Columns,
    stages: Sequence[str],
    duration_SNR: IntArray,
    manifest: Manifest,
    grid: Grid,
    faults: Faults,
) -> dict[str, IntArray]:
    """Return the waits of these stages, int64 ns [N, R]."""
    found = {}
    for stage in stages:
        column = WAIT_PREFIX + stage
        values, is_null = nullable_integers(columns[column])
        wait_NR = grid.arrange(values)
        check_durations(column, wait_NR, grid.row, faults)
        if stage in columns:
            duration_NR = duration_SNR[manifest.stages.index(stage)]
            check_waits(stage, wait_NR, duration_NR, grid.row, faults)
        found[stage] = np.where(grid.arrange(is_null), NOT_MEASURED, wait_NR.astype(np.int64))
    return found


def _wall(columns: Columns, grid: Grid, faults: Faults) -> np.ndarray[Any, Any] | None:
    if WALL not in columns:
        return None
    values = grid.arrange(integers(columns[WALL]))
    check_durations(WALL, values, grid.row, faults)
    return values


def _identities(columns: Columns, manifest: Manifest, grid: Grid, faults: Faults) -> RankTable | None:
    """Return the ranks from the first step's rows and the manifest's layout and attributes, after checking
    that all rows agree."""
    layout, attributes = manifest.layout or {}, manifest.attributes or {}
    check_layout(layout, len(grid.rank_R), faults)
    check_attributes(attributes, len(grid.rank_R), faults)
    numbers = {}
    for name in (LOCAL_RANK, NODE_RANK):
        if name in columns:
            values = grid.arrange(integers(columns[name]))
            check_same_every_step(name, values, grid, faults)
            check_range(name, values[0], 0, MAX_RANK_VALUE, grid.row, faults)
            numbers[name] = tuple(values[0].tolist())
    names = {name: _names(name, columns[name], grid, faults) for name in TEXT_COLUMNS if name in columns}
    if len(numbers) + len(names) < 4:
        return None
    return RankTable(
        rank=tuple(grid.rank_R.tolist()),
        local_rank=numbers[LOCAL_RANK],
        node_rank=numbers[NODE_RANK],
        hostname=tuple(name or "" for name in names[HOSTNAME]),
        role=names[ROLE],
        layout={name: layout[name] for name in DIMENSIONS if name in layout},
        attributes={
            name: values * len(grid.rank_R) if len(values) == 1 else values
            for name, values in attributes.items()
        },
    )


def _names(name: str, column: Any, grid: Grid, faults: Faults) -> tuple[str | None, ...]:
    found = text(column)
    code_NR = grid.arrange(found.code)
    check_same_every_step(name, code_NR, grid, faults)
    check_names(name, found.values, lambda code: grid.row(int((code_NR == code).argmax())), faults)
    by_code = (*found.values, None)  # Code -1 stands for null.
    return tuple(map(by_code.__getitem__, code_NR[0].tolist()))


def _side_channels(
    columns: Columns, names: Sequence[str], grid: Grid, faults: Faults
) -> dict[str, tuple[FloatArray, BoolArray]]:
    found = {}
    for name in names:
        value_NR = grid.arrange(floats(columns[SIDE_PREFIX + name]))
        check_side_channel(name, value_NR, grid.row, faults)
        if SAMPLED_PREFIX + name in columns:
            sampled_NR = grid.arrange(booleans(columns[SAMPLED_PREFIX + name]))
            found[name] = (_own(value_NR, np.float64), _own(sampled_NR, np.bool_))
    return found
