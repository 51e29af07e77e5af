"""Measure how many bytes of a window rank 0 receives, gathered and reduced, by the number of ranks.

    python -m benchmarks.reduction

The ranks are simulated: their parts of the reduction run in this process, exactly as over a process group.
The reductions' results on rank 0 are counted; a ring transfers up to twice as much over each rank's
connection.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import HEADER, Result
from sfapp.model import Accumulation, RankIdentity
from sfapp.model.stages import DEFAULT_STAGES
from sfapp.model.window import NOT_MEASURED
from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.recorder.transport.reduce_algorithm import ReductionExchange, reduce_window

Ints = npt.NDArray[np.int64]


def simulate(parts: Sequence[Generator[ReductionExchange, Ints, Any]]) -> tuple[Any, int]:
    """Run the ranks' parts in one process.

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


def buffer_of(
    spent_NE: Ints,
    wall_N: Ints,
    stages: Sequence[str],
    first_step: int = 0,
    waits: Mapping[str, Ints] | None = None,
) -> WindowBuffer:
    """Return a rank's closed window of these explicit stages, in ns.

    Args:
        waits: waits by stage, [N], ns; ``NOT_MEASURED`` if not measured.
    """
    schema = WindowSchema.of(stages, Accumulation(), None)
    buffer = WindowBuffer.empty(schema, 0, len(spent_NE))
    buffer.add(np.column_stack([first_step + np.arange(len(wall_N)), wall_N, spent_NE]))
    for stage, wait_N in (waits or {}).items():
        known_N = wait_N != NOT_MEASURED
        buffer.channel(WAIT_PREFIX + stage)[known_N] = wait_N[known_N]
    buffer.close("full")
    return buffer


def run() -> Iterator[Result]:
    """Measure against the bar: 64 kB for 100 steps of 6 stages, for any number of ranks, and 8.2 kB more for
    each stage with measured waits."""
    stages, steps = DEFAULT_STAGES[:-1], 100
    for ranks, waited in ((8, 0), (64, 0), (1_024, 0), (64, 1), (64, 2)):
        draw = np.random.default_rng(ranks)
        spent_RNE = draw.integers(1_000_000, 50_000_000, (ranks, steps, len(stages)))
        parts = []
        for rank, spent_NE in enumerate(spent_RNE):
            waits = {stages[place]: spent_NE[:, place] // 2 for place in range(waited)}
            wall_N = spent_NE.sum(axis=1) + 100_000
            buffer = buffer_of(spent_NE, wall_N, stages, waits=waits)
            identity = RankIdentity(rank, rank % 8, rank // 8, f"node{rank // 8}")
            parts.append(reduce_window(buffer, identity, ranks, "1"))
        _, received = simulate(parts)
        gathered = ranks * steps * (2 + len(stages) + 1 + waited) * 8
        what = f"rank 0 receives, {ranks:,} ranks, reduced (gathered: {gathered:,} B)"
        if waited:
            what += f", waits of {waited}"
        yield Result(what, received, 64e3 + 8.2e3 * waited, "B")


def main() -> None:
    """Print the table."""
    print(HEADER)
    for result in run():
        print(result.line())


if __name__ == "__main__":
    main()
