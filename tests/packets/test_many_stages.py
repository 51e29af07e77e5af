"""A packet has at most 4,096 stages, as a stream has: verdicts take time for each of them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import sfapp
from sfapp.errors import PacketError, RecorderError
from sfapp.model import Accumulation
from sfapp.model.stages import MAX_STAGES
from sfapp.packets import read_packet, validate_packet, write_packet
from tests.builders import window_of
from tests.packets.make_golden import columns, manifest, write

TOO_MANY = "4,097 stages, more than the 4,096 that a packet may have"


def names(count: int) -> list[str]:
    return [f"stage.{number}" for number in range(count)]


def test_a_packet_with_more_stages_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    write(path, columns(), manifest(names(MAX_STAGES + 1)))

    begin = time.monotonic()
    (fault,) = validate_packet(path)

    assert fault.reason == TOO_MANY
    assert time.monotonic() - begin < 1.0


def test_as_many_stages_as_allowed_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "00000000.parquet"
    window = window_of(np.ones((MAX_STAGES, 1, 2), np.int64), stages=names(MAX_STAGES))
    write_packet(window, path)

    assert read_packet(path).window.stages == tuple(names(MAX_STAGES))


def test_a_window_with_more_stages_is_not_written(tmp_path: Path) -> None:
    window = window_of(np.ones((MAX_STAGES + 1, 1, 2), np.int64), stages=names(MAX_STAGES + 1))

    with pytest.raises(PacketError, match=TOO_MANY):
        write_packet(window, tmp_path / "00000000.parquet")


def test_a_recorder_refuses_more_micro_steps_than_a_packet_may_have(tmp_path: Path) -> None:
    many = Accumulation(factor=10**9)
    with pytest.raises(RecorderError, match="micro-step counted, are more than the 4,096"):
        sfapp.Recorder(tmp_path, accumulation=many)

    with sfapp.Recorder(tmp_path, run_id="run") as perf:
        perf.reconfigure(accumulation=many)
        with perf.step(), perf.stage("data.next_wait"):
            pass
    (path,) = tmp_path.rglob("*.parquet")
    assert "reconfigure_refused" in read_packet(path).window.manifest.faults
