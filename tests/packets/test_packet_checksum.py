"""Damage anywhere in a file, its manifest and the places of its columns included, never changes a verdict."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from sfapp.accounting import diagnose
from sfapp.errors import PacketError
from sfapp.packets import read_operators, read_packet, write_operators, write_packet
from tests.builders import OPTIMIZER, ddp_job, window_of
from tests.packets.make_golden import GOLDEN
from tests.packets.test_operator_files import events, rows

KEY = b"sfapp.checksum"


def packet(folder: Path) -> Path:
    """Write a packet of a job whose verdict depends on its manifest as well."""
    path = folder / "00000000.parquet"
    slow = ddp_job(ranks=3, steps=6, extra={(OPTIMIZER, 1): 9_000_000})
    stated: dict[str, Any] = {"wrapper": "ddp", "model_fit": True, "prefetch": "aligned"}
    write_packet(window_of(slow, run_id="run-1", world_size=4, missing_ranks=(3,), **stated), path)
    return path


def document(path: Path) -> bytes:
    """Return a file's verdict and manifest."""
    window = read_packet(path).window
    return msgspec.json.encode([diagnose(window), window.manifest])


def footer_size(data: bytes) -> int:
    return int.from_bytes(data[-8:-4], "little") + 8


@pytest.mark.parametrize("flipped", [0x01, 0x20, 0xFF])
def test_a_damaged_byte_of_the_footer_is_refused_or_changes_nothing(flipped: int, tmp_path: Path) -> None:
    path = packet(tmp_path)
    whole, right = path.read_bytes(), document(path)
    read = 0

    for place in range(len(whole) - footer_size(whole), len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= flipped
        path.write_bytes(damaged)
        try:
            found = document(path)
        except PacketError:
            continue
        read += 1
        assert found == right, f"byte {place - len(whole)}"

    assert read <= len(KEY) + 2  # Without its key a checksum is not looked for.


def test_a_damaged_byte_of_the_pages_is_refused(tmp_path: Path) -> None:
    path = packet(tmp_path)
    whole = path.read_bytes()

    for place in range(0, len(whole) - footer_size(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(PacketError, match="the file is damaged: its checksum is"):
            read_packet(path)


def test_the_checksum_is_the_crc_of_the_file_with_zeros_in_its_place(tmp_path: Path) -> None:
    path = packet(tmp_path)
    data = path.read_bytes()
    digits = pq.read_metadata(path).metadata[KEY]
    place = data.rindex(KEY) + len(KEY) + 2

    assert data[place : place + 8] == digits
    assert int(digits, 16) == zlib.crc32(data[:place] + b"00000000" + data[place + 8 :])


def test_a_wrong_checksum_names_the_file_and_what_to_do() -> None:
    path = GOLDEN / "broken" / "checksum_wrong.parquet"

    with pytest.raises(PacketError) as refused:
        read_packet(path)

    assert str(refused.value).startswith(f"{path}: the file is damaged: its checksum is ")
    assert "1234abcd in its footer: copy it again from its source" in str(refused.value)


def test_a_file_without_checksum_is_read_as_before(tmp_path: Path) -> None:
    path = packet(tmp_path)
    right = document(path)
    metadata = dict(pq.read_metadata(path).metadata)
    del metadata[KEY]
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)

    assert document(path) == right


def test_a_stage_may_be_named_like_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    names = ["sfapp.checksum\x18\x08deadbeef", "b"]
    write_packet(window_of(ddp_job(ranks=2, steps=3)[:2], stages=names), path)

    assert read_packet(path).window.stages == tuple(names)
    assert json.loads(pq.read_metadata(path).metadata[b"sfapp.packet"])["stages"] == names


def test_a_damaged_byte_of_an_operator_file_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "00000000.ops.parquet"
    write_operators(events(), "run", 0, path)
    whole = path.read_bytes()
    right = rows(events())

    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        path.write_bytes(damaged)
        try:
            found = rows(read_operators(path))
        except PacketError:
            continue
        assert found == right, f"byte {place - len(whole)}"
