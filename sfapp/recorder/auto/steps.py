"""Compute the stages of one step from the events between two optimizer steps. Pure.

A step lasts from the end of the previous optimizer step to the end of its own, so its stages follow each
other in the order of ``STAGES``. Time between two events is assigned too: moving the batch to the device and
the loss belong to forward/loss, clipping and unscaling to the optimizer, and everything between an optimizer
step and the next wait for training data (logging, checkpoints, evaluation) to callbacks. Steps that follow
each other like this leave no time between them, except for time that belongs to no step: the recorder's own
work, and optimizer steps without a backward.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sfapp.model.stages import BACKWARD, BETWEEN, CALLBACKS, DATA, FORWARD, OPTIMIZER
from sfapp.recorder.side_channels.device_waits import SampledStep, StagedCalls
from sfapp.recorder.timing.host_counters import StepEvidence

STAGES = (CALLBACKS, DATA, FORWARD, BACKWARD, OPTIMIZER)
"""Stages in order of time; callbacks come first, because a step begins when the previous one ends."""

Interval = tuple[int, int]
"""Begin and end, in ns."""

Kind = Literal["data", "forward", "backward", "optimizer"]

STARTED, BATCH, EXHAUSTED = 0, 1, -1
"""Marks of a loader's events: an iterator was created, a batch was returned, no batch was left."""


class TrainingEvent(NamedTuple):
    """Outermost section on the training thread.

    Attributes:
        begin, end: in ns.
        key: id of the loader or optimizer.
        mark: for data: STARTED, BATCH or EXHAUSTED; for forward: whether it trains (gradients on, training
            mode); for backward: whether it exchanges gradients, None if unknown.
        cpu_begin, cpu_end: CPU time of the thread then, in ns; 0 if it is not read.
    """

    kind: Kind
    begin: int
    end: int
    key: int = 0
    mark: int | None = None
    cpu_begin: int = 0
    cpu_end: int = 0

    @property
    def ns(self) -> int:
        """Return the duration in ns."""
        return self.end - self.begin


@dataclass(slots=True)
class PreviousStep:
    """State that a step leaves for the next one.

    Attributes:
        end: end of the step in ns; None before the first step.
        held_ns: time in the step that was spent waiting for batches of the next one.
        between_ns: time before ``end`` that belongs to no step.
    """

    end: int | None = None
    held_ns: int = 0
    between_ns: int = 0


@dataclass(slots=True)
class TimedStep:
    """One step.

    Attributes:
        micro_steps: ns by stage, per micro-step.
        syncs: whether each micro-step exchanged gradients; empty if unknown for any.
        after: state for the next step.
        waits: per micro-step the ns by stage in which the rank waited for others.
        device_calls: calls on the device; None if the step is not sampled.
        evidence: host evidence; None if there is none.
    """

    wall_ns: int
    micro_steps: tuple[dict[str, int], ...]
    syncs: tuple[bool, ...]
    faults: dict[str, str]
    after: PreviousStep
    waits: tuple[dict[str, int], ...] = ()
    device_calls: StagedCalls | None = None
    evidence: StepEvidence | None = None


@dataclass(slots=True)
class _MicroStep:
    """Events that lead to one backward: waits for data, then forward and loss.

    Attributes:
        begin: begin of the first wait or forward; None if there is no event.
        work_begin: time when the batch was available.
        waited_ns: wait for its batches; ``early_ns`` of it before ``begin``, ``inner_ns`` after
            ``work_begin``.
        late_ns: wait for the next part's batches, inside this one.
    """

    begin: int | None = None
    work_begin: int | None = None
    waited_ns: int = 0
    early_ns: int = 0
    inner_ns: int = 0
    late_ns: int = 0
    late_batches: int = 0
    has_data: bool = False
    faults: dict[str, str] = field(default_factory=dict)


