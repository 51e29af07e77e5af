"""Packets are written whole or not at all, small, and never in a way that a reader would refuse."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from sfapp.errors import PacketError
from sfapp.model import (
    Accumulation,
    Label,
    Manifest,
    Overhead,
    RankIdentity,
    RankTable,
    RecorderInfo,
    SideChannel,
    Window,
    expand_stages,
    stage_hash,
)
from sfapp.model.window import NOT_MEASURED
from sfapp.packets import find_packets, read_packet, write_packet
from tests.builders import DATA, MS, ddp_job, window_of

BAR_32_BY_40_BY_6 = 35_000


def assert_same(window: Window, other: Window) -> None:
    assert other.manifest == window.manifest
    assert other.ranks == window.ranks
    assert np.array_equal(other.duration_SNR, window.duration_SNR)
    assert np.array_equal(other.wall_NR, window.wall_NR)
    assert np.array_equal(other.step_N, window.step_N)
    assert list(other.waits) == [stage for stage in window.stages if stage in window.waits]
    for stage, wait_NR in window.waits.items():
        assert np.array_equal(other.waits[stage], wait_NR)
    assert list(other.side) == list(window.side)
    for name, channel in window.side.items():
        assert np.array_equal(
            np.nan_to_num(other.side[name].value_NR, nan=-1), np.nan_to_num(channel.value_NR, nan=-1)
        )
        assert np.array_equal(other.side[name].sampled_NR, channel.sampled_NR)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
values = st.integers(0, 2**62) | st.sampled_from([0, 1, 2**31, 2**32, 2**62])


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Windows of any content that the format can hold."""
    # Long because it draws every field of a window.
    factor = draw(st.integers(1, 3))
    broad = draw(
        st.lists(names.map(lambda name: "s." + name.strip("]")), min_size=1, max_size=3, unique=True)
    )
    ordered = draw(st.booleans())
    stages = expand_stages(broad, broad[:1], factor) if ordered and factor > 1 else tuple(broad)
    world = draw(st.integers(1, 6))
    ranks = sorted(draw(st.sets(st.integers(0, world - 1), min_size=1)))
    steps = sorted(draw(st.sets(st.integers(0, 2**62), min_size=1, max_size=4)))
    shape = (len(stages), len(steps), len(ranks))

    def tensor(elements: st.SearchStrategy[Any], size: tuple[int, ...], kind: type) -> npt.NDArray[Any]:
        count = int(np.array(size).prod())
        flat = draw(st.lists(elements, min_size=count, max_size=count))
        return np.array(flat, dtype=kind).reshape(size)

    numbers = st.floats(allow_nan=True, allow_infinity=False)
    duration_SNR = tensor(values, shape, np.int64)
    waits = {
        stage: np.where(
            tensor(st.booleans(), shape[1:], np.bool_),
            NOT_MEASURED,
            (duration_SNR[place] * draw(st.sampled_from((0.0, 0.5)))).astype(np.int64),
        )
        for place, stage in enumerate(stages)
        if draw(st.booleans())
    }
    return Window(
        manifest=Manifest(
            run_id=draw(names),
            window=draw(st.integers(0, 2**40)),
            stages=stages,
            stage_hash=stage_hash(stages),
            world_size=world,
            missing_ranks=tuple(rank for rank in range(world) if rank not in ranks),
            gather_ok=draw(st.booleans()),
            gather_error=draw(st.none() | names),
            accumulation=Accumulation(factor=factor, ordered=ordered),
            overhead=Overhead(gather_ns=draw(values)),
            faults=tuple(draw(st.lists(names, max_size=2))),
            labels=tuple(draw(st.lists(st.builds(Label, names, st.tuples(names)), max_size=2))),
            extra=draw(
                st.dictionaries(names, st.none() | st.booleans() | st.integers(0, 9) | names, max_size=2)
            ),
        ),
        duration_SNR=duration_SNR,
        wall_NR=tensor(values, shape[1:], np.int64),
        step_N=np.array(steps, dtype=np.int64),
        ranks=RankTable.of(
            [
                RankIdentity(
                    rank,
                    draw(st.integers(0, 2**31 - 1)),
                    draw(st.integers(0, 2**31 - 1)),
                    draw(names | st.just("")),
                    draw(st.none() | names),
                )
                for rank in ranks
            ]
        ),
        side={
            name: SideChannel(
                tensor(numbers, shape[1:], np.float64), tensor(st.booleans(), shape[1:], np.bool_)
            )
            for name in draw(st.lists(names, max_size=2, unique=True))
        },
        waits=waits,
    )


