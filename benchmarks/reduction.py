"""Measure how many bytes of a window rank 0 receives, gathered and reduced, by the number of ranks.

    python -m benchmarks.reduction

The ranks are simulated: their parts of the reduction run side by side in this process, exactly as they do
over a process group. The reductions' results on rank 0 are counted; a ring transfers up to twice as much over
each rank's wire.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import HEADER, Result
from sfapp.model import Accumulation, RankIdentity
from sfapp.model.stages import DEFAULT_STAGES
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.recorder.transport.reduce_algorithm import ReductionExchange, reduce_window

Ints = npt.NDArray[np.int64]


def simulate(parts: Sequence[Generator[ReductionExchange, Ints, Any]]) -> tuple[Any, int]:
    """Run the ranks' parts side by side.

    Returns:
        The result of the first rank, and the bytes of all reductions' results there.
    """
    reduced: Ints | None = None
    received = 0
    while True:
        exchanges, results = [], []
        for part in parts:
            try:
                exchanges.append(next(part) if reduced is None else part.send(reduced))
            except StopIteration as ended:
                results.append(ended.value)
        if results:
            assert not exchanges, "some ranks had finished before the others"
            return results[0], received
        assert len({(each.how, each.mine.shape) for each in exchanges}) == 1, (
            "ranks are at different exchanges"
        )
        combine = np.add if exchanges[0].how == "sum" else np.maximum
        reduced = combine.reduce([each.mine for each in exchanges])
        received += reduced.nbytes


def buffer_of(spent_NE: Ints, wall_N: Ints, stages: Sequence[str], first_step: int = 0) -> WindowBuffer:
    """Return a rank's closed window of these explicit stages, in ns."""
    schema = WindowSchema.of(stages, Accumulation(), None)
    buffer = WindowBuffer.empty(schema, 0, len(spent_NE))
    buffer.add(np.column_stack([first_step + np.arange(len(wall_N)), wall_N, spent_NE]))
    buffer.close("full")
    return buffer


def run() -> Iterator[Result]:
    """Measure against the bar: 64 kB for 100 steps of 6 stages, for any number of ranks."""
    stages, steps = DEFAULT_STAGES[:-1], 100
    for ranks in (8, 64, 1_024):
        draw = np.random.default_rng(ranks)
        spent_RNE = draw.integers(1_000_000, 50_000_000, (ranks, steps, len(stages)))
        parts = []
        for rank, spent_NE in enumerate(spent_RNE):
            buffer = buffer_of(spent_NE, spent_NE.sum(axis=1) + 100_000, stages)
            identity = RankIdentity(rank, rank % 8, rank // 8, f"node{rank // 8}")
            parts.append(reduce_window(buffer, identity, ranks, "1"))
        _, received = simulate(parts)
        gathered = ranks * steps * (2 + len(stages) + 1) * 8
        yield Result(
            f"rank 0 receives, {ranks:,} ranks, reduced (gathered: {gathered:,} B)", received, 64e3, "B"
        )


def main() -> None:
    """Print the table."""
    print(HEADER)
    for result in run():
        print(result.line())


if __name__ == "__main__":
    main()
