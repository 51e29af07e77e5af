"""Streams go on after their process became another rank, or was silent for a while."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs

from sfapp.model import RankIdentity
from sfapp.packets import read_windows
from sfapp.stream.messages import Ack, Resend
from tests.stream.streams import ManualRank, aggregating, recorder, train, windows_in


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


def test_a_rank_that_was_silent_while_its_window_waited_for_another_goes_on(tmp_path: Path) -> None:
    """As a stopped process, where windows wait for their last ranks longer than for a silent one."""
    with ExitStack() as stack:
        aggregator = stack.enter_context(aggregating(tmp_path, close_after=60.0, abandon_after=0.2))
        silent, other = (
            stack.enter_context(ManualRank(aggregator.endpoint, rank, f"process {rank}")) for rank in (0, 1)
        )
        silent.send(silent.hello(world_size=2))
        silent.send(silent.opened(0), silent.steps(1, [0]), silent.closed(2, 1))
        time.sleep(1.2)
        other.send(other.hello(world_size=2))
        for window, peers in ((0, (other,)), (1, (silent, other))):
            first = 3 * window
            for peer in peers:
                peer.send(peer.opened(first, window), peer.steps(first + 1, [window], window))
                peer.send(peer.closed(first + 2, 1, window))
        while silent.receive_type(Ack).up_to_sequence < 6:
            pass
    assert [(window.number, window.ranks.rank) for window in windows_in(tmp_path)] == [
        (0, (0, 1)),
        (1, (0, 1)),
    ]


def test_a_window_of_another_attempt_waits_for_a_hello_that_was_lost(tmp_path: Path) -> None:
    """As in a relay that is killed while the world changes."""
    with aggregating(tmp_path) as aggregator, ManualRank(aggregator.endpoint) as peer:
        peer.send(peer.hello(attempt="before"), structs.replace(peer.opened(0), attempt="before"))
        peer.send(peer.steps(1, [0]), peer.closed(2, 1))
        while peer.receive_type(Ack).up_to_sequence < 3:
            pass
        after = (structs.replace(peer.opened(3, 0), attempt="after"), peer.steps(4, [1]), peer.closed(5, 1))
        peer.send(*after)
        assert peer.receive_type(Resend).hello
        peer.send(peer.hello(attempt="after", first=3), *after)
        while peer.receive_type(Ack).up_to_sequence < 6:
            pass
    windows = [(window.number, window.manifest.attempt) for window in windows_in(tmp_path)]
    assert windows == [(0, "before"), (1, "after")]
