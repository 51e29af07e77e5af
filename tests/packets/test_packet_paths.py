"""Where packets are written and found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sfapp.errors import PacketError
from sfapp.packets import (
    find_packets,
    load_packet,
    operators_path,
    packet_path,
    read_packet,
    write_packet,
)
from sfapp.packets.paths import find_files
from tests.builders import ddp_job, window_of

ROOT = Path("/packets")


def test_a_window_has_a_file_and_so_has_a_part_of_it() -> None:
    assert packet_path(ROOT, "run-1", 42) == ROOT / "run-1" / "00000042.parquet"
    assert packet_path(ROOT, "run-1", 42, 7) == ROOT / "run-1" / "00000042.rank7.parquet"
    assert packet_path(ROOT, "run", 10**9).name == "1000000000.parquet"


@pytest.mark.parametrize(
    ("run_id", "folder"),
    [
        ("2026-11-21_lr.3@eu,2", "2026-11-21_lr.3@eu,2"),
        ("Läufe 模型", "Läufe%20模型"),
        ("..", "%2E."),
        (".sfapp", "%2Esfapp"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("/root", "%2Froot"),
        ("a\\b:c", "a%5Cb%3Ac"),
        ("nul\0line\n", "nul%00line%0A"),
        ("%2E.", "%252E."),
        ("step=5/*", "step%3D5%2F%2A"),
    ],
)
def test_a_run_id_becomes_one_harmless_folder_name(run_id: str, folder: str) -> None:
    assert packet_path(ROOT, run_id, 0) == ROOT / folder / "00000000.parquet"


@given(run_id=st.text(min_size=1, max_size=256), other=st.text(min_size=1, max_size=256))
@example(run_id="😀" * 256, other="😀" * 255 + "x")
@example(run_id="\ud800" * 256, other="\udfff")
@example(run_id="a" * 200, other="a" * 201)
def test_no_run_id_leaves_the_root_or_shares_its_folder(run_id: str, other: str) -> None:
    path = packet_path(ROOT, run_id, 0)

    assert path.parent.parent == ROOT
    assert not path.parent.name.startswith(".")
    assert len(os.fsencode(path.parent.name)) <= 255
    assert path.parent.name.isprintable()
    assert Path(os.path.normpath(path)) == path
    assert (packet_path(ROOT, other, 0) == path) == (other == run_id)


@pytest.mark.parametrize(("run_id", "window", "rank"), [("", 0, None), ("run", -1, None), ("run", 0, -1)])
def test_what_has_no_path_is_refused(run_id: str, window: int, rank: int | None) -> None:
    with pytest.raises(PacketError, match=r"run_id is empty|must not be negative"):
        packet_path(ROOT, run_id, window, rank)


def test_packets_are_found_anywhere_below_and_nothing_else(tmp_path: Path) -> None:
    names = ["b/00000000.parquet", "a/x/00000001.rank0.parquet", "top.parquet"]
    hidden = [".sfapp/store.parquet", "a/.00000002.12.ab.tmp", "a/.hidden.parquet", "a/notes.txt"]
    for name in names + hidden:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert find_packets([tmp_path]) == sorted(tmp_path / name for name in names)
    assert find_packets([tmp_path / "a", tmp_path, tmp_path / "top.parquet"]) == find_packets([tmp_path])
    assert find_packets([tmp_path / "a" / "notes.txt"]) == [tmp_path / "a" / "notes.txt"]
    assert find_packets([]) == []


def test_operator_events_are_found_apart_from_packets(tmp_path: Path) -> None:
    packet, other = tmp_path / "run" / "00000001.parquet", tmp_path / "run" / "00000002.parquet"
    events = [operators_path(tmp_path, "run", 1), operators_path(tmp_path, "run", 2, 7)]
    packet.parent.mkdir()
    for path in (packet, other, *events, packet.with_name(".00000001.ops.parquet")):
        path.touch()

    assert paths_found([tmp_path]) == ([packet, other], events)
    assert paths_found([packet]) == ([packet], events[:1])


def paths_found(paths: list[Path]) -> tuple[list[Path], ...]:
    return tuple([file.path for file in files] for files in find_files(paths))


def test_links_are_followed_even_in_a_ring(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write_packet(window_of(ddp_job()), elsewhere / "00000000.parquet")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(root)

    assert find_packets([root]) == [root / "linked" / "00000000.parquet"]


def test_a_path_that_is_not_there_is_named() -> None:
    with pytest.raises(PacketError, match=r"no such file or folder: '/nowhere/\\nat all'"):
        find_packets([Path("/nowhere/\nat all")])


def test_a_file_that_cannot_be_read_is_quarantined_with_the_reason(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)

    for path, reason in (
        (tmp_path / "gone.parquet", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: not a regular file"),
        (pipe, "cannot be read: not a regular file"),
    ):
        loaded = load_packet(path)
        assert (loaded.path, loaded.size, loaded.sha256, loaded.reason) == (path, 0, "", reason)


def test_a_renamed_file_is_whole(tmp_path: Path) -> None:
    window = window_of(ddp_job())
    write_packet(window, tmp_path / "00000000.parquet")

    moved = (tmp_path / "00000000.parquet").rename(tmp_path / "kept for later.parquet")

    assert read_packet(moved).window.manifest == window.manifest
