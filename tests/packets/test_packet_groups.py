"""Files become windows: parts are assembled, doubles counted once, conflicts listed, bad files set apart."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.errors import PacketError
from sfapp.model import Accumulation, SideChannel, Window, stage_hash
from sfapp.packets import (
    Loaded,
    Packet,
    assemble,
    packet_path,
    read_packet,
    read_window,
    read_windows,
    write_packet,
)
from tests.builders import ddp_job, window_of

RANKS = 4
FULL = ddp_job(ranks=RANKS, steps=10)


def part(rank: int, *, first: int = 0, last: int = 10, **manifest: Any) -> Window:
    """What one rank leaves behind after a failed gather."""
    whole = window_of(FULL, **{"gather_ok": False, "gather_error": f"timeout on {rank}"} | manifest)
    return replace(
        whole,
        duration_SNR=whole.duration_SNR[:, first:last, rank : rank + 1],
        wall_NR=whole.wall_NR[first:last, rank : rank + 1],
        step_N=whole.step_N[first:last],
        ranks=whole.ranks.select([rank]),
        side={
            name: SideChannel(
                channel.value_NR[first:last, rank : rank + 1], channel.sampled_NR[first:last, rank : rank + 1]
            )
            for name, channel in whole.side.items()
        },
    )


def relabelled(window: Window) -> Window:
    """The same numbers under other stage names."""
    stages = tuple(f"other.{index}" for index in range(len(window.stages)))
    return replace(window, manifest=replace(window.manifest, stages=stages, stage_hash=stage_hash(stages)))


def without_rank_3(**manifest: Any) -> Window:
    return window_of(FULL[:, :, :3], world_size=4, missing_ranks=(3,), **manifest)


def save(root: Path, window: Window, *, mtime: int | None = None, folder: str = "run") -> Path:
    """Write a window, or a part where it says so, at a time of our choosing (s)."""
    is_part = len(window.ranks) == 1 and window.manifest.world_size > 1
    path = packet_path(root, folder, window.number, window.ranks.rank[0] if is_part else None)
    write_packet(window, path)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return path


def load(root: Path) -> tuple[Loaded, Window]:
    loaded = read_windows([root])
    assert len(loaded.windows) == 1
    assert not loaded.quarantined
    return loaded, loaded.windows[0].window


def test_parts_of_every_rank_make_the_whole_window_exactly(tmp_path: Path) -> None:
    paths = [save(tmp_path, part(rank)) for rank in (2, 0, 3, 1)]

    loaded, window = load(tmp_path)

    assert np.array_equal(window.duration_SNR, FULL)
    assert window.duration_SNR.flags.c_contiguous
    assert np.array_equal(window.wall_NR, FULL.sum(axis=0))
    assert window.ranks == window_of(FULL).ranks
    assert window.manifest.missing_ranks == ()
    assert window.manifest.gather_ok is True
    assert window.manifest.gather_error == "timeout on 0"
    assert window.manifest.faults == ()
    assert [packet.path for packet in loaded.windows[0].packets] == sorted(paths)
    assert [packet.part_rank for packet in loaded.windows[0].packets] == [0, 1, 2, 3]
    assert loaded.conflicts == ()


def test_a_layout_is_kept_along_the_dimensions_that_every_part_has(tmp_path: Path) -> None:
    for rank in range(4):
        places = {"dp": (rank // 2,), "pp": (rank % 2,)} if rank else {"dp": (0,)}
        window = part(rank)
        save(tmp_path, replace(window, ranks=replace(window.ranks, layout=places)))
    assert load(tmp_path)[1].layout == {"dp": (0, 0, 1, 1)}


def test_attributes_of_parts_are_put_together(tmp_path: Path) -> None:
    for rank in range(4):
        attributes = {"kernel": ("6.8.0",), "rack": (f"r{rank}",)} if rank else {"kernel": ("6.8.0",)}
        window = part(rank)
        save(tmp_path, replace(window, ranks=replace(window.ranks, attributes=attributes)))
    assert load(tmp_path)[1].attributes == {"kernel": ("6.8.0",) * 4, "rack": ("", "r1", "r2", "r3")}


def test_ranks_still_absent_are_missing_and_the_gather_stays_failed(tmp_path: Path) -> None:
    for rank in (0, 2):
        save(tmp_path, part(rank))

    _, window = load(tmp_path)

    assert window.manifest.missing_ranks == (1, 3)
    assert window.manifest.gather_ok is False
    assert np.array_equal(window.duration_SNR, FULL[:, :, [0, 2]])


def test_one_part_alone_is_a_window_of_one_rank(tmp_path: Path) -> None:
    path = save(tmp_path, part(2))

    window = read_window(path)

    assert window.ranks.rank == (2,)
    assert window.manifest.missing_ranks == (0, 1, 3)


def test_parts_with_different_steps_are_cut_to_the_common_steps(tmp_path: Path) -> None:
    save(tmp_path, part(0))
    save(tmp_path, part(1, first=2))
    save(tmp_path, part(2, last=8))
    save(tmp_path, part(3))

    _, window = load(tmp_path)

    assert window.step_N.tolist() == [2, 3, 4, 5, 6, 7]
    assert np.array_equal(window.duration_SNR, FULL[:, 2:8])
    assert np.array_equal(window.wall_NR, FULL[:, 2:8].sum(axis=0))
    assert window.manifest.faults == ("step_misaligned",)
    assert window.manifest.gather_ok is True


def test_a_part_that_shares_no_step_is_left_out_and_listed(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        save(tmp_path, part(rank, last=5))
    odd = save(tmp_path, part(3, first=5))

    loaded, window = load(tmp_path)

    assert window.ranks.rank == (0, 1, 2)
    assert window.manifest.missing_ranks == (3,)
    assert window.manifest.faults == ("step_misaligned",)
    (conflict,) = loaded.conflicts
    assert conflict.reason == "no step in common with the other parts: left out"
    assert [packet.path for packet in conflict.set_aside] == [odd]


@pytest.mark.parametrize(
    "odd",
    [
        relabelled(part(1)),
        part(1, world_size=5),
        part(1, accumulation=Accumulation(factor=2, ordered=False)),
    ],
    ids=["stages", "world_size", "accumulation"],
)
def test_parts_of_another_schema_are_never_merged(odd: Window, tmp_path: Path) -> None:
    for rank in (0, 2, 3):
        save(tmp_path, part(rank))
    path = save(tmp_path, odd)

    loaded, window = load(tmp_path)

    assert window.ranks.rank == (0, 2, 3)
    assert window.manifest.missing_ranks == (1,)
    assert window.manifest.faults == ("schema_mismatch",)
    assert window.manifest.gather_ok is False
    (conflict,) = loaded.conflicts
    assert conflict.reason.startswith("another stage list, world size or accumulation")
    assert [packet.path for packet in conflict.set_aside] == [path]
    assert [packet.part_rank for packet in conflict.shown] == [0, 2, 3]


def test_where_schemas_tie_the_lowest_rank_decides(tmp_path: Path) -> None:
    for rank in (0, 1):
        save(tmp_path, relabelled(part(rank)))
    for rank in (2, 3):
        save(tmp_path, part(rank))

    _, window = load(tmp_path)

    assert window.ranks.rank == (0, 1)
    assert window.stages[0] == "other.0"


def test_values_of_parts_are_joined_by_their_rules(tmp_path: Path) -> None:
    seen = SideChannel(np.full((10, RANKS), 2.5, dtype=np.float64), np.ones((10, RANKS)) > 0)
    save(tmp_path, part(0, faults=("dropped_steps",), prefetch="aligned", wrapper="ddp"))
    save(tmp_path, part(1, faults=("nonmonotonic_clock", "dropped_steps"), prefetch="unaligned"))
    save(tmp_path, part(2, side={"event_ms": seen}))
    save(tmp_path, part(3))

    _, window = load(tmp_path)

    assert window.manifest.faults == ("dropped_steps", "nonmonotonic_clock")
    assert window.manifest.prefetch == "unaligned"
    assert window.manifest.wrapper == "ddp"
    assert window.side["event_ms"].sampled_NR.any(axis=0).tolist() == [False, False, True, False]
    assert np.nansum(window.side["event_ms"].value_NR, axis=0).tolist() == [0.0, 0.0, 25.0, 0.0]


def test_two_parts_of_one_rank_are_a_conflict_and_the_newest_counts(tmp_path: Path) -> None:
    save(tmp_path, part(0))
    old = save(tmp_path, part(1, wrapper="ddp"), folder="a", mtime=1_000)
    new = save(tmp_path, part(1, wrapper="fsdp2"), folder="b", mtime=2_000)

    loaded, _ = load(tmp_path)

    (conflict,) = loaded.conflicts
    assert conflict.reason == "2 files hold rank 1's part with different content: the newest is shown"
    assert [packet.path for packet in conflict.shown] == [new]
    assert [packet.path for packet in conflict.set_aside] == [old]
    assert new in [packet.path for packet in loaded.windows[0].packets]


@pytest.mark.parametrize("mtime", [1_000, 3_000], ids=["older", "newer"])
def test_the_beginning_of_a_ranks_part_hides_no_step_of_it(tmp_path: Path, mtime: int) -> None:
    save(tmp_path, part(0))
    whole = save(tmp_path, part(1), folder="of the rank", mtime=2_000)
    save(tmp_path, part(1, last=6, faults=("dropped_steps",)), folder="of the aggregator", mtime=mtime)

    loaded, window = load(tmp_path)

    assert not loaded.conflicts
    assert whole in [packet.path for packet in loaded.windows[0].packets]
    assert window.step_N.tolist() == list(range(10))
    assert np.array_equal(window.duration_SNR, FULL[:, :, :2])


def test_parts_fill_in_the_ranks_that_a_whole_window_misses(tmp_path: Path) -> None:
    save(tmp_path, without_rank_3(gather_ok=False, wrapper="ddp"))
    save(tmp_path, part(3))
    save(tmp_path, part(1))

    loaded, window = load(tmp_path)

    assert np.array_equal(window.duration_SNR, FULL)
    assert window.manifest.missing_ranks == ()
    assert window.manifest.gather_ok is True
    assert window.manifest.wrapper == "ddp"
    assert [packet.part_rank for packet in loaded.windows[0].packets] == [None, 3]
    assert loaded.conflicts == ()


def test_a_whole_window_counts_and_parts_that_agree_are_redundant(tmp_path: Path) -> None:
    whole = save(tmp_path, window_of(FULL, labels=()))
    save(tmp_path, part(1, first=3))

    loaded, window = load(tmp_path)

    assert [packet.path for packet in loaded.windows[0].packets] == [whole]
    assert window.manifest.gather_error is None
    assert loaded.conflicts == ()


@pytest.mark.parametrize("odd", [relabelled(part(1)), replace(part(1), duration_SNR=FULL[:, :, 2:3])])
def test_a_part_that_differs_from_the_whole_window_is_a_conflict(odd: Window, tmp_path: Path) -> None:
    save(tmp_path, window_of(FULL))
    save(tmp_path, odd)

    loaded, window = load(tmp_path)

    assert np.array_equal(window.duration_SNR, FULL)
    (conflict,) = loaded.conflicts
    assert conflict.reason == "the whole window and the parts of ranks 1 differ: the whole is shown"


def test_the_same_content_seen_twice_counts_once(tmp_path: Path) -> None:
    first = save(tmp_path, window_of(FULL))
    shutil.copytree(first.parent, tmp_path / "copy")

    loaded, _ = load(tmp_path)

    assert len(loaded.windows[0].packets) == 1
    assert loaded.conflicts == ()


def test_the_same_window_with_other_content_is_a_conflict_and_the_newer_is_shown(tmp_path: Path) -> None:
    new = save(tmp_path, window_of(FULL + 1), folder="a", mtime=2_000)
    old = save(tmp_path, window_of(FULL), folder="b", mtime=1_000)

    loaded, window = load(tmp_path)

    assert np.array_equal(window.duration_SNR, FULL + 1)
    (conflict,) = loaded.conflicts
    assert (conflict.run_id, conflict.window) == ("run", 0)
    assert conflict.reason == "2 files hold this window with different content: the newest is shown"
    assert [packet.path for packet in conflict.shown] == [new]
    assert [packet.path for packet in conflict.set_aside] == [old]


def test_a_bad_file_never_stops_the_others(tmp_path: Path) -> None:
    for number in (3, 1, 2):
        save(tmp_path, window_of(FULL, window=number))
    save(tmp_path, window_of(FULL, window=0, run_id="another"), folder="another")
    bad = tmp_path / "run" / "00000009.parquet"
    bad.write_bytes(b"not a packet")

    loaded = read_windows([tmp_path])

    assert [(found.window.run_id, found.window.number) for found in loaded.windows] == [
        ("another", 0),
        ("run", 1),
        ("run", 2),
        ("run", 3),
    ]
    (quarantined,) = loaded.quarantined
    assert (quarantined.path, quarantined.size) == (bad, 12)
    assert quarantined.reason.startswith("not a readable Parquet file")


def test_one_window_is_read_from_a_file_or_a_folder(tmp_path: Path) -> None:
    first = save(tmp_path, window_of(FULL))

    assert read_window(first).number == 0
    assert read_window(tmp_path).number == 0
    save(tmp_path, window_of(FULL, window=1))
    with pytest.raises(PacketError, match="2 windows here: name the file of one"):
        read_window(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PacketError, match="no packet files here"):
        read_window(tmp_path / "empty")
    first.write_bytes(b"")
    with pytest.raises(PacketError, match=r"00000000\.parquet: not a readable Parquet file"):
        read_window(first)


def test_only_different_ranks_of_one_window_can_be_assembled(tmp_path: Path) -> None:
    def packet(window: Window) -> Packet:
        return read_packet(save(tmp_path, window))

    zero, one = packet(part(0)), packet(part(1))

    assert assemble([one, zero]).ranks.rank == (0, 1)
    with pytest.raises(PacketError, match="only the parts of one window"):
        assemble([zero, packet(part(1, window=1))])
    with pytest.raises(PacketError, match="only the parts of one window"):
        assemble([])
    with pytest.raises(PacketError, match="two parts hold the same rank"):
        assemble([zero, zero])