@given(window=windows())
def test_any_window_comes_back_exactly(window: Window, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("packet") / "00000000.parquet"

    size = write_packet(window, path)

    packet = read_packet(path)
    assert_same(window, packet.window)
    assert (packet.path, packet.size, packet.part_rank) == (path, size, None)
    assert size == path.stat().st_size


@pytest.mark.parametrize("started_at", [UNSET, None, "2026-11-28T12:00:00.000000Z"])
def test_a_recorder_of_any_time_or_none_comes_back(
    started_at: str | UnsetType | None, tmp_path: Path
) -> None:
    made = window_of(ddp_job(ranks=2, steps=2))
    manifest = replace(made.manifest, recorder=RecorderInfo(started_at=started_at))
    write_packet(replace(made, manifest=manifest), tmp_path / "one.parquet")
    assert read_packet(tmp_path / "one.parquet").window.manifest == manifest


def test_the_paper_s_window_of_32_ranks_40_steps_6_stages_is_small(tmp_path: Path) -> None:
    durations = ddp_job(ranks=32, steps=40, jitter=20 * MS)
    window = window_of(durations, roles=["dp"] * 32, ranks_per_node=8)

    assert write_packet(window, tmp_path / "packet.parquet") <= BAR_32_BY_40_BY_6


def test_numbers_are_delta_coded_names_are_dictionaries_and_all_is_zstd(tmp_path: Path) -> None:
    path = tmp_path / "packet.parquet"
    side = {"event_ms": SideChannel(np.full((40, 8), float("nan"), dtype=np.float64), np.zeros((40, 8)) > 0)}
    write_packet(window_of(ddp_job(), side=side), path)

    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}

    assert [*columns][:7] == ["step", "rank", "local_rank", "node_rank", "hostname", "role", "wall_ns"]
    assert [*columns][-2:] == ["side.event_ms", "sampled.event_ms"]
    for name, column in columns.items():
        assert column.compression == "ZSTD"
        if column.physical_type in {"INT32", "INT64"}:
            assert "DELTA_BINARY_PACKED" in column.encodings, name
    assert "RLE_DICTIONARY" in columns["hostname"].encodings
    assert pq.read_schema(path).field("role").nullable
    assert not pq.read_schema(path).field(DATA).nullable


def test_packets_can_be_queried_as_in_packet_md(tmp_path: Path) -> None:
    for number in range(2):
        write_packet(window_of(ddp_job(), window=number), tmp_path / "run" / f"{number:08d}.parquet")

    query = f"""SELECT hostname, count(*), avg("data.next_wait") FROM '{tmp_path}/**/*.parquet' GROUP BY 1"""
    rows = sorted(duckdb.sql(query).fetchall())

    assert [row[:2] for row in rows] == [("node-0", 2 * 40 * 4), ("node-1", 2 * 40 * 4)]


def test_a_concurrent_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run" / "00000000.parquet"
    versions = [window_of(ddp_job(seed=seed)) for seed in range(2)]
    write_packet(versions[0], path)
    stop = threading.Event()

    def keep_writing() -> None:
        while not stop.is_set():
            for window in versions:
                write_packet(window, path)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        for _ in range(60):
            seen = read_packet(path).window.duration_SNR
            assert any(np.array_equal(seen, window.duration_SNR) for window in versions)
            assert find_packets([tmp_path]) == [path]
    finally:
        stop.set()
        writer.join()
    assert os.listdir(path.parent) == [path.name]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "00000000.parquet"
    taken.mkdir()

    with pytest.raises(PacketError, match=r"00000000\.parquet: cannot be written: Is a directory"):
        write_packet(window_of(ddp_job()), taken)
    with pytest.raises(PacketError, match="cannot be written: Not a directory"):
        write_packet(window_of(ddp_job()), Path(__file__) / "run" / "00000000.parquet")

    assert list(tmp_path.iterdir()) == [taken]
    assert list(taken.iterdir()) == []


def _durations(value: int) -> npt.NDArray[np.int64]:
    durations = ddp_job()
    durations[2, 3, 4] = value
    return durations


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (window_of(_durations(-1)), "row 28, column 'model.backward_cpu_wall': -1 is negative"),
        (window_of(_durations(2**62 + 1)), "column 'model.backward_cpu_wall': 4611686018427387905 is above"),
        (window_of(ddp_job(), wall=np.full((40, 8), -3)), r"'wall_ns': -3 is negative \(and 319 more\)"),
        (window_of(ddp_job(), steps=[0, *range(39)]), "column 'step': steps must ascend"),
        (window_of(ddp_job(), steps=range(-1, 39)), "row 0, column 'step': -1 is outside 0"),
        (window_of(ddp_job(), world_size=9), "rank 8 of world_size 9 has no rows"),
        (window_of(ddp_job(), run_id=""), "run_id is empty"),
        (window_of(ddp_job(), run_id="\ud800"), "is not valid Unicode"),
        (window_of(ddp_job(), roles=["r" * 257] * 8), "column 'role': 'rrr.* has 257 characters"),
        (window_of(ddp_job(), roles=["\udcff"] * 8), "column 'role': '.*' is not valid Unicode"),
        (window_of(ddp_job(), extra={"file": object()}), "the manifest cannot be written as JSON"),
        (window_of(ddp_job(), layout={"dp": [0] * 7}), "layout has 7 coordinates in dp for 8 ranks"),
        (window_of(ddp_job(), layout={"dp": [2**20] * 8}), "a coordinate in dp outside 0…1,048,575"),
        (window_of(ddp_job(), attributes={"rack": ["a"] * 7}), "7 values of 'rack' for 8 ranks"),
        (window_of(ddp_job()).of_group("node:1"), "rank 0 of world_size 8 has no rows"),
    ],
)  # fmt: skip
def test_nothing_is_written_that_a_reader_would_refuse(window: Window, reason: str, tmp_path: Path) -> None:
    with pytest.raises(PacketError, match=reason):
        write_packet(window, tmp_path / "packet.parquet")

    assert list(tmp_path.iterdir()) == []


def test_ranks_in_another_order_are_refused_before_they_are_written(tmp_path: Path) -> None:
    window = window_of(ddp_job())
    upside_down = RankTable(*(column[::-1] for column in (
        window.ranks.rank, window.ranks.local_rank, window.ranks.node_rank,
        window.ranks.hostname, window.ranks.role,
    )))  # fmt: skip

    with pytest.raises(PacketError, match="ranks must ascend"):
        write_packet(replace(window, ranks=upside_down), tmp_path / "packet.parquet")
