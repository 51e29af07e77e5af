"""Which characters the fonts of a machine have, as their own tables say."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sfapp.assets import assets
from sfapp.report.fonts import missing_in, script_of, system_folders


def font(ranges: list[tuple[int, int]], kind: int) -> bytes:
    """A font file that has only a table of characters."""
    if kind == 12:
        groups = b"".join(struct.pack(">III", low, high, 1) for low, high in ranges)
        subtable = struct.pack(">HHIII", 12, 0, 16 + len(groups), 0, len(ranges)) + groups
    else:
        lows, highs = zip(*ranges, strict=True)
        count = len(ranges)
        ends = struct.pack(f">{count}H", *highs) + bytes(2) + struct.pack(f">{count}H", *lows)
        subtable = struct.pack(">HHHHHHH", 4, 16 + 8 * count, 0, 2 * count, 0, 0, 0) + ends + bytes(4 * count)
    table = struct.pack(">HHHHI", 0, 1, 3, 1, 12) + subtable
    entry = b"cmap" + struct.pack(">III", 0, 28, len(table))
    return b"\x00\x01\x00\x00" + struct.pack(">HHHH", 1, 0, 0, 0) + entry + table


@pytest.mark.parametrize("kind", [4, 12])
@pytest.mark.parametrize("collection", [False, True])
def test_a_font_has_the_ranges_of_its_table(tmp_path: Path, kind: int, collection: bool) -> None:
    data = font([(0x4E00, 0x4E10), (0x627, 0x64A)], kind)
    if collection:
        # The offsets of a collection's tables count from the beginning of the file
        head = b"ttcf" + struct.pack(">HHII", 1, 0, 1, 16)
        data = head + data[:20] + struct.pack(">II", 28 + 16, len(data) - 28) + data[28:]
    (tmp_path / f"font.{'ttc' if collection else 'ttf'}").write_bytes(data)
    assert missing_in("\u4e00\u4e10\u4e11\u0627", [tmp_path]) == {"\u4e11"}


def test_our_fonts_have_latin_greek_and_cyrillic() -> None:
    assert missing_in("Aé αΩ Жя", [assets() / "fonts"]) == set()


@pytest.mark.parametrize("damage", [b"", b"ttcf", b"\x00" * 40, font([(65, 90)], 4)[:30], b"x" * 500])
def test_a_damaged_font_has_no_characters(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "bad.ttf").write_bytes(damage)
    (tmp_path / "gone.ttf").symlink_to(tmp_path / "nowhere")
    assert missing_in("A", [tmp_path, tmp_path / "no-folder"]) == {"A"}


def test_a_user_without_a_home_has_the_fonts_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    mine = Path("/home/me")
    monkeypatch.setattr(Path, "home", lambda: mine)
    folders = system_folders()
    monkeypatch.setattr(Path, "home", no_home)
    assert system_folders() == tuple(each for each in folders if mine not in each.parents)


@pytest.mark.parametrize(
    ("character", "script"),
    [("慢", "CJK"), ("ا", "Arabic"), ("ひ", "Hiragana"), ("\U0001f600", "symbols"), ("한", "Hangul")],
)
def test_a_script_has_the_name_of_its_characters(character: str, script: str) -> None:
    assert script_of(character) == script
