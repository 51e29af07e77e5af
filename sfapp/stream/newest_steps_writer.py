"""Write the newest steps of every streamed run into a file that the live page judges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sfapp.errors import PacketError
from sfapp.model.live_rows import FIRST_STAGE, LiveRank, LiveRows
from sfapp.packets.newest_steps import newest_steps_path, write_newest_steps
from sfapp.packets.window_rows import STEP_COLUMN
from sfapp.stream.live_state import LiveSnapshot, RankSnapshot, Rows
from sfapp.stream.run_turns import next_in_turn

MAX_RUNS = 64
"""Number of runs that are written at once."""


class NewestStepsWriter:
    """Writer that replaces the file of each run with the aggregator's present state.

    Args:
        root: the packet directory.
        on_failure: called with the reason when a file cannot be written.
    """

    def __init__(self, root: Path, now_s: Callable[[], float], on_failure: Callable[[str], None]) -> None:
        self._root = root
        self._now_s = now_s
        self._on_failure = on_failure
        self._ended: set[str] = set()
        self._last = ""

    def write(self, snapshot: LiveSnapshot) -> None:
        """Write the runs of a snapshot, many of them in turn; a run that has ended is written once."""
        by_run: defaultdict[str, list[RankSnapshot]] = defaultdict(list)
        for rank in snapshot.ranks:
            by_run[rank.run_id].append(rank)
        ended = {run_id for run_id, ranks in by_run.items() if all(rank.has_left for rank in ranks)}
        self._ended &= ended
        for run_id in next_in_turn(by_run.keys() - self._ended, self._last, MAX_RUNS):
            self._last = run_id
            if run_id in ended:
                self._ended.add(run_id)
            self._write_run(run_id, by_run[run_id])

    def _write_run(self, run_id: str, ranks: list[RankSnapshot]) -> None:
        newest = min(ranks, key=lambda rank: rank.silent_seconds)  # A restarted job may have another size.
        ranks = [rank for rank in ranks if rank.identity.rank < newest.world_size]
        live = tuple(
            _live_rank(rank) for rank in ranks if rank.row_NC.shape[1] == FIRST_STAGE + len(rank.stages)
        )
        found = LiveRows(run_id, int(self._now_s() * 1e9), newest.world_size, live)
        try:
            write_newest_steps(newest_steps_path(self._root, run_id), found)
        except (OSError, PacketError) as error:
            self._on_failure(f"the newest steps of run {run_id} were not written: {error}")


def _live_rank(rank: RankSnapshot) -> LiveRank:
    return LiveRank(
        rank.identity,
        rank.stages,
        _since_restart(rank.row_NC),
        rank.silent_seconds,
        rank.idle_seconds,
        rank.has_left,
    )


def _since_restart(row_NC: Rows) -> Rows:
    """Return the rows since step numbers last went back, as they do when a job returns to a checkpoint."""
    back_N = np.flatnonzero(row_NC[1:, STEP_COLUMN] <= row_NC[:-1, STEP_COLUMN])
    return row_NC[back_N[-1] + 1 :] if len(back_N) else row_NC
