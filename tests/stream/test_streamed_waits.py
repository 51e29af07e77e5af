"""Waits within stages reach the packets of a stream, and with them the rank that is slow inside a stage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sfapp
from sfapp.accounting import diagnose
from sfapp.model.host_evidence import EVIDENCE_KINDS, GC, evidence_channels
from sfapp.model.stages import BACKWARD, FORWARD
from sfapp.model.window import NOT_MEASURED
from tests.stream.streams import aggregate, free_port, recorder, until, windows_in

MS = 1_000_000


def test_an_aggregator_process_writes_the_waits_of_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 is slow inside backward; rank 0 alone measures a wait in forward."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    packets, port = tmp_path / "packets", free_port()
    with aggregate(packets, port):
        ranks = [recorder(tmp_path, f"tcp://127.0.0.1:{port}", rank, window_steps=12) for rank in (0, 1)]
        for rank, perf in enumerate(ranks):
            waits = {BACKWARD: (1 if rank else 60) * MS} | ({} if rank else {FORWARD: MS})
            for step in range(24):
                wall_ns = (130 + step % 3) * MS
                perf.add_step(wall_ns, [{FORWARD: 30 * MS, BACKWARD: 100 * MS}], waits=[waits])
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(sfapp.Recorder.close, ranks))
        first, second = until(lambda: found if len(found := windows_in(packets)) == 2 else None)

    for window in (first, second):
        assert window.ranks.rank == (0, 1)
        assert window.waits[BACKWARD].tolist() == [[60 * MS, MS]] * 12
        assert window.waits[FORWARD].tolist() == [[MS, NOT_MEASURED]] * 12
        assert window.side.keys() <= set(evidence_channels(EVIDENCE_KINDS, window.stages))
        assert window.side[GC].sampled_NR.all() == (window.number == 1)
        assert len(set(window.attributes["kernel"])) == 1
        aim = diagnose(window).aim
        assert aim is not None
        assert (aim.stage, aim.rank) == (BACKWARD, 1)
