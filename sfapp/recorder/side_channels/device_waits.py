"""Measure how long NCCL blocks this rank's stream within each stage, in milliseconds, in sampled steps.

A call of an NCCL collective returns once it is enqueued, so the host's waits are not informative. Two events
in the current stream, one before the call and one after it, happen when the stream reaches the collective and
when it continues: in between it waits for the other ranks and transfers. Where DistributedDataParallel
exchanges gradients inside C++, the first event follows the last gradient and the second the end of the
backward pass, when the stream waits for all buckets. Nothing waits for the device (``EventSampler``).

These are side channels, never part of the accounting (packet.md, ``side.device_wait.<stage>_ms``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sfapp.packets.window_rows import FIRST_STAGE_COLUMN, Values
from sfapp.recorder.side_channels.channels import DeviceEvent, EventSampler
from sfapp.recorder.timing.timers import StepState

DEVICE_WAIT_PREFIX = "device_wait."

NCCL = "nccl"

Pair = tuple[DeviceEvent, DeviceEvent]


def device_wait_channel(stage: str) -> str:
    """Return the side channel of a recorded stage's waits on the device."""
    return f"{DEVICE_WAIT_PREFIX}{stage}_ms"


@dataclass(slots=True, eq=False)
class _SampledStep:
    """A sampled step with pending events.

    Attributes:
        number: number of the step.
        ms_S: time so far by stage column; NaN if nothing was timed.
        is_whole: whether all its calls could be timed.
        row, columns: its row in the window and the columns that get a value, known once it has ended.
        ended_pairs: number of pairs that were ended until it ended.
    """

    number: int
    ms_S: Values
    is_whole: bool = True
    row: int = 0
    columns: tuple[int, ...] = ()
    ended_pairs: int = 0
    touched: set[int] = field(default_factory=set)


