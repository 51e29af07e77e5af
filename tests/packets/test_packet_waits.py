"""Waits within stages: columns of their own, null where not measured, refused where they cannot be true."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sfapp.errors import PacketError
from sfapp.model import Window
from sfapp.model.window import NOT_MEASURED
from sfapp.packets import read_packet, validate_packet, write_packet
from tests.builders import BACKWARD, MS, ddp_job, window_of
from tests.packets.make_golden import STAGES, columns, manifest, write

ROWS = len(columns()["step"])


def packet_with(tmp_path: Path, added: Mapping[str, pa.Array]) -> Path:
    path = tmp_path / "00000007.parquet"
    write(path, {**columns(), **added}, manifest())
    return path


def test_null_is_not_measured(tmp_path: Path) -> None:
    stage = STAGES[1]
    path = packet_with(tmp_path, {f"wait.{stage}": pa.array([None, *[1] * (ROWS - 1)], pa.int64())})
    window = read_packet(path).window
    assert list(window.waits) == [stage]
    assert window.waits[stage].flat[0] == NOT_MEASURED
    assert set(window.waits[stage].flat[1:]) == {1}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (-1, "-1 is negative"),
        (2**62, "is longer than the stage itself"),
    ],
)
def test_a_wait_that_cannot_be_is_refused_with_its_place(tmp_path: Path, value: int, reason: str) -> None:
    name = f"wait.{STAGES[1]}"
    path = packet_with(tmp_path, {name: pa.array([*[0] * (ROWS - 1), value], pa.int64())})
    with pytest.raises(PacketError) as refused:
        read_packet(path)
    assert reason in refused.value.reason
    assert (refused.value.row, refused.value.column) == (ROWS - 1, name)
    assert len(validate_packet(path)) == 1


def test_waits_must_be_whole_nanoseconds(tmp_path: Path) -> None:
    path = packet_with(tmp_path, {f"wait.{STAGES[1]}": pa.array([0.5] * ROWS)})
    with pytest.raises(PacketError, match="not whole nanoseconds"):
        read_packet(path)


def test_waits_of_what_is_no_stage_are_ignored(tmp_path: Path) -> None:
    path = packet_with(tmp_path, {"wait.unknown": pa.array(["any"] * ROWS)})
    assert not read_packet(path).window.waits


def test_a_stage_may_be_named_like_the_waits_of_another(tmp_path: Path) -> None:
    stages = ("backward", "wait.backward")
    path = tmp_path / "packet.parquet"
    write_packet(window_of(np.full((2, 3, 2), MS), stages=stages), path)
    window = read_packet(path).window
    assert window.stages == stages
    assert not window.waits


def test_a_window_with_wrong_waits_is_not_written(tmp_path: Path) -> None:
    window = window_of(ddp_job())
    for wait in (-5, 10**12):
        wait_NR = np.full(window.wall_NR.shape, wait)
        with pytest.raises(PacketError, match=f"wait.{BACKWARD}"):
            write_packet(replaced(window, wait_NR), tmp_path / "packet.parquet")


def replaced(window: Window, wait_NR: np.ndarray) -> Window:
    return Window(
        manifest=window.manifest,
        duration_SNR=window.duration_SNR,
        wall_NR=window.wall_NR,
        step_N=window.step_N,
        ranks=window.ranks,
        waits={BACKWARD: wait_NR},
    )
