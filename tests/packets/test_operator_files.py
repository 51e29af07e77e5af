"""Files of operator events: what is written is read back, and damage is named with its row and column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfapp.errors import PacketError, PacketVersionError
from sfapp.model import CATEGORIES, Lane, Operators
from sfapp.packets import (
    Limits,
    find_packets,
    operators_path,
    packet_path,
    read_operators,
    read_packet_operators,
    write_operators,
    write_packet,
)
from sfapp.packets.paths import with_operators
from tests.builders import window_of

COLUMNS = ("step_E", "start_ns_E", "end_ns_E", "correlation_E", "sequence_E", "sequence_number_E")


def events() -> Operators:
    """Two ranks, each with a launch, its kernel and a collective; given out of order."""
    lanes = [Lane(rank, name, name[0] == "s") for rank in (0, 1) for name in ("thread 1", "stream 7")]
    return Operators.of(
        names=("mm", "ncclDevKernel_AllReduce", "cudaLaunchKernel"),
        name_E=[1, 2, 0, 1, 2, 0],
        category_E=[CATEGORIES.index(name) for name in ("collective", "runtime", "kernel")] * 2,
        lanes=lanes,
        lane_E=[1, 0, 1, 3, 2, 3],
        step_E=[4, 4, 4, 4, -1, 4],
        start_ns_E=[30, 10, 20, 35, 11, 21],
        end_ns_E=[40, 12, 30, 40, 13, 30],
        correlation_E=[-1, 5, 5, -1, 5, 5],
        groups=("default_pg",),
        group_E=[0, -1, -1, 0, -1, -1],
        sequence_E=[3, -1, -1, 3, -1, -1],
    )


def rows(operators: Operators) -> list[tuple[Any, ...]]:
    """Every event in words and numbers, whatever the order of the tables."""
    return [
        (
            operators.lane(event),
            operators.name(event),
            CATEGORIES[operators.category_E[event]],
            operators.groups[operators.group_E[event]] if operators.group_E[event] >= 0 else None,
            *(int(getattr(operators, column)[event]) for column in COLUMNS),
        )
        for event in range(len(operators))
    ]


def test_events_are_read_back_as_written(tmp_path: Path) -> None:
    path = operators_path(tmp_path, "run", 3)
    size = write_operators(events(), "run", 3, path)

    assert path == tmp_path / "run" / "00000003.ops.parquet"
    assert size == path.stat().st_size
    assert rows(read_operators(path)) == rows(events())


def test_a_part_holds_one_rank_alone(tmp_path: Path) -> None:
    path = operators_path(tmp_path, "run", 0, 1)
    write_operators(events().of_rank(1), "run", 0, path)

    assert path.name == "00000000.rank1.ops.parquet"
    assert read_operators(path).ranks == (1,)
    with pytest.raises(PacketError, match="rank 0 in a file that is named as rank 1's") as error:
        write_operators(events(), "run", 0, path)
    assert (error.value.row, error.value.column) == (0, "rank")


def test_the_parts_next_to_a_packet_are_one_windows_events(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_operators(events().of_rank(rank), "run", 3, operators_path(tmp_path, "run", 3, rank))
    write_operators(events(), "run", 30, operators_path(tmp_path, "run", 30))

    found = read_packet_operators([packet_path(tmp_path, "run", 3)])

    assert found is not None
    assert rows(found) == rows(events())
    assert read_packet_operators([packet_path(tmp_path, "run", 4)]) is None
    assert read_packet_operators([packet_path(tmp_path, "run", 3, 1)]) is not None
    # A part of a process has the rank's own number: in the run, window 3 may be of an earlier attempt.
    own = packet_path(tmp_path, "run", 3, 1, process="0123456789abcdef")
    assert read_packet_operators([own]) is None
    assert with_operators([own]) == []


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    whole = events()
    other = [replace(lane, is_device=not lane.is_device) for lane in whole.lanes]
    write_operators(whole, "run", 3, operators_path(tmp_path, "run", 3))
    write_operators(
        replace(whole, lanes=tuple(other)).of_rank(0), "run", 3, operators_path(tmp_path, "run", 3, 0)
    )

    with pytest.raises(PacketError, match="a lane is listed twice"):
        read_packet_operators([packet_path(tmp_path, "run", 3)])


def test_operator_files_are_no_packets(tmp_path: Path) -> None:
    write_operators(events(), "run", 0, operators_path(tmp_path, "run", 0))
    packet = tmp_path / "run" / "00000000.parquet"
    write_packet(window_of(np.ones((6, 2, 2), np.int64)), packet)

    assert find_packets([tmp_path]) == [packet]


def test_a_window_without_events_has_no_file(tmp_path: Path) -> None:
    with pytest.raises(PacketError, match="no operator events"):
        write_operators(events().select(slice(0)), "run", 0, tmp_path / "00000000.ops.parquet")
    assert not list(tmp_path.iterdir())


def rewritten(tmp_path: Path, column: str, values: Any, head: bytes | None = None) -> Path:
    """A file whose column has been replaced (None: left out)."""
    path = operators_path(tmp_path, "run", 0)
    write_operators(events(), "run", 0, path)
    table = pq.read_table(path)
    metadata = {b"sfapp.operators": head or pq.read_metadata(path).metadata[b"sfapp.operators"]}
    if column:
        place = table.schema.get_field_index(column)
        table = table.remove_column(place)
        if values is not None:
            table = table.add_column(place, column, values)
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


@pytest.mark.parametrize(
    ("column", "values", "row", "reason"),
    [
        ("rank", None, None, "missing"),
        ("rank", pa.array([0, 0, 0, 1, -1, 1]), 4, "-1 is outside"),
        ("rank", pa.array([0, None, 0, 1, 1, 1]), 1, "is null"),
        ("step", pa.array([0, -7, 0, 1, 1, 1]), 1, "-7 is outside"),
        ("start_ns", pa.array([1.0] * 6), None, "holds double, not integers"),
        ("start_ns", pa.array([2**63] * 6, pa.uint64()), 0, "is outside"),
        ("end_ns", pa.array([50, 50, 50, 50, 50, 0]), 5, "ends 35 ns before it starts"),
        ("name", pa.array(["x"] * 5 + ["y" * 20_000]), 5, "20000 characters"),
        ("category", pa.array(["kernel"] * 5 + ["\x1b[2J"]), 5, r"'\\x1b\[2J' is none of"),
        ("category", pa.array(["kernel", None] * 3), 1, "is null"),
        ("device", pa.array([False, True, False, False, True, True]), 2, "lane"),
        ("device", pa.array([1] * 6), None, "not true or false"),
    ],
)
def test_damage_is_named_with_its_row_and_column(
    tmp_path: Path, column: str, values: Any, row: int | None, reason: str
) -> None:
    path = rewritten(tmp_path, column, values)
    with pytest.raises(PacketError, match=reason) as error:
        read_operators(path)
    assert error.value.column == column
    assert error.value.path == str(path)
    assert error.value.row == row


def test_a_newer_format_is_reported(tmp_path: Path) -> None:
    path = rewritten(tmp_path, "", None, b'{"format": 2, "run_id": "run", "window": 0}')
    with pytest.raises(PacketVersionError, match="newer sfapp"):
        read_operators(path)


@pytest.mark.parametrize("head", [b"{}", b"[", b'{"format": 1, "run_id": "", "window": 0}', b"\xff"])
def test_a_damaged_head_is_refused(tmp_path: Path, head: bytes) -> None:
    with pytest.raises(PacketError):
        read_operators(rewritten(tmp_path, "", None, head))


def test_a_packet_is_no_operator_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    write_packet(window_of(np.ones((6, 2, 2), np.int64)), path)
    with pytest.raises(PacketError, match=r"sfapp\.operators"):
        read_operators(path)


def test_what_is_too_large_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = operators_path(tmp_path, "run", 0)
    write_operators(events(), "run", 0, path)
    with pytest.raises(PacketError, match="cells"):
        read_operators(path, Limits(max_cells=71))
    with pytest.raises(PacketError, match="on disk"):
        read_operators(path, Limits(max_bytes=100))
    assert len(read_operators(path, Limits(max_cells=72))) == 6


def test_no_damage_to_the_bytes_goes_unnoticed(tmp_path: Path) -> None:
    """Any byte may flip: the file is refused, or what it says is what was written."""
    path = operators_path(tmp_path, "run", 0)
    write_operators(events(), "run", 0, path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        path.write_bytes(bytes(damaged))
        try:
            found = read_operators(path)
        except PacketError:
            continue
        assert len(found) == 6
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(PacketError):
            read_operators(path)


def test_rows_in_any_order_are_put_in_order(tmp_path: Path) -> None:
    path = operators_path(tmp_path, "run", 0)
    write_operators(events(), "run", 0, path)
    metadata = pq.read_metadata(path).metadata
    metadata.pop(b"sfapp.checksum")
    table = pq.read_table(path).replace_schema_metadata(metadata)
    pq.write_table(table.take([5, 3, 1, 0, 4, 2]), path)

    assert rows(read_operators(path)) == rows(events())
