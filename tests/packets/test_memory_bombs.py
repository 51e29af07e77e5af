"""Small files that claim to hold gigabytes are refused before they are expanded."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfapp.compiled_modules import compiled_from
from sfapp.errors import PacketError
from sfapp.packets import page_sizes, read_packet, write_packet
from sfapp.packets.memory_budget import UNCOUNTED_BYTES, MemoryBudget, available_memory
from tests.builders import window_of
from tests.packets.make_golden import STAGES, manifest, write

GOLDEN = Path(__file__).parent / "golden" / "valid"
MIB = 2**20
MOST_MIB = 600
"""Most memory of a process that reads a file below 10 MB."""

# Reads every file on a thread of its own, and prints what each gave and the process's peak in MiB.
READ = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sfapp.accounting import diagnose
from sfapp.errors import SfappError
from sfapp.packets import read_operators, read_packet

def read(path):
    try:
        if path.endswith(".ops.parquet"):
            return f"{len(read_operators(Path(path)))} events"
        window = read_packet(Path(path)).window
        diagnose(window)
        return f"{window.duration_SNR.shape}"
    except SfappError as error:
        return str(error)

with ThreadPoolExecutor(len(sys.argv[1:])) as pool:
    for line in pool.map(read, sys.argv[1:]):
        print(line)
# Not ru_maxrss, which counts what the parent had before the process was started.
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


def read_in_a_process(*paths: Path) -> tuple[list[str], int]:
    """Return what reading each file gave, and the peak memory of the process in MiB."""
    result = subprocess.run(
        [sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, check=True
    )
    *lines, peak = result.stdout.splitlines()
    return lines, int(peak)


def repeated(rows: int, value: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def noise(rows: int, size: int) -> pa.Array:
    """Return a column that no codec makes smaller."""
    data = np.random.default_rng(0).integers(0, 256, rows * (size // rows), np.uint8)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size // rows), rows, [None, pa.py_buffer(data)])


def write_repeated(path: Path, steps: int, ranks: int, *, ordered: bool, padding: int = 0) -> None:
    """Write a packet of equal durations, with step and rank in order or all zero."""
    rows = steps * ranks
    zeros = pa.array(np.zeros(rows, np.int64))
    step = pa.array(np.repeat(np.arange(steps), ranks)) if ordered else zeros
    rank = pa.array(np.tile(np.arange(ranks, dtype=np.int32), steps)) if ordered else zeros
    numbers = dict.fromkeys(("local_rank", "node_rank", "wall_ns", *STAGES), zeros)
    columns = {"step": step, "rank": rank, "hostname": repeated(rows, "x"), "role": repeated(rows, "dp")}
    if padding:
        columns["padding"] = noise(rows, padding)
    write(
        path,
        columns | numbers,
        manifest(ranks=ranks),
        use_dictionary=["hostname", "role", *numbers],
        column_encoding=dict.fromkeys(("step", "rank"), "DELTA_BINARY_PACKED"),
    )


@pytest.mark.parametrize("ordered", [False, True])
def test_a_packet_of_repeated_values_is_refused_before_it_is_expanded(ordered: bool, tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    write_repeated(path, steps=60, ranks=100_000, ordered=ordered)
    assert path.stat().st_size < 2 * MIB

    (line,), peak = read_in_a_process(path)

    assert line.startswith(f"{path}: expands from ")
    assert "to 528,000,000 bytes, more than the 33,554,432 allowed for its size" in line
    assert peak < 250


def test_what_is_read_of_a_file_below_ten_megabytes_stays_within_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    write_repeated(path, steps=20, ranks=90_000, ordered=True, padding=9_000_000)
    assert 9_000_000 < path.stat().st_size < 10_000_000

    (line,), peak = read_in_a_process(path)

    assert line == "(4, 20, 90000)"
    assert peak <= MOST_MIB


def test_rows_that_are_no_steps_of_ranks_are_refused_by_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    write_repeated(path, steps=20, ranks=90_000, ordered=False, padding=9_000_000)

    (line,), peak = read_in_a_process(path)

    assert "step 0, rank 0 is also in row 0 (and 1,799,998 more)" in line
    assert peak < 350


def write_events(path: Path, rows: int, starts: Any, padding: int = 0) -> None:
    """Write a file of operator events that are equal except for their starts."""
    zeros = pa.array(np.zeros(rows, np.int64))
    numbers = dict.fromkeys(("rank", "step", "correlation", "sequence", "autograd"), zeros)
    times = {"start_ns": pa.array(starts), "end_ns": pa.array(np.full(rows, rows))}
    texts = {name: repeated(rows, "host") for name in ("lane", "name", "category", "group")}
    columns = numbers | times | texts | {"device": pa.array(np.zeros(rows, np.bool_))}
    if padding:
        columns["padding"] = noise(rows, padding)
    about = json.dumps({"format": 1, "run_id": "run", "window": 0})
    pq.write_table(
        pa.table(columns).replace_schema_metadata({"sfapp.operators": about}),
        path,
        compression="zstd",
        use_dictionary=[*numbers, *texts],
        column_encoding=dict.fromkeys(times, "DELTA_BINARY_PACKED"),
    )


def test_a_file_of_repeated_events_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    path = tmp_path / "00000000.ops.parquet"
    write_events(path, 5_000_000, np.zeros(5_000_000, np.int64))
    assert path.stat().st_size < MIB

    lines, peak = read_in_a_process(path, path, path)

    assert all("expands from" in line and "280,000,000 bytes" in line for line in lines)
    assert peak < 250


@pytest.mark.parametrize("step", [1, -1])
def test_what_is_read_of_a_file_of_events_stays_within_the_bound(step: int, tmp_path: Path) -> None:
    path = tmp_path / "00000000.ops.parquet"
    rows = 3_200_000
    write_events(path, rows, np.arange(rows)[::step], padding=3 * rows)
    assert 9_000_000 < path.stat().st_size < 10_000_000

    (line,), peak = read_in_a_process(path)

    assert line == f"{rows} events"
    assert peak <= MOST_MIB


def test_row_groups_with_more_rows_than_the_file_claims_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    write_repeated(path, steps=3, ranks=4, ordered=True)
    data = path.read_bytes()
    claimed = b"\x26\x18"  # Thrift: the number of rows, an i64 field that holds 12
    tried = 0
    for place in range(len(data) - 8):
        if data[place : place + 2] in (claimed, b"\x16\x18"):
            path.write_bytes(data[: place + 1] + b"\x08" + data[place + 2 :])
            tried += 1
            try:
                assert read_packet(path).window.duration_SNR.shape == (4, 3, 4)
            except PacketError:
                continue
    assert tried > 1


def test_a_large_packet_is_read_column_by_column_as_a_small_one(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    random = np.random.default_rng(1)
    window = window_of(random.integers(0, 10**7, (6, 60, 4_000)))
    write_packet(window, path)

    found = read_packet(path).window

    assert UNCOUNTED_BYTES < 8 * 13 * 60 * 4_000
    assert np.array_equal(found.duration_SNR, window.duration_SNR)
    assert np.array_equal(found.wall_NR, window.wall_NR)
    assert (found.ranks, found.manifest) == (window.ranks, window.manifest)


@pytest.mark.parametrize("column", ["step", "data.next_wait", "node_rank"])
def test_a_null_in_a_large_packet_is_named(column: str, tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    write_repeated(path, steps=60, ranks=4_000, ordered=True, padding=2_400_000)
    table = pq.read_table(path)
    about = pq.read_metadata(path).metadata[b"sfapp.packet"]
    values = pa.array([*table.column(column).to_pylist()[:-1], None], table.schema.field(column).type)
    table = table.set_column(table.schema.get_field_index(column), column, values)
    pq.write_table(table.replace_schema_metadata({"sfapp.packet": about}), path)

    with pytest.raises(PacketError, match=f"row 239999, column '{column}': is null"):
        read_packet(path)


def in_threads(count: int, call: Callable[[], None]) -> None:
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_files_that_are_read_at_once_share_one_budget() -> None:
    budget = MemoryBudget(100 * MIB)
    lock = threading.Lock()
    used, most = 0, 0

    def read() -> None:
        nonlocal used, most
        with budget.reserve(40 * MIB):
            with lock:
                used += 40
                most = max(most, used)
            time.sleep(0.05)
            with lock:
                used -= 40

    in_threads(6, read)

    assert most == 80


def test_a_file_beyond_the_whole_budget_is_refused_with_what_to_do() -> None:
    budget = MemoryBudget(100 * MIB)

    with (
        pytest.raises(PacketError, match=r"needs 101 MiB of memory, more than the 100 MiB .* more memory"),
        budget.reserve(101 * MIB),
    ):
        pass
    with budget.reserve(100 * MIB), budget.reserve(UNCOUNTED_BYTES):  # Small files never wait.
        pass


def test_the_available_memory_is_at_most_the_machine_s() -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024

    assert 0 < available_memory() <= total


def varint(number: int, size: int = 1) -> bytes:
    """Return a number as in a footer (Thrift's zigzag), with as many bytes at least."""
    left, found = number << 1, bytearray()
    while left or len(found) < size:
        found.append(left & 127 | 128)
        left >>= 7
    found[-1] &= 127
    return bytes(found)


def write_large_pages(path: Path, rows: int, claimed: int) -> None:
    """Write a packet of one page per column, whose footer claims fewer rows and bytes than its pages have."""
    zeros = {np.dtype(kind): pa.array(np.zeros(rows, kind)) for kind in (np.int64, np.int32)}
    step, rank = np.zeros(rows, np.int64), np.zeros(rows, np.int32)
    step[:claimed], rank[:claimed] = np.repeat(np.arange(claimed // 8), 8), np.arange(claimed) % 8
    columns = {"step": pa.array(step), "rank": pa.array(rank)}
    columns |= {"hostname": repeated(rows, "x"), "role": repeated(rows, "dp")}
    columns |= dict.fromkeys(("local_rank", "node_rank"), zeros[np.dtype(np.int32)])
    columns |= dict.fromkeys(("wall_ns", *STAGES), zeros[np.dtype(np.int64)])
    write(
        path,
        columns,
        manifest(ranks=8),
        use_dictionary=["hostname", "role"],
        compression="zstd",
        data_page_size=2**31 - 1,
        max_rows_per_page=rows,
        write_batch_size=rows,
        row_group_size=rows,
        write_statistics=False,
    )
    content = path.read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    group = pq.ParquetFile(path).metadata.row_group(0)
    sizes = [group.column(index).total_uncompressed_size for index in range(group.num_columns)]
    footer = content[begin:-8]
    for true, false in [(rows, claimed), (group.total_byte_size, 9_000), *((size, 900) for size in sizes)]:
        if true > 10_000:
            footer = footer.replace(varint(true), varint(false, len(varint(true))))
    path.write_bytes(content[:begin] + footer + content[-8:])


def test_pages_that_expand_to_more_than_the_footer_claims_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    write_large_pages(path, rows=6_000_000, claimed=80)
    assert path.stat().st_size < 100_000

    (line,), peak = read_in_a_process(path)

    assert "expands from " in line
    assert "more than the 33,554,432 allowed for its size" in line
    assert peak < 250


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_header_of_a_page_is_a_packet_error_in_python_and_in_c(data: st.DataObject) -> None:
    content = bytearray((GOLDEN / "plain.parquet").read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))

    assert found_by(page_sizes, content) == found_by(compiled_from(page_sizes) or page_sizes, content)


def found_by(module: ModuleType, content: bytearray) -> int | str:
    """Return what all pages expand to, or the error."""
    try:
        expanded: int = module.expanded_pages(bytes(content))
    except PacketError as error:
        return str(error)
    assert expanded >= 0
    return expanded


def overlapping_pages(columns: int, header_bytes: int) -> bytes:
    """Return the end of a file whose columns all lie in one page, with a long header (compact protocol)."""

    def number(value: int) -> bytes:
        return bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14])

    # Fields 2 and 3 of a header are its sizes, field 5 is a list of booleans here.
    page = b"\x25\x00\x15\x00\x29\xf1" + number(header_bytes) + bytes(header_bytes) + b"\x00"
    # Of a chunk, field 7 is its compressed size, one byte, and field 9 where it begins.
    column = b"\x3c\x76\x02\x26\x08\x00\x00"
    footer = b"\x49\x1c\x19\xfc" + number(columns) + column * columns + b"\x00\x00"
    return b"PAR1" + page + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_columns_in_the_same_page_are_refused_in_python_and_in_c() -> None:
    for module in (page_sizes, compiled_from(page_sizes)):
        if module is not None:
            assert module.expanded_pages(overlapping_pages(1, 1000)) == 0
            with pytest.raises(PacketError, match="overlap"):
                module.expanded_pages(overlapping_pages(1000, 1_000_000))
