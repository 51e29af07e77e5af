"""Read and write files of operator events of a window, or of one rank of it (operators.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sfapp.errors import PacketError, PacketVersionError, WindowError
from sfapp.model import CATEGORIES, Lane, Operators
from sfapp.model.operators import NONE, event_order
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.packets.arrow_columns import PacketFile, Text, booleans, check_ratio, integers, text
from sfapp.packets.column_access import Columns, decoded
from sfapp.packets.faults import Faults, and_more
from sfapp.packets.manifest import check_name
from sfapp.packets.memory_budget import PROCESS_BUDGET
from sfapp.packets.packet_layout import MAX_RANK_VALUE, MAX_VALUE, RANK, STEP, Limits
from sfapp.packets.paths import operator_files_of, part_rank_of
from sfapp.packets.read import DEFAULT_LIMITS, at_path, data_of, fetch
from sfapp.packets.value_checks import check_range, is_unicode
from sfapp.packets.write import parquet_bytes, write_whole
from sfapp.storage import StoragePath, location
from sfapp.terminal import first_line, quoted

OPERATORS_KEY = b"sfapp.operators"
"""Parquet footer key of the file's metadata."""

OPERATORS_FORMAT = 1

LANE, DEVICE, NAME, CATEGORY, START, END = "lane", "device", "name", "category", "start_ns", "end_ns"
CORRELATION, GROUP, SEQUENCE, AUTOGRAD = "correlation", "group", "sequence", "autograd"