def read_step(
    events: Sequence[TrainingEvent],
    before: PreviousStep,
    waits: Sequence[Interval] = (),
    sampled: SampledStep | None = None,
) -> TimedStep | None:
    """Return the step that these events form; None if there is no backward among them.

    Args:
        events: events since the previous step, by end; the last ones are the optimizer steps.
        before: state that the previous step left.
        waits: when the rank waited for others, in order of time.
        sampled: calls on the device, their places in ns.
    """
    first_update = len(events)
    while first_update and events[first_update - 1].kind == "optimizer":
        first_update -= 1
    work, updates = events[:first_update], events[first_update:]
    backwards = [event for event in work if event.kind == "backward"]
    if not updates or not backwards:
        return None
    closure = _find_repeated_closure(backwards, updates)
    if closure is not None:  # A closure evaluated repeatedly belongs to the optimizer.
        kept = [event for event in work if event.end <= closure.begin]
        work = [*kept, TrainingEvent("backward", closure.begin, closure.begin)]
    step = _StepBuilder(before)
    region: list[TrainingEvent] = []
    for event in work:
        if event.kind == "backward":
            step.add(region, event)
            region = []
        else:
            region.append(event)
    if closure is not None:
        step.faults["nested_stages"] = "the optimizer evaluates a closure more than once"
    step.assign(waits, sampled, updates[-1].end)
    return step.finish(region, updates[-1].end)


def _find_repeated_closure(
    backwards: Sequence[TrainingEvent], updates: Sequence[TrainingEvent]
) -> TrainingEvent | None:
    """Return the optimizer step that contains more than one backward."""
    if len(backwards) == 1:
        return None
    for update in updates:
        if sum(update.begin <= event.begin and event.end <= update.end for event in backwards) > 1:
            return update
    return None


class _Stretch(NamedTuple):
    """A stage of a micro-step, from its begin (ns) to the begin of the next one."""

    begin: int
    stage: str
    micro: int


class _StepBuilder:
    """Builder of a step: call ``add`` per backward, then ``finish``."""

    def __init__(self, before: PreviousStep) -> None:
        self.faults: dict[str, str] = {}
        self._before = before
        self._start = before.end
        self._micro: list[dict[str, int]] = []
        self._syncs: list[int | None] = []
        self._late_ns = before.held_ns
        self._late_batches = 0
        self._backward_end = 0
        self._stretches: list[_Stretch] = []
        self._waits: list[dict[str, int]] = []
        self._device_calls: StagedCalls | None = None

    def add(self, region: Sequence[TrainingEvent], backward: TrainingEvent) -> None:
        """Add the events between the previous backward and this one."""
        has_forward = any(event.kind == "forward" for event in region)
        part = _read_with_forward(region) if has_forward else _read_without_forward(region)
        self.faults.update(part.faults)
        self._backward_end = backward.end
        if self._micro and part.begin is None:  # another loss of the same micro-step
            self._micro[-1][BACKWARD] += backward.ns
            self._stretches.append(_Stretch(backward.begin, BACKWARD, len(self._micro) - 1))
            return
        stages = {DATA: part.waited_ns + self._late_ns, BACKWARD: backward.ns}
        if part.work_begin is not None:
            stages[FORWARD] = backward.begin - part.work_begin - part.inner_ns - part.late_ns
        if not self._micro:
            self._begin(part, backward, stages)
        if part.work_begin is not None:
            self._stretches.append(_Stretch(part.work_begin, FORWARD, len(self._micro)))
        self._stretches.append(_Stretch(backward.begin, BACKWARD, len(self._micro)))
        self._micro.append(stages)
        self._syncs.append(backward.mark)
        self._late_ns = part.late_ns
        self._late_batches = max(0, self._late_batches - 1) + part.late_batches

    def _begin(self, part: _MicroStep, backward: TrainingEvent, stages: dict[str, int]) -> None:
        begin = backward.begin if part.begin is None else part.begin
        if self._start is None:
            self._start = begin - part.early_ns
        elif (
            part.has_data or self._late_ns
        ):  # Otherwise it contains an unseen wait for data and stays in the residual.
            stages[CALLBACKS] = max(0, begin - self._start - part.early_ns)

    def assign(self, waits: Sequence[Interval], sampled: SampledStep | None, step_end: int) -> None:
        """Assign waits and calls to the stages in which they begin.

        Those before the first forward are left out, and so are those after the step, which lie before the
        first forward of the next one.
        """
        self._waits = [{} for _ in self._micro]
        stretches = [*self._stretches, _Stretch(self._backward_end, OPTIMIZER, len(self._micro) - 1)]
        begins = [stretch.begin for stretch in stretches]

        def stage_at(time: int) -> tuple[int, str] | None:
            place = bisect_right(begins, time) - 1
            return None if place < 0 or time >= step_end else (stretches[place].micro, stretches[place].stage)

        for begin, end in waits:
            place = stage_at(begin)
            if place is not None:
                micro, stage = place
                self._waits[micro][stage] = self._waits[micro].get(stage, 0) + end - begin
        if sampled is not None:
            self._device_calls = StagedCalls(sampled, tuple(map(stage_at, sampled.places)))

    def finish(self, tail: Sequence[TrainingEvent], end: int) -> TimedStep:
        """Return the step, including the events after its last backward."""
        late_ns = 0
        for event in tail:
            if event.kind == "data":
                late_ns += event.ns
                self._late_batches += event.mark == BATCH
        self._micro[-1][OPTIMIZER] = end - self._backward_end - late_ns
        if self._late_batches > len(self._micro):
            self.faults["prefetch_unaligned"] = "batches were fetched more than a step ahead"
        held = self._late_ns + late_ns
        between = self._before.between_ns
        if between:
            self._micro[0][BETWEEN] = between
        assert self._start is not None
        return TimedStep(
            wall_ns=end - self._start - held + self._before.held_ns + between,
            micro_steps=tuple(self._micro),
            syncs=() if None in self._syncs else tuple(bool(sync) for sync in self._syncs),
            faults=self.faults,
            after=PreviousStep(end, held),
            waits=tuple(self._waits),
            device_calls=self._device_calls,
        )


