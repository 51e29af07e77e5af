"""Measure how long NCCL blocks this rank's stream within each stage, in milliseconds, in sampled steps.

A call of an NCCL collective returns once it is enqueued, so the host's waits are not informative. Two events
in the current stream, one before the call and one after it, happen when the stream reaches the collective and
when it continues: in between it waits for the other ranks and transfers. Where DistributedDataParallel
exchanges gradients inside C++, the first event follows the last gradient and the second the end of the
backward pass, when the stream waits for all buckets. Nothing waits for the device (``EventSampler``).

``DeviceCalls`` times the calls of the current step. ``DeviceWaits`` adds them up by stage once the step has
ended and its stages are known: a recorder knows the stage during the call, ``sfapp run`` afterwards.

These are side channels, never part of the accounting (packet.md, ``side.device_wait.<stage>_ms``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sfapp.packets.window_rows import Values
from sfapp.recorder.side_channels.channels import DeviceEvent, EventSampler

DEVICE_WAIT_PREFIX = "device_wait."

NCCL = "nccl"

MAX_CALLS = 512
"""Maximum number of pairs of events in use for waits on the device; a step has a pair for every
collective."""

Pair = tuple[DeviceEvent, DeviceEvent]


def device_wait_channel(stage: str) -> str:
    """Return the side channel of a recorded stage's waits on the device."""
    return f"{DEVICE_WAIT_PREFIX}{stage}_ms"


class NumberedSteps(Protocol):
    """Source of the number of the current step."""

    @property
    def number(self) -> int:
        """Return the number."""


@dataclass(slots=True, eq=False)
class SampledStep:
    """A sampled step and its calls on the device.

    Attributes:
        sampler: source of the events.
        number: number of the step.
        places: place of each call, as ``DeviceCalls`` was asked to note it.
        ms: time of each call; NaN until it is known.
        is_whole: whether all its calls could be timed.
        ended_pairs: number of pairs that the sampler had ended when the step ended.
    """

    sampler: EventSampler
    number: int
    places: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    is_whole: bool = True
    ended_pairs: int = 0


Begun = tuple[SampledStep, Pair, int]
"""A call that has begun: its step, its events and its place."""


@dataclass(frozen=True, slots=True)
class StagedCalls:
    """A sampled step whose stages were found after it had ended.

    Attributes:
        stages: micro-step and stage of each call; None if it lies in no stage, and is left out.
    """

    step: SampledStep
    stages: tuple[tuple[int, str] | None, ...]