_TEXTS = (LANE, NAME, CATEGORY, GROUP)
_OPTIONAL = (STEP, CORRELATION, GROUP, SEQUENCE, AUTOGRAD)
_COLUMNS = (
    *(RANK, LANE, DEVICE, STEP, NAME, CATEGORY, START, END),
    *(CORRELATION, GROUP, SEQUENCE, AUTOGRAD),
)
_NUMBERS = {
    RANK: (0, MAX_RANK_VALUE),
    STEP: (0, MAX_VALUE),
    START: (-MAX_VALUE // 2, MAX_VALUE),  # The difference of any two fits 64 bits.
    END: (-MAX_VALUE // 2, MAX_VALUE),
    CORRELATION: (0, MAX_VALUE),
    SEQUENCE: (0, MAX_VALUE),
    AUTOGRAD: (0, MAX_VALUE),
}

MAX_OPERATOR_NAME = 2**14
"""Longest name of an event, in characters; names of generated kernels have thousands."""


_EVENT_BYTES = 150
"""Memory per event while its file is read."""

_WIDE_COLUMNS = 7
"""Columns of 8-byte numbers that determine the expanded size of a file. Traces have 4 to 9 bytes per
event."""


class _OperatorsFooter(msgspec.Struct, frozen=True):
    """Metadata in the footer of the file."""

    format: int
    run_id: str
    window: int


def write_operators(operators: Operators, run_id: str, window: int, path: Path) -> int:
    """Write the events of a window to ``path``, making its folder, and return the file's size in bytes.

    Readers see the whole file or none. The events are checked against every rule that a reader checks.

    Raises:
        PacketError: there are no events, they break a rule of the format, or the file cannot be written.
    """
    path = Path(path)
    head = _OperatorsFooter(OPERATORS_FORMAT, run_id, window)
    faults = Faults()
    _check_head(head, faults)
    faults.raise_first()
    if not len(operators):
        raise PacketError("there are no operator events: leave the file out", path=str(path))
    _check_cells(len(operators), DEFAULT_LIMITS, faults)
    _check(operators, part_rank_of(path), faults)
    faults.raise_first()
    return write_whole(
        path, parquet_bytes(_table(operators), OPERATORS_KEY, msgspec.json.encode(head), _TEXTS)
    )


def read_operators(path: StoragePath, limits: Limits = DEFAULT_LIMITS) -> Operators:
    """Return the operator events of one file.

    Raises:
        PacketVersionError: the file is of a newer format.
        PacketError: the file breaks a rule of the format; the first fault, with its row and column.
    """
    path = location(path)
    try:
        return _parse(data_of(fetch(path, limits), limits), part_rank_of(path), limits)
    except PacketError as error:
        raise at_path(path, error) from error


def read_packet_operators(
    packets: Iterable[StoragePath], limits: Limits = DEFAULT_LIMITS
) -> Operators | None:
    """Return the operator events of a window from all files next to its packet or parts; None if there is
    none.

    Raises:
        PacketError: as ``read_operators``, for the first file that is refused; or a lane belongs to a device
            in one file and to a thread in another.
    """
    files = operator_files_of(packets)
    if not files:
        return None
    try:
        return Operators.concat([read_operators(file, limits) for file in files])
    except WindowError as error:
        raise PacketError(str(error), path=str(files[0].parent)) from error


def _parse(data: bytes, part_rank: int | None, limits: Limits) -> Operators:
    file = PacketFile(data, _TEXTS, OPERATORS_KEY)
    raw = file.manifest_json
    if raw is None:
        raise PacketError("no operator events: the Parquet footer has no key 'sfapp.operators'")
    faults = Faults()
    _check_head(_decode_head(raw), faults)
    _check_columns(file, faults)
    faults.raise_first()
    _check_size(file, limits, faults)
    faults.raise_first()
    with PROCESS_BUDGET.reserve(_EVENT_BYTES * file.rows):
        return _decode_events(file, part_rank, faults)


def _decode_events(file: PacketFile, part_rank: int | None, faults: Faults) -> Operators:
    columns = decoded(file, _COLUMNS, frozenset(_OPTIONAL), faults)
    is_whole = all(name in columns for name in _COLUMNS)
    operators = _operators(columns, faults) if is_whole else None
    if operators is None:
        raise faults.found[0]
    _check(operators, part_rank, faults)
    faults.raise_first()
    return operators


def _decode_head(raw: bytes) -> _OperatorsFooter:
    try:
        head = msgspec.json.decode(raw, type=_OperatorsFooter)
    except UNREADABLE_JSON as error:
        raise PacketError(f"the footer's 'sfapp.operators' is wrong: {first_line(str(error))}") from error
    if head.format > OPERATORS_FORMAT:
        raise PacketVersionError(
            f"operator format {head.format} is newer than format {OPERATORS_FORMAT}, the newest this sfapp "
            "reads: install a newer sfapp"
        )
    return head


def _check_head(head: _OperatorsFooter, faults: Faults) -> None:
    if head.format < 1:
        faults.add(f"operator format {head.format} does not exist")
    check_name("run_id", head.run_id, faults)
    if not 0 <= head.window <= MAX_VALUE:
        faults.add(f"window number {head.window} is outside 0…2^62")


def _check_columns(file: PacketFile, faults: Faults) -> None:
    for name in _COLUMNS:
        if (count := file.names.count(name)) != 1:
            faults.add(
                "the column is missing" if not count else f"{count} columns have this name", column=name
            )
            continue
        kind = file.types[file.names.index(name)]
        if name in _TEXTS:
            value = kind.value_type if pa.types.is_dictionary(kind) else kind
            fits, wanted = pa.types.is_string(value) or pa.types.is_large_string(value), "strings"
        elif name == DEVICE:
            fits, wanted = pa.types.is_boolean(kind), "true or false"
        else:
            fits, wanted = pa.types.is_integer(kind), "integers"
        if not fits:
            faults.add(f"holds {quoted(str(kind))[1:-1]}, not {wanted}", column=name)


def _check_size(file: PacketFile, limits: Limits, faults: Faults) -> None:
    if file.rows <= 0:
        faults.add("the file has no rows")
    _check_cells(file.rows, limits, faults)
    expanded = file.expanded_bytes(len(_COLUMNS))
    if expanded > limits.max_bytes:
        faults.add(f"expands to {expanded:,} bytes, more than the {limits.max_bytes:,} allowed")
    else:
        check_ratio(file, _WIDE_COLUMNS, limits, faults)


def _check_cells(events: int, limits: Limits, faults: Faults) -> None:
    cells = events * len(_COLUMNS)
    if cells > limits.max_cells:
        faults.add(f"{events:,} events are {cells:,} cells, more than the {limits.max_cells:,} allowed")


def _operators(columns: Columns, faults: Faults) -> Operators | None:
    """Return the events of decoded columns, or None with the faults reported."""
    numbers = {name: _numbers(name, columns[name], faults) for name in _NUMBERS}
    names, groups = text(columns[NAME]), text(columns[GROUP])
    category_E = _categories(text(columns[CATEGORY]), faults)
    if faults.found:
        return None
    lanes, lane_E = _lanes(numbers[RANK], text(columns[LANE]), booleans(columns[DEVICE]), faults)
    backward = numbers[END] < numbers[START]
    if backward.any():
        row = int(backward.argmax())
        before = int(numbers[START][row] - numbers[END][row])
        more = and_more(int(np.count_nonzero(backward)) - 1)
        faults.add(f"ends {before} ns before it starts{more}", row=row, column=END)
    if faults.found:
        return None
    arrays: dict[str, npt.NDArray[Any]] = {
        "name_E": names.code,
        "category_E": category_E,
        "lane_E": lane_E,
        "start_ns_E": numbers.pop(START),
        "end_ns_E": numbers.pop(END),
        "step_E": numbers.pop(STEP),
        "correlation_E": numbers.pop(CORRELATION),
        "group_E": groups.code,
        "sequence_E": numbers.pop(SEQUENCE),
        "sequence_number_E": numbers.pop(AUTOGRAD),
    }
    order = event_order(numbers.pop(RANK), arrays["start_ns_E"], arrays["end_ns_E"])
    if order is not None:
        for name in arrays:  # One at a time: together they would be in memory twice.
            arrays[name] = arrays[name][order]
    return Operators.of(names=names.values, lanes=lanes, groups=groups.values, **arrays)


def _numbers(name: str, column: Any, faults: Faults) -> npt.NDArray[np.int64]:
    """Return an integer column as int64, null as -1, and report values outside the permitted range."""
    low, high = _NUMBERS[name]
    null = column.is_null().to_numpy() if column.null_count else None
    values = integers(column.fill_null(0) if column.null_count else column)
    if not check_range(name, values, low, high, lambda row: row, faults):
        return np.zeros(len(values), np.int64)
    found = values.astype(np.int64)
    if null is not None:
        found[null] = NONE
    return found


def _categories(column: Text, faults: Faults) -> npt.NDArray[np.int8]:
    index_of = {category: index for index, category in enumerate(CATEGORIES)}
    for code, value in enumerate(column.values):
        if value not in index_of and (column.code == code).any():
            row = int((column.code == code).argmax())
            faults.add(f"{quoted(value)} is none of {', '.join(CATEGORIES)}", row=row, column=CATEGORY)
    table = np.asarray([index_of.get(value, 0) for value in column.values], np.int8)
    return table[column.code]


def _lanes(
    rank_E: npt.NDArray[np.int64], lane: Text, device_E: npt.NDArray[np.bool_], faults: Faults
) -> tuple[list[Lane], npt.NDArray[np.int64]]:
    """Return each (rank, lane) once and the index of each event's lane; report lanes that are host and
    device.
    """
    key_E = rank_E * len(lane.values) + lane.code
    keys, first, lane_E = np.unique(key_E, return_index=True, return_inverse=True)
    differs = device_E != device_E[first][lane_E]
    if differs.any():
        row = int(differs.argmax())
        faults.add(
            f"lane {quoted(lane.values[lane.code[row]])} of rank {rank_E[row]} is a device's in some rows "
            "and a thread in others",
            row=row,
            column=DEVICE,
        )
    ranks, codes = np.divmod(keys, len(lane.values))
    found = [
        Lane(rank, lane.values[code], on_device)
        for rank, code, on_device in zip(
            ranks.tolist(), codes.tolist(), device_E[first].tolist(), strict=True
        )
    ]
    return found, lane_E.reshape(-1)


def _check(operators: Operators, part_rank: int | None, faults: Faults) -> None:
    """Check the rules beyond those of ``Operators`` itself; a row is an event's position."""
    _check_texts(NAME, operators.names, operators.name_E, faults)
    _check_texts(LANE, [lane.name for lane in operators.lanes], operators.lane_E, faults)
    _check_texts(GROUP, operators.groups, operators.group_E, faults)
    numbers = {
        RANK: operators.rank_E,
        STEP: operators.step_E,
        START: operators.start_ns_E,
        END: operators.end_ns_E,
        CORRELATION: operators.correlation_E,
        SEQUENCE: operators.sequence_E,
        AUTOGRAD: operators.sequence_number_E,
    }
    for name, (low, high) in _NUMBERS.items():
        lowest = NONE if name in _OPTIONAL else low
        check_range(name, numbers[name], lowest, high, lambda row: row, faults)
    if part_rank is not None and (other := operators.rank_E != part_rank).any():
        row = int(other.argmax())
        faults.add(
            f"rank {operators.rank_E[row]} in a file that is named as rank {part_rank}'s",
            row=row,
            column=RANK,
        )


def _check_texts(column: str, values: Sequence[str], code_E: npt.NDArray[np.int32], faults: Faults) -> None:
    for code, value in enumerate(values):
        if len(value) > MAX_OPERATOR_NAME:
            reason = f"{quoted(value)} has {len(value)} characters, more than {MAX_OPERATOR_NAME:,}"
        elif not is_unicode(value):
            reason = f"{quoted(value)} is not valid Unicode"
        else:
            continue
        at = code_E == code
        faults.add(reason, row=int(at.argmax()) if at.any() else None, column=column)


def _table(operators: Operators) -> Any:
    lane_names = [lane.name for lane in operators.lanes]
    arrays = {
        RANK: pa.array(operators.rank_E.astype(np.int32)),
        LANE: _dictionary(lane_names, operators.lane_E),
        DEVICE: pa.array(operators.is_device_E),
        STEP: _nullable(operators.step_E),
        NAME: _dictionary(operators.names, operators.name_E),
        CATEGORY: _dictionary(CATEGORIES, operators.category_E),
        START: pa.array(operators.start_ns_E),
        END: pa.array(operators.end_ns_E),
        CORRELATION: _nullable(operators.correlation_E),
        GROUP: _dictionary(operators.groups, operators.group_E),
        SEQUENCE: _nullable(operators.sequence_E),
        AUTOGRAD: _nullable(operators.sequence_number_E),
    }
    fields = [pa.field(name, arrays[name].type, nullable=name in _OPTIONAL) for name in _COLUMNS]
    return pa.Table.from_arrays([arrays[name] for name in _COLUMNS], schema=pa.schema(fields))


def _nullable(values: npt.NDArray[np.int64]) -> Any:
    return pa.array(values, mask=values == NONE)


def _dictionary(values: Sequence[str], code_E: npt.NDArray[Any]) -> Any:
    """Return codes and the distinct values that they use; lanes of several ranks share names."""
    used, code_E = np.unique(code_E, return_inverse=True)
    distinct: dict[str, int] = {}
    table = [
        NONE if code == NONE else distinct.setdefault(values[code], len(distinct)) for code in used.tolist()
    ]
    codes = np.asarray(table, np.int32)[code_E.reshape(-1)]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=codes == NONE), pa.array(list(distinct), pa.string())
    )