class DeviceWaits:
    """Timer of calls and backward passes in the steps that a sampler selects.

    A step has values only if all its events have happened, because a sum of only some waits would be
    misleading. A column appears once something was timed in it, and then in every sampled step.
    """

    def __init__(
        self,
        state: StepState,
        sampler: EventSampler,
        values_of: Callable[[str], Values | None],
        backend: str = NCCL,
    ) -> None:
        """Time calls on groups of a backend.

        Args:
            sampler: a sampler that nothing else uses.
            values_of: returns a channel's values in the current window; None if the channel may not be
                stored.
            backend: backend whose calls return before the work is done.
        """
        self._state = state
        self._sampler = sampler
        self._values_of = values_of
        self._backend = backend
        self._step: _SampledStep | None = None
        self._waiting: deque[_SampledStep] = deque()
        self._known: set[int] = set()
        self._backward: tuple[_SampledStep, Pair, int] | None = None

    @property
    def error(self) -> str:
        """The device's error; empty while there is none."""
        return self._sampler.error

    def times_group(self, group: Any) -> bool:
        """Return whether calls on a process group are timed; None is the default group."""
        import torch.distributed as dist

        try:
            return self._backend in str(dist.get_backend(group))
        except Exception:  # This rank is not in the group, or the group does not exist.
            return False

    # ---- calls of torch.distributed (``DeviceSide``) ----------------------------------------------

    def begin(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[_SampledStep, Pair, int] | None:
        """Record the moment at which the stream reaches a call, in a sampled step and within a stage."""
        if not self._sampler.samples(self._state.number) or not self.times_group(_group_of(args, kwargs)):
            return None
        return self._begin()

    def end(self, begun: tuple[_SampledStep, Pair, int]) -> None:
        """Record the moment at which the stream continues after a call."""
        step, pair, column = begun
        self._sampler.end(pair, step.ms_S, column)

    # ---- backward passes of DistributedDataParallel -----------------------------------------------

    def gradient_is_ready(self) -> None:
        """Record the moment at which the stream has computed a gradient; the last one of a backward pass
        counts.

        Called within the backward pass, by a hook of the parameter, before the reducer's own.
        """
        if not self._sampler.samples(self._state.number):
            return
        if self._backward is not None:
            self._sampler.begin_again(self._backward[1])
            return
        self._backward = self._begin()
        if self._backward is not None:
            # The reducer queues its last callback in the same pass. A callback that is queued by a callback
            # runs after all of these, when the stream waits for the reducer's work.
            try:
                _at_end_of_backward(lambda: _at_end_of_backward(self._backward_has_ended))
            except Exception:  # fail-open: no engine runs that takes callbacks
                self._give_up_backward()

    def _backward_has_ended(self) -> None:
        begun, self._backward = self._backward, None
        if begun is not None:
            self.end(begun)

    # ---- following the steps ----------------------------------------------------------------------

    def finish_step(self, row: int, stages: Sequence[str]) -> None:
        """End the current step, which is the given row, and store the times of completed events."""
        step, self._step = self._step, None
        self._give_up_backward()
        if step is None and self._known and self._sampler.samples(self._state.number):
            step = _SampledStep(self._state.number, np.zeros(0))  # There was no wait.
        if step is not None:
            self._known |= step.touched
            if step.is_whole:
                step.row, step.columns = row, tuple(sorted(self._known))
                step.ended_pairs = self._sampler.ended_pairs
                for column in step.columns:
                    self._store(step, column, stages, np.nan)
                self._waiting.append(step)
        self._poll(stages)

    def drop_step(self) -> None:
        """Discard the current step, which is not recorded."""
        self._step = None
        self._give_up_backward()

    def end_window(self, stages: Sequence[str]) -> None:
        """Store the times of completed events; the others remain sampled and not ready."""
        self._poll(stages)
        self._waiting.clear()
        self.drop_step()
        self._sampler.drop()

    def use_other_stages(self) -> None:
        """Reset the columns, whose stages change from now on."""
        self._known.clear()

    # ---- inside -----------------------------------------------------------------------------------

    def _begin(self) -> tuple[_SampledStep, Pair, int] | None:
        """Begin a pair in the open stage of the current step."""
        stage = self._state.open_stage
        if stage is None or stage is self._state.outside:
            return None
        column = stage.index - FIRST_STAGE_COLUMN
        step = self._step
        if step is None or step.number != self._state.number:
            columns = self._state.width - FIRST_STAGE_COLUMN
            step = self._step = _SampledStep(self._state.number, np.full(columns, np.nan))
        pair = self._sampler.begin()
        if pair is None:  # Too many are pending, or a graph is being captured.
            step.is_whole = False
            return None
        step.touched.add(column)
        return step, pair, column

    def _poll(self, stages: Sequence[str]) -> None:
        self._sampler.poll()
        if self._sampler.error:
            self._waiting.clear()
            return
        stored = self._sampler.ended_pairs - self._sampler.waiting_pairs
        while self._waiting and self._waiting[0].ended_pairs <= stored:
            step = self._waiting.popleft()
            for column in step.columns:
                self._store(step, column, stages, step.ms_S[column] if column in step.touched else 0.0)

    def _store(self, step: _SampledStep, column: int, stages: Sequence[str], ms: float) -> None:
        values = self._values_of(device_wait_channel(stages[column]))
        if values is not None:
            values[step.row] = ms

    def _give_up_backward(self) -> None:
        """Discard a backward pass that raised and therefore has no end."""
        begun, self._backward = self._backward, None
        if begun is not None:
            self._sampler.give_back(begun[1])


def _group_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the process group among the arguments of a call; None means the default group."""
    from torch.distributed import ProcessGroup

    group = kwargs.get("group")
    return group if group is not None else next((arg for arg in args if isinstance(arg, ProcessGroup)), None)


def _at_end_of_backward(call: Callable[[], None]) -> None:
    """Queue a call for the end of the backward pass on this thread, after earlier queued calls."""
    import torch

    torch.autograd.Variable._execution_engine.queue_callback(call)