class DeviceCalls:
    """Timer of calls and backward passes in the steps that a sampler selects (``DeviceSide``)."""

    def __init__(
        self,
        sampler: EventSampler,
        steps: NumberedSteps,
        place: Callable[[], int | None],
        backend: str = NCCL,
    ) -> None:
        """Time calls on groups of a backend.

        Args:
            sampler: a sampler that nothing else uses.
            place: returns what is noted with a call that begins, such as its stage column; None if the call
                is not timed.
            backend: backend whose calls return before the work is done.
        """
        self.sampler = sampler
        self._steps = steps
        self._place = place
        self._backend = backend
        self._step: SampledStep | None = None
        self._backward: Begun | None = None

    def times_group(self, group: Any) -> bool:
        """Return whether calls on a process group are timed; None is the default group."""
        import torch.distributed as dist

        try:  # The configuration also names the backends of a group that was created without one.
            return self._backend in str(dist.get_backend_config(group))
        except Exception:  # This rank is not in the group, or the group does not exist.
            return False

    # ---- calls of torch.distributed ---------------------------------------------------------------

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Begun | None:
        """Record the moment at which the stream reaches a call, in a sampled step."""
        if not self.sampler.samples(self._steps.number) or not self.times_group(_group_of(args, kwargs)):
            return None
        return self._begin()

    def end(self, begun: Begun) -> None:
        """Record the moment at which the stream continues after a call."""
        step, pair, place = begun
        step.places.append(place)
        step.ms.append(math.nan)
        self.sampler.end(pair, step.ms, len(step.ms) - 1)

    # ---- backward passes of DistributedDataParallel -----------------------------------------------

    def gradient_hook(self, part: Any, ready: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return ``ready``, a hook of a DistributedDataParallel module's gradients, with its time on the
        device if the module's group is timed."""
        if not self.times_group(getattr(part, "process_group", None)):
            return ready

        def timed(parameter: Any) -> None:
            self.gradient_is_ready()
            ready(parameter)

        return timed

    def gradient_is_ready(self) -> None:
        """Record the moment at which the stream has computed a gradient; the last one of a backward pass
        counts.

        Called within the backward pass, by a hook of the parameter, before the reducer's own.
        """
        if not self.sampler.samples(self._steps.number):
            return
        if self._backward is not None:
            self.sampler.begin_again(self._backward[1])
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

    # ---- the end of a step ------------------------------------------------------------------------

    def take(self) -> SampledStep | None:
        """Return the step that ends, with its calls, and begin the next one; None if it is not sampled."""
        self._give_up_backward()
        step, self._step = self._step, None
        number = self._steps.number
        if step is None or step.number != number:
            if not self.sampler.samples(number):
                return None
            step = SampledStep(self.sampler, number)
        step.ended_pairs = self.sampler.ended_pairs
        return step

    # ---- inside -----------------------------------------------------------------------------------

    def _begin(self) -> Begun | None:
        """Begin a pair in the current step."""
        place = self._place()
        if place is None:
            return None
        step, number = self._step, self._steps.number
        if step is None or step.number != number:
            step = self._step = SampledStep(self.sampler, number)
        pair = self.sampler.begin()
        if pair is None:  # Too many are pending, or a graph is being captured.
            step.is_whole = False
            return None
        return step, pair, place

    def _give_up_backward(self) -> None:
        """Discard a backward pass that raised and therefore has no end."""
        begun, self._backward = self._backward, None
        if begun is not None:
            begun[0].is_whole = False
            self.sampler.give_back(begun[1])


@dataclass(frozen=True, slots=True, eq=False)
class _RecordedStep:
    """A step in a row of the window, with pending events.

    Attributes:
        column_of: stage column of each call; None if it is left out.
        columns: columns that get a value.
    """

    step: SampledStep
    row: int
    column_of: Sequence[int | None]
    columns: tuple[int, ...]


class DeviceWaits:
    """Waits on the device by stage column, stored in the rows of the current window.

    A step has values only if all its events have happened, because a sum of only some waits would be
    misleading. A column appears once something was timed in it, and then in every sampled step.
    """

    def __init__(self, sampler: EventSampler, values_of: Callable[[str], Values | None]) -> None:
        """Store the times of a sampler's events.

        Args:
            values_of: returns a channel's values in the current window; None if the channel may not be
                stored.
        """
        self._sampler = sampler
        self._values_of = values_of
        self._waiting: deque[_RecordedStep] = deque()
        self._known: set[int] = set()

    @property
    def error(self) -> str:
        """The device's error; empty while there is none."""
        return self._sampler.error

    @property
    def is_waiting(self) -> bool:
        """Whether there are events whose times are not known yet."""
        return bool(self._waiting)

    def finish_step(
        self, step: SampledStep | None, column_of: Sequence[int | None], row: int, stages: Sequence[str]
    ) -> None:
        """End a step, and store the times of completed events.

        Args:
            step: its calls; None if it is not sampled.
            column_of: stage column of each call; None if it is left out.
            row: its row in the window.
            stages: as recorded.
        """
        if step is not None:
            self._known.update(column for column in column_of if column is not None)
            if step.is_whole:
                recorded = _RecordedStep(step, row, column_of, tuple(sorted(self._known)))
                for column in recorded.columns:
                    self._store(row, stages[column], math.nan)
                self._waiting.append(recorded)
        self._poll(stages)

    def end_window(self, stages: Sequence[str]) -> None:
        """Store the times of completed events; the others remain sampled and not ready.

        Calls of steps that have not ended belong to the next window.
        """
        self._poll(stages)
        if self._waiting:
            self._sampler.drop(self._waiting[-1].step.ended_pairs)
            self._waiting.clear()

    def use_other_stages(self) -> None:
        """Reset the columns, whose stages change from now on."""
        self._known.clear()

    def _poll(self, stages: Sequence[str]) -> None:
        self._sampler.poll()
        if self._sampler.error:
            self._waiting.clear()
            return
        stored = self._sampler.ended_pairs - self._sampler.waiting_pairs
        while self._waiting and self._waiting[0].step.ended_pairs <= stored:
            recorded = self._waiting.popleft()
            ms_of = dict.fromkeys(recorded.columns, 0.0)
            for column, ms in zip(recorded.column_of, recorded.step.ms, strict=False):
                if column is not None:
                    ms_of[column] += ms
            for column, ms in ms_of.items():
                self._store(recorded.row, stages[column], ms)

    def _store(self, row: int, stage: str, ms: float) -> None:
        values = self._values_of(device_wait_channel(stage))
        if values is not None:
            values[row] = ms


def _group_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the process group among the arguments of a call; None means the default group."""
    from torch.distributed import ProcessGroup

    group = kwargs.get("group")
    return group if group is not None else next((arg for arg in args if isinstance(arg, ProcessGroup)), None)


def _at_end_of_backward(call: Callable[[], None]) -> None:
    """Queue a call for the end of the backward pass on this thread, after earlier queued calls."""
    import torch

    torch.autograd.Variable._execution_engine.queue_callback(call)
