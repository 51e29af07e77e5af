"""Worked examples as windows of one step: the paper's with its numbers, and our own (accounting.md §8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sfapp.model.manifest import Manifest
from sfapp.model.rank_table import RankIdentity, RankTable
from sfapp.model.stages import BACKWARD, DATA, FORWARD, stage_hash
from sfapp.model.window import Window

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Example:
    """One matrix, of the paper (arXiv 2606.06751) or of sfapp.

    Attributes:
        run_id: run of the window, which has number 0.
        source: figure or section of the paper; empty if the example is not the paper's.
        stages: in order.
        seconds: per rank, the duration of each stage.
        wait_s: per rank, the wait within the last stage, if measured.
        advance_s: the paper's frontier advance of each stage; they add up to ``exposed_s``.
        maximum_s: per-stage maxima, if the paper prints them; they add up to ``maxima_s``.
        co_critical: the ambiguity set, if the paper names it.
        leaders: the slowest rank at each boundary, if the paper names it.
    """

    run_id: str
    source: str
    stages: tuple[str, ...]
    seconds: tuple[tuple[float, ...], ...]
    advance_s: tuple[float, ...] = ()
    exposed_s: float | None = None
    wait_s: tuple[float, ...] = ()
    maximum_s: tuple[float, ...] = ()
    maxima_s: float | None = None
    co_critical: tuple[str, ...] = ()
    leaders: tuple[int, ...] = ()

    def window(self) -> Window:
        """Return the matrix as a window of one step on one node."""
        duration_RS = np.array(self.seconds, dtype=np.float64)
        duration_SNR = np.ascontiguousarray((duration_RS.T * NS).round().astype(np.int64)[:, None])
        ranks = len(self.seconds)
        waits = {}
        if self.wait_s:
            waits[self.stages[-1]] = (np.array([self.wait_s]) * NS).round().astype(np.int64)
        return Window(
            manifest=Manifest(
                run_id=self.run_id,
                window=0,
                stages=self.stages,
                stage_hash=stage_hash(self.stages),
                world_size=ranks,
            ),
            duration_SNR=duration_SNR,
            wall_NR=duration_SNR.sum(axis=0),
            step_N=np.zeros(1, dtype=np.int64),
            ranks=RankTable.of([RankIdentity(rank, rank, 0, "node-0") for rank in range(ranks)]),
            waits=waits,
        )


DISPLACED = Example(
    run_id="paper-displaced-wait",
    source="Figure 1",
    stages=(DATA, FORWARD, BACKWARD),
    seconds=((6.0, 1.0, 1.2), (1.0, 1.0, 6.2), (1.1, 1.0, 6.0)),
    advance_s=(6.0, 1.0, 1.2),
    exposed_s=8.2,
    maximum_s=(6.0, 1.0, 6.2),
    maxima_s=13.2,
)
"""One rank is late with its data; the others wait for it inside backward."""

TWO_RANKS = Example(
    run_id="paper-two-ranks",
    source="Section 4",
    stages=(DATA, BACKWARD),
    seconds=((10.0, 0.0), (0.0, 10.0)),
    advance_s=(10.0, 0.0),
    exposed_s=10.0,
    co_critical=(DATA, BACKWARD),
)
"""Durations that fit a waiting rank and a working one equally well."""

CROSSINGS = Example(
    run_id="paper-crossings",
    source="Figure 2",
    stages=(DATA, FORWARD, BACKWARD),
    seconds=((4.0, 1.0, 1.0), (3.0, 3.0, 1.0), (2.0, 2.0, 4.5)),
    advance_s=(4.0, 2.0, 2.5),
    exposed_s=8.5,
    leaders=(0, 1, 2),
)
"""A different rank is slowest at every boundary. The paper prints the slowest ranks and their times; the
other ranks' durations are chosen to fit."""

HIDDEN = Example(
    run_id="slow-backward-hidden",
    source="",
    stages=(DATA, FORWARD, BACKWARD),
    seconds=((1.0, 2.0, 7.0), (1.0, 2.0, 7.0), (1.0, 2.0, 7.0), (1.0, 2.0, 7.0)),
)
"""One rank is slow inside backward, where the others wait for it: the durations are equal."""

MEASURED = replace(HIDDEN, run_id="slow-backward-measured", wait_s=(3.1, 3.0, 0.2, 2.9))
"""The same step with the waits inside backward measured."""

EXAMPLES: Mapping[str, Example] = {
    example.run_id: example for example in (DISPLACED, TWO_RANKS, CROSSINGS, HIDDEN, MEASURED)
}
"""All examples by run."""