def _read_with_forward(region: Sequence[TrainingEvent]) -> _MicroStep:
    """Return a micro-step whose forwards were seen.

    Batches fetched after the last forward belong to later micro-steps. The waits before it are for its own
    batches; other forwards that train may precede, each with its waits. All earlier events are evaluation.
    """
    stop = len(region)
    while region[stop - 1].kind == "data":
        stop -= 1
    late = region[stop:]
    start = stop
    while True:
        forward = start
        while forward and region[forward - 1].kind == "forward":
            forward -= 1
        if start < stop and not all(event.mark for event in region[forward:start]):
            break
        data = forward
        while data and region[data - 1].kind == "data" and region[data - 1].mark != EXHAUSTED:
            data -= 1
        if (
            data == forward and start == stop
        ):  # Without a loader, forwards before training ones are evaluation.
            while forward < stop - 1 and not region[forward].mark:
                forward += 1
            data = forward
        start = data
        if not data or data == forward or region[data - 1].kind != "forward":
            break
    part = _build(region[:start], region[start:stop])
    for event in late:
        part.late_ns += event.ns
        part.late_batches += event.mark == BATCH
    return part


def _read_without_forward(region: Sequence[TrainingEvent]) -> _MicroStep:
    """Return a micro-step without forwards (compiled, or no module): it has the last loader's batches."""
    stop = len(region)
    while stop and region[stop - 1].mark == EXHAUSTED:
        stop -= 1
    if not stop:
        return _MicroStep()
    key, start = region[stop - 1].key, stop
    while start and region[start - 1].key == key and region[start - 1].mark != EXHAUSTED:
        start -= 1
    part = _build(region[:start], region[start:stop])
    finished = {event.key for event in region if event.mark == EXHAUSTED}
    if any(event.key not in {key, *finished} for event in region[:start]):
        part.faults["loop_unclear"] = "several loaders without a forward between them"
    return part


def _build(earlier: Sequence[TrainingEvent], events: Sequence[TrainingEvent]) -> _MicroStep:
    """Return a micro-step from its own waits and forwards and the events before them."""
    part = _MicroStep(begin=events[0].begin, work_begin=events[0].begin)
    keys = set()
    working = False
    for event in events:
        if event.kind != "data":
            working = True
            continue
        keys.add(event.key)
        part.waited_ns += event.ns
        if working:
            part.inner_ns += event.ns
        else:
            part.work_begin = event.end
    for event in earlier:
        if event.mark == EXHAUSTED and event.key in keys:
            part.early_ns += event.ns
    part.waited_ns += part.early_ns
    part.has_data = bool(keys)
    return part
