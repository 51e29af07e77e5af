"""However many windows are due at once, the aggregator goes on to take messages between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfapp.packets import create_packet
from sfapp.packets.window_draft import WindowDraft
from sfapp.stream import window_assembly
from sfapp.stream.messages import Echo, Heartbeat, WindowClosed
from tests.stream.test_hostile_ranks import HostileRank, head, hello, opened, steps


def test_ranks_are_answered_while_many_windows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given thirty windows that lack a rank, and a disk that takes 0.4 s for each
    rank = HostileRank(tmp_path)

    def write_slowly(draft: WindowDraft, path: Path) -> bool:
        rank.now += 0.4
        return create_packet(draft, path)

    monkeypatch.setattr(window_assembly, "create_packet", write_slowly)
    rank.send(hello())
    for window in range(30):
        closed = WindowClosed(**head(), sequence=5 * window + 4, window=window, steps=3)
        numbers = np.arange(3 * window, 3 * window + 3)
        rank.send(opened(5 * window, window), steps(5 * window + 1, numbers, window), closed)

    # When they are due, then a heartbeat is answered within two seconds, and all are written in order
    rank.now += 31.0
    written: list[int] = []
    while len(written) < 30:
        began = rank.now
        rank.receiver.run_due_work()
        assert rank.now - began < 2.0
        rank.send(Heartbeat(**head(), sent=150, sent_ns=1))
        assert any(isinstance(answer, Echo) for answer in rank.answers[-2:])
        written = sorted(int(path.stem) for path in tmp_path.rglob("*.parquet"))
        assert written == list(range(len(written)))
