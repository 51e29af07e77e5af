"""Find which characters of a text no font of this machine has."""

from __future__ import annotations

import os
import struct
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sfapp.errors import SfappError
from sfapp.files import open_regular

_ENDINGS = {".ttf", ".otf", ".ttc", ".otc"}
_MOST_FILES, _MOST_BYTES = 5_000, 1 << 22
"""Bounds of what is read: the number of font files, and bytes of one table of characters."""


def missing_in(characters: Iterable[str], folders: Iterable[Path]) -> frozenset[str]:
    """Return the characters that none of the fonts in some folders has. Stops once all are found."""
    missing = {ord(each) for each in characters}
    for path in _font_files(folders):
        if not missing:
            break
        missing -= {code for low, high in _ranges(path) for code in missing if low <= code <= high}
    return frozenset(map(chr, missing))


def script_of(character: str) -> str:
    """Return the script of a letter as in its name, ``CJK`` or ``Arabic``; ``symbols`` if it is no letter."""
    if unicodedata.category(character)[0] not in "LMN":
        return "symbols"
    word = unicodedata.name(character, "other").split()[0].split("-")[0]
    return word if word == "CJK" else word.capitalize()


def system_folders() -> tuple[Path, ...]:
    """Return the folders in which typst looks for the fonts of this machine."""
    try:
        homes: tuple[Path, ...] = (Path.home(),)
    except RuntimeError:  # The user has none, as the one of a container may.
        homes = ()
    if sys.platform == "darwin":
        return (
            *(home / "Library/Fonts" for home in homes),
            Path("/Library/Fonts"),
            Path("/System/Library/Fonts"),
        )
    if sys.platform == "win32":
        return (Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "Fonts",)
    shared = Path("/usr/share/fonts"), Path("/usr/local/share/fonts")
    return (*shared, *(home / name for home in homes for name in (".fonts", ".local/share/fonts")))


def _font_files(folders: Iterable[Path]) -> Iterator[Path]:
    found = 0
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in sorted(names):
                if Path(name).suffix.lower() in _ENDINGS and found < _MOST_FILES:
                    found += 1
                    yield Path(parent) / name


@cache
def _ranges(path: Path) -> tuple[tuple[int, int], ...]:
    """Return the ranges of characters of a font file; none if it cannot be read."""
    try:
        with open_regular(path) as file:
            head = file.read(16)
            start = struct.unpack(">I", head[12:16])[0] if head[:4] == b"ttcf" else 0
            file.seek(start)
            tables = struct.unpack(">4xH6x", file.read(12))[0]
            directory = file.read(16 * tables)
            entries = (directory[place : place + 16] for place in range(0, len(directory), 16))
            offset, length = next(struct.unpack(">II", each[8:16]) for each in entries if each[:4] == b"cmap")
            file.seek(offset)
            return tuple(_in_table(file.read(min(length, _MOST_BYTES))))
    except (OSError, SfappError, struct.error, StopIteration):
        return ()


def _in_table(table: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a ``cmap`` table, from its subtables of formats 4 and 12 (OpenType 1.9, cmap)."""
    count = struct.unpack(">2xH", table[:4])[0]
    for place in range(count):
        start = struct.unpack(">4xI", table[4 + 8 * place : 12 + 8 * place])[0]
        kind = struct.unpack(">H", table[start : start + 2])[0]
        if kind == 4:
            segments = struct.unpack(">6xH", table[start : start + 8])[0] // 2
            last = table[start + 14 : start + 14 + 2 * segments]
            first = table[start + 16 + 2 * segments : start + 16 + 4 * segments]
            shape = f">{segments}H"
            yield from zip(struct.unpack(shape, first), struct.unpack(shape, last), strict=True)
        elif kind == 12:
            groups = struct.unpack(">12xI", table[start : start + 16])[0]
            listed = table[start + 16 : start + 16 + 12 * groups]
            yield from ((low, high) for low, high, _ in struct.iter_unpack(">III", listed))
