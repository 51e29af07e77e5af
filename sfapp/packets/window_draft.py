"""Define the draft of a packet: a window in NumPy arrays, as in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sfapp.errors import WindowError
from sfapp.model import Manifest, RankTable, ReducedPlanes, SideChannel, Window
from sfapp.model.arrays import to_numpy
from sfapp.packets.arrow_columns import IntArray

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class WindowDraft:
    """Content of one window's file; shapes as in ``Window``.

    Attributes:
        duration_SNR: int64 ns [S, N, R]; wall_NR: int64 ns [N, R]; step_N: int64 [N].
        side: by name float64 [N, R], NaN if not ready, and bool [N, R], whether the value was sampled.
        waits: by stage int64 ns [N, R], ``NOT_MEASURED`` where not known.
        reduced: as in ``Window``.

    Raises:
        WindowError: shapes do not match.
    """

    manifest: Manifest
    duration_SNR: IntArray
    wall_NR: IntArray
    step_N: IntArray
    ranks: RankTable
    side: Mapping[str, tuple[FloatArray, BoolArray]] = field(default_factory=dict)
    reduced: ReducedPlanes | None = None
    waits: Mapping[str, IntArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.manifest.stages), len(self.step_N), len(self.ranks))
        if self.duration_SNR.shape != shape or self.wall_NR.shape != shape[1:]:
            raise WindowError(
                f"durations {list(self.duration_SNR.shape)} and step times {list(self.wall_NR.shape)} do not "
                f"fit {shape[0]} stages, {shape[1]} steps and {shape[2]} ranks"
            )

    @classmethod
    def of(cls, window: Window) -> WindowDraft:
        """Return the draft of a window; arrays in host memory are not copied."""
        return cls(
            manifest=window.manifest,
            duration_SNR=to_numpy(window.duration_SNR),
            wall_NR=to_numpy(window.wall_NR),
            step_N=to_numpy(window.step_N),
            ranks=window.ranks,
            side={
                name: (to_numpy(channel.value_NR), to_numpy(channel.sampled_NR))
                for name, channel in window.side.items()
            },
            waits={stage: to_numpy(wait_NR) for stage, wait_NR in window.waits.items()},
            reduced=window.reduced,
        )

    def window(self) -> Window:
        """Return the draft as a window.

        Raises:
            WindowError: as ``Window``.
        """
        return Window(
            manifest=self.manifest,
            duration_SNR=self.duration_SNR,
            wall_NR=self.wall_NR,
            step_N=self.step_N,
            ranks=self.ranks,
            side={
                name: SideChannel(value_NR, sampled_NR) for name, (value_NR, sampled_NR) in self.side.items()
            },
            waits=self.waits,
            reduced=self.reduced,
        )

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    @property
    def number(self) -> int:
        """Number of the window in its run."""
        return self.manifest.window

    @property
    def stages(self) -> tuple[str, ...]:
        """Ordered stages as recorded."""
        return self.manifest.stages
