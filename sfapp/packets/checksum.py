"""Checksum of a whole packet or operator file, in its own footer (packet.md, Checksum).

Pages have checksums of their own; the footer with manifest, columns and their places has none in Parquet.
"""

from __future__ import annotations

import zlib
from typing import Any

from sfapp.errors import PacketError
from sfapp.terminal import quoted

CHECKSUM_KEY = b"sfapp.checksum"
"""Parquet footer key of the checksum."""

BLANK = b"00000000"
"""Value of the key while the checksum is computed: eight hexadecimal digits."""

_BEFORE_DIGITS = CHECKSUM_KEY + b"\x18\x08"
"""What precedes the digits in the footer: the key and, in Thrift's compact protocol, a string of 8 bytes."""

_LEAST_SEARCHED = 2**20
"""Bytes at the file's end that are searched even if the footer claims to be shorter."""


def set_checksum(content: Any) -> None:
    """Replace the blank checksum in the footer of a file's bytes, which are a writable buffer."""
    data = memoryview(content).cast("B")
    begin = _digits_at(data)
    if begin is None:
        raise ValueError("the footer has no blank checksum")
    data[begin : begin + len(BLANK)] = _checksum(data, begin)


def check_checksum(content: bytes) -> None:
    """Check a file's bytes against the checksum in its footer, if it has one.

    Raises:
        PacketError: they differ, so that the file is not as it was written.
    """
    data = memoryview(content)
    begin = _digits_at(data)
    if begin is None:
        return
    written = bytes(data[begin : begin + len(BLANK)])
    found = _checksum(data, begin)
    if found != written:
        raise PacketError(
            f"the file is damaged: its checksum is {found.decode()}, and {_shown(written)} in its footer: "
            "copy it again from its source (a program that changes such files must remove the footer's key "
            "'sfapp.checksum')"
        )


def _digits_at(data: memoryview) -> int | None:
    """Return where the digits begin; None if the footer has none. Of several places the last counts: names of
    columns come before the footer's keys."""
    footer = 8 + int.from_bytes(data[-8:-4], "little")
    begin = max(0, len(data) - max(footer, _LEAST_SEARCHED))
    found = bytes(data[begin:]).rfind(_BEFORE_DIGITS)
    if found < 0 or begin + found + len(_BEFORE_DIGITS) + len(BLANK) > len(data):
        return None
    return begin + found + len(_BEFORE_DIGITS)


def _checksum(data: memoryview, begin: int) -> bytes:
    """Return the CRC-32 of the bytes with a blank checksum, in hexadecimal digits."""
    before = zlib.crc32(BLANK, zlib.crc32(data[:begin]))
    return b"%08x" % zlib.crc32(data[begin + len(BLANK) :], before)


def _shown(written: bytes) -> str:
    return quoted(written.decode("latin-1"))[1:-1]
