"""A process that becomes another rank of a new world streams on over the same connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.model import RankIdentity
from sfapp.packets import read_windows
from tests.stream.streams import aggregating, recorder, train


def test_windows_before_and_after_are_those_of_either_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    with aggregating(tmp_path / "packets", abandon_after=3.0) as aggregator:
        with recorder(tmp_path, aggregator.endpoint, rank=1) as perf:
            train(perf, 5)
            perf.rejoin(RankIdentity(0, 0, 0, "node-0"))
            train(perf, 5)
        assert [failure for failure in perf.failures if "refused" in failure or "refuses" in failure] == []
    windows = [item.window for item in read_windows([tmp_path / "packets"]).windows]
    assert [(window.ranks.rank, len(window.step_N)) for window in windows] == [((1,), 5), ((0,), 5)]
