"""Check that a recorder measures anything, and warn with the remedy if it does not.

It looks where a window closes and on the captures' thread, so that a step costs nothing. Rank 0 warns for the
job. Nothing here raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from sfapp.model.stages import BETWEEN
from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN, WindowBuffer
from sfapp.recorder.timing.timers import StepState
from sfapp.recorder.transport.gather_errors import warn
from sfapp.recorder.transport.rank_group import LOCAL, NOT_DISTRIBUTED, distributed_rank

PATIENCE_SECONDS = 60.0
"""Time without a first step after which there is a warning."""

_NO_STEP = (
    "no step has been recorded for a minute: wrap each optimizer step in `with perf.step():`, or pass the "
    "recorder to the callback of your framework"
)
_ALL_ZERO = (
    "the first window has {steps} steps and no time in any stage: wrap the parts of a step in "
    "`with perf.stage(NAME):`, with the names {names}"
)
_CREATED_EARLY = (
    "this rank of {world} writes its rows alone, because the recorder was created, or a step was taken, "
    "before init_process_group: call that first"
)
_NOT_INITIALISED = (
    "this rank of {world} writes its rows alone, because torch.distributed is not initialised: call "
    "init_process_group before creating the recorder; otherwise all ranks must write to one folder"
)
_ALONE = "this rank of {world} writes its rows alone ({reason}): all ranks must write to one folder"

_MOST_NAMES = 3


class SelfCheck:
    """Check of one recorder, which warns at most once about each mistake.

    Args:
        rank: returns the recorder's rank. gathers: whether ranks are expected to write packets together.
        now: monotonic seconds; for tests.
    """

    def __init__(
        self,
        state: StepState,
        rank: Callable[[], JobRank],
        gathers: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._rank = rank
        self._gathers = gathers
        self._now = now
        self._due = now() + PATIENCE_SECONDS
        self._first_step = state.number
        self._expects_steps = True
        self._expects_window = True

    def expect_no_step(self) -> None:
        """Do not warn that there is no step: they are timed elsewhere, and come late."""
        self._expects_steps = False

    def look(self) -> None:
        """Warn if no step has begun for a minute; on any thread but the training thread."""
        try:
            if not self._expects_steps:
                return
            if self._state.number != self._first_step or self._state.in_step:
                self._expects_steps = False
            elif self._now() >= self._due:
                self._expects_steps = False
                self._warn([_NO_STEP])
        except Exception:  # fail-open: the check is not worth a failure
            self._expects_steps = False

    def check_window(self, buffer: WindowBuffer) -> None:
        """Check the first window that has steps, once it is closed; later ones are ignored."""
        if not self._expects_window or not buffer.filled:
            return
        self._expects_window = False
        try:
            self._warn([*self._zero_stages(buffer), *self._lone_rank()])
        except Exception:  # fail-open: as above
            return

    def _zero_stages(self, buffer: WindowBuffer) -> Iterator[str]:
        if buffer.faults:  # They say why, and were warned about.
            return
        stages = buffer.schema.stages[:-1]
        columns = [FIRST_STAGE_COLUMN + place for place, name in enumerate(stages) if name != BETWEEN]
        if not buffer.rows()[:, columns].any():
            broad = [name for name in buffer.schema.broad if name != BETWEEN]
            names = ", ".join(broad[:_MOST_NAMES]) + (", …" if len(broad) > _MOST_NAMES else "")
            yield _ALL_ZERO.format(steps=buffer.filled, names=names)

    def _lone_rank(self) -> Iterator[str]:
        rank = self._rank()
        reason, world = rank.part_reason, rank.job.world_size
        if not self._gathers or reason in (None, LOCAL):
            return
        if reason != NOT_DISTRIBUTED:
            yield _ALONE.format(world=world, reason=reason)
        elif distributed_rank() is None:
            yield _NOT_INITIALISED.format(world=world)
        else:
            yield _CREATED_EARLY.format(world=world)

    def _warn(self, mistakes: list[str]) -> None:
        if mistakes and self._rank().identity.rank == 0:
            warn(f"{'; '.join(mistakes)} (training continues; sfapp doctor checks the rest)")
