"""Damaged and hostile files: refused in good order, never half-loaded, never the end of the process.

The damage is done in a process of its own, because a library below may end it, where no ``except`` helps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sfapp.packets import read_packet, validate_packet, write_packet
from tests.builders import ddp_job, window_of
from tests.packets.make_golden import GOLDEN, STAGES, columns, manifest, write

CASES = 1_500

# Damages a packet in every way that a disk, a network or a person can, and reads it again and again.
DAMAGE = """
import collections, json, pathlib, random, sys
import numpy as np
from sfapp.errors import PacketError
from sfapp.packets import read_packet, validate_packet

source, folder, cases = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
whole = source.read_bytes()
right = read_packet(source).window
footer = int.from_bytes(whole[-8:-4], "little") + 8
randoms = random.Random(7)

def damaged(case):
    data = bytearray(whole)
    place = randoms.randrange(len(data))
    kind = case % 6
    if kind == 0:
        return data[:place]
    if kind == 1:
        data[place] ^= 1 << randoms.randrange(8)
    elif kind == 2:
        for _ in range(4):
            data[randoms.randrange(len(data))] = randoms.randrange(256)
    elif kind == 3:
        data[-1 - randoms.randrange(footer)] = randoms.randrange(256)
    elif kind == 4:
        data[place : place + 40] = bytes(40)
    else:
        return data[:place] + data[max(0, place - 30) :]
    return data

counts = collections.Counter()
path = folder / "00000000.parquet"
for case in range(cases):
    path.write_bytes(damaged(case))
    faults = validate_packet(path)
    try:
        window = read_packet(path).window
    except PacketError as error:
        assert str(error) == str(faults[0]), (error, faults)
        assert str(error).isprintable(), error
        counts["refused"] += 1
        continue
    assert not faults
    same = window.duration_SNR.shape == right.duration_SNR.shape and bool(
        np.array_equal(window.duration_SNR, right.duration_SNR)
        and np.array_equal(window.wall_NR, right.wall_NR)
        and np.array_equal(window.step_N, right.step_N)
        and window.ranks.rank == right.ranks.rank
    )
    counts["harmless" if same else "changed"] += 1
print(json.dumps(counts))
"""


# How much more memory a process has needed at its peak for being refused a packet, KiB.
PEAK = """
import pathlib, resource, sys
from sfapp.errors import PacketError
from sfapp.packets import Limits, read_packet

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak()
try:
    read_packet(pathlib.Path(sys.argv[1]), Limits(max_bytes=int(sys.argv[2])))
except PacketError as error:
    print(peak() - before, error.reason)
"""


def damage(source: Path, folder: Path) -> dict[str, int]:
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", DAMAGE, str(source), str(folder), str(CASES)],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    counts: dict[str, int] = json.loads(result.stdout)
    return counts


def test_no_damage_to_our_own_packets_changes_a_number(tmp_path: Path) -> None:
    source = tmp_path / "source.parquet"
    write_packet(window_of(ddp_job(ranks=4, steps=10)), source)

    counts = damage(source, tmp_path)

    assert counts["refused"] > CASES / 2
    assert "changed" not in counts


def test_no_damage_to_foreign_packets_raises_anything_but_a_packet_error(tmp_path: Path) -> None:
    counts = damage(GOLDEN / "valid" / "side_channel.parquet", tmp_path)

    assert counts["refused"] > CASES / 2


@pytest.mark.parametrize("size", [2**40, 7 * 2**30])
def test_a_sparse_file_is_refused_without_being_read(tmp_path: Path, size: int) -> None:
    """It takes no room on the disk, and would take hours, or all memory, to be read."""
    path = tmp_path / "sparse.parquet"
    path.touch()
    os.truncate(path, size - 8)
    with path.open("ab") as file:
        file.write(b"\xff\xff\xff\0PAR1")

    result = subprocess.run(
        [sys.executable, "-c", PEAK, str(path), str(2**33)], capture_output=True, text=True, check=True
    )

    grown_kib, reason = result.stdout.split(" ", 1)
    assert reason.startswith("parts of it were never written (a sparse file)")
    assert int(grown_kib) < 20_000


def test_a_packet_that_would_expand_beyond_the_limit_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    rows = 2_000_000
    zeros = pa.array(np.zeros(rows, dtype=np.int64))
    names = pa.DictionaryArray.from_arrays(zeros.cast(pa.int32()), pa.array(["x"]))
    numbers = dict.fromkeys(("step", "rank", "local_rank", "node_rank", "wall_ns", *STAGES), zeros)
    write(path, numbers | {"hostname": names, "role": names}, manifest())
    assert path.stat().st_size < 100_000

    result = subprocess.run(
        [sys.executable, "-c", PEAK, str(path), str(50 * 2**20)], capture_output=True, text=True, check=True
    )

    grown_kib, reason = result.stdout.split(" ", 1)
    assert reason.startswith("expands to 176,000,000 bytes, more than the 52,428,800 allowed")
    assert int(grown_kib) < 20_000


def test_a_footer_that_hides_how_much_a_column_holds_is_refused(tmp_path: Path) -> None:
    # Columns of different lengths, as a lying footer would have them: nothing is cut to fit.
    path = tmp_path / "packet.parquet"
    write(path, columns(), manifest(), use_dictionary=False, compression="none")
    data = path.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    rows = bytes([0x16, 24])  # Thrift: an i64 field holding 12, the number of rows
    assert data[-footer:].count(rows) > 1
    tried = 0
    for place in range(len(data) - footer, len(data) - 8):
        if data[place : place + 2] == rows:
            path.write_bytes(data[: place + 1] + bytes([8]) + data[place + 2 :])
            tried += 1
            if validate_packet(path):
                continue
            assert read_packet(path).window.duration_SNR.shape == (4, 3, 4)
    assert tried > 1


@pytest.mark.parametrize(
    "extra", ["[" * 40 + "]" * 40, "[" * 100_000 + "]" * 100_000, '"\\ud800"', "1e999", "NaN", '"\\u0000"']
)
def test_a_hostile_manifest_is_read_or_refused(extra: str, tmp_path: Path) -> None:
    about = json.dumps(manifest(extra={"x": "HERE"})).replace('"HERE"', extra).encode()
    path = tmp_path / "packet.parquet"
    write(path, columns(), about)

    faults = validate_packet(path)
    assert faults or not extra.startswith("[["), "what is nested deeply can be read and not shown"
    for fault in faults:
        assert str(fault).isprintable()
        assert "manifest" in str(fault)


def test_control_characters_are_made_visible_in_every_fault(tmp_path: Path) -> None:
    folder = tmp_path / "red\x1b[31m\nfolder"
    path = folder / "packet.parquet"
    write(path, columns(), manifest(run_id="\x1b]0;title\x07" * 30, stages=["a\r\nb"]))

    for fault in validate_packet(path):
        assert str(fault).isprintable()
        assert os.sep in str(fault)
