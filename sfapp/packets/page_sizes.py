"""Add up what the pages of a Parquet file expand to, by the header of each page.

pyarrow allocates and fills as much as the header of a page says, whatever the footer says: a file of 120 kB
took 3.8 GB. Footer and headers are structures of Thrift's compact protocol, read as far as needed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from sfapp.errors import PacketError

_DEPTH = 16
"""Parquet nests structures less deep."""

MAX_FOOTER = 8 << 20
"""Size limit of a footer, bytes: 4,096 columns take 1 MB."""

MAX_PAGES = 1 << 17
"""Number of pages that are added up; chunks may overlap in a hostile file."""

# Fields, by their numbers in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _COLUMN_META = 4, 1, 3
_VALUES, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 5, 7, 9, 11
_PAGE_EXPANDED, _PAGE_COMPRESSED = 2, 3

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


def expanded_pages(data: bytes) -> int:
    """Return the bytes that all pages expand to, by their headers.

    Raises:
        PacketError: the footer or a header is damaged.
    """
    try:
        size = int.from_bytes(data[-8:-4], "little")
        if size > MAX_FOOTER:
            raise PacketError(f"the footer has {size:,} bytes, more than {MAX_FOOTER:,}")
        footer, _ = _structure(data, len(data) - 8 - size, 0)
        chunks = [column[_COLUMN_META] for group in footer[_ROW_GROUPS] for column in group[_COLUMNS]]
        pages = list(islice(chain.from_iterable(_pages(data, chunk) for chunk in chunks), MAX_PAGES + 1))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise PacketError("the footer or the header of a page is damaged") from error
    if len(pages) > MAX_PAGES:
        raise PacketError(f"the file has more than {MAX_PAGES:,} pages")
    return sum(pages)


def _pages(data: bytes, chunk: dict[int, Any]) -> Iterator[int]:
    """Yield what each page of a column chunk expands to."""
    places = [chunk[field] for field in (_DATA_PAGE, _DICTIONARY_PAGE) if chunk.get(field, 0) > 0]
    at = min(places)
    end = at + chunk[_COMPRESSED]
    while at < end:
        header, at = _structure(data, at, 0)
        if header[_PAGE_COMPRESSED] < 0 or header[_PAGE_EXPANDED] < 0:
            raise ValueError("a page of negative size")
        at += header[_PAGE_COMPRESSED]
        yield header[_PAGE_EXPANDED]


def _structure(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a structure by number, and the place after it."""
    if depth > _DEPTH or at < 0:
        raise IndexError("nested too deeply, or before the file")
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if not head:
            return fields, at
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        if kind in (_TRUE, _FALSE):
            continue
        fields[number], at = _value(data, at, kind, depth)


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag integer of variable length."""
    value = data[at]
    at += 1
    if value > 127:
        value, shift = value & 127, 7
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise IndexError("an integer of more than ten bytes")
    return (value >> 1) ^ -(value & 1), at


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value, and the place after it; None for texts, whose content is skipped."""
    if kind in (_I16, _I32, _I64):
        return _integer(data, at)
    if kind == _STRUCT:
        return _structure(data, at, depth + 1)
    if kind == _BINARY:
        size, at = _length(data, at)
        return None, at + size
    if kind in (_LIST, _SET):
        count, inner = data[at] >> 4, data[at] & 15
        at += 1
        if count == 15:
            count, at = _length(data, at)
        values = []
        for _ in range(count):
            value, at = _value(data, at, inner, depth + 1)
            values.append(value)
        return values, at
    if kind == _DOUBLE:
        return None, at + 8
    if kind in (_BYTE, _TRUE, _FALSE):
        return data[at], at + 1
    raise IndexError(f"type {kind} is in no structure of Parquet")


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length, which is not zigzag."""
    value, at = _integer(data, at)
    length = value << 1 if value >= 0 else (~value << 1) | 1
    if length > len(data):
        raise IndexError("longer than the file")
    return length, at
