"""Texts of a store that are none."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from sfapp.store import Store
from tests.store.jobs import change_store

_FIRST_BLOCK, _BLOCK_BYTES = 3 * 4096, 256 << 10


def _change_text(file: Path, old: bytes, new: bytes) -> None:
    """Replace a text in a file of DuckDB, and set the checksum of its block."""
    content = file.read_bytes()
    assert content.count(old) == 1
    place = content.index(old)
    begin = place - (place - _FIRST_BLOCK) % _BLOCK_BYTES
    block = content[begin + 8 : begin + _BLOCK_BYTES]
    assert struct.unpack_from("<Q", content, begin)[0] == _checksum(block)
    block = block.replace(old, new)
    file.write_bytes(
        content[:begin] + struct.pack("<Q", _checksum(block)) + block + content[begin + _BLOCK_BYTES :]
    )


def _checksum(block: bytes) -> int:
    products = np.frombuffer(block, "<u8") * np.uint64(0xBF58476D1CE4E5B9)
    return int(np.bitwise_xor.reduce(products)) ^ 5381


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO quarantine VALUES ('p', 1, 1, '', 'an unmistakable text')",
        "INSERT INTO packets(path, sha256) VALUES ('p', 'an unmistakable text')",
        "INSERT INTO packets(path, hostnames) VALUES ('p', ['an unmistakable text'])",
        "UPDATE windows SET shares = MAP {'an unmistakable text': 0.5} WHERE \"window\" = 0",
    ],
    ids=["text", "text of a packet", "text in a list", "key of a map"],
)
def test_a_store_with_a_text_that_is_not_utf8_is_built_again(tmp_path: Path, statement: str) -> None:
    """Each ingest would end with it, for good."""
    path = change_store(tmp_path, statement)
    _change_text(path, b"an unmistakable text", b"an unmistakable \xff\xfe\xfdt")
    with Store.open([tmp_path]) as store:
        assert "UTF8" in store.note
        assert store.ingest().added == 5
        assert store.quarantine() == []
