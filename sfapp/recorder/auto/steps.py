"""From what was seen of a training loop between two optimizer steps to the stages of one step. Pure.

A step reaches from the end of the optimizer step before to the end of its own, so its stages follow each
other as ``STAGES`` names them. What lies between two things that were seen has its place too: moving the
batch to the device and the loss belong to forward/loss, clipping and unscaling to the optimizer, and all that
happens between an optimizer step and the training's next wait for data (logging, checkpoints, evaluation) to
callbacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER

STAGES = (CALLBACKS, DATA, FORWARD, BACKWARD, OPTIMIZER)
"""In the order in which they happen: callbacks come first, as a step begins when the one before has ended."""

Kind = Literal["data", "forward", "backward", "optimizer"]

STARTED, BATCH, EXHAUSTED = 0, 1, -1
"""What a loader was asked for, as ``mark``: an iterator, a batch, a batch when none was left."""


class TrainingEvent(NamedTuple):
    """Something seen on the training thread, outermost of its kind; ``begin`` and ``end`` in ns.

    Attributes:
        key: which loader or optimizer.
        mark: data: STARTED, BATCH or EXHAUSTED. forward: whether it trains (gradients on, training mode).
            backward: whether it exchanges gradients, None where not known.
    """

    kind: Kind
    begin: int
    end: int
    key: int = 0
    mark: int | None = None

    @property
    def ns(self) -> int:
        return self.end - self.begin


@dataclass(slots=True)
class Before:
    """What the step before leaves.

    Attributes:
        end: when it ended, None before the first.
        held_ns: what was waited in it for batches of the next one.
    """

    end: int | None = None
    held_ns: int = 0


@dataclass(slots=True)
class TimedStep:
    """One step: per micro-step the ns of its stages and, if known of all, whether it exchanged gradients."""

    wall_ns: int
    micro_steps: tuple[dict[str, int], ...]
    syncs: tuple[bool, ...]
    faults: dict[str, str]
    left: Before


@dataclass(slots=True)
class _Part:
    """What leads to one backward: waits for data, then forward and loss.

    Attributes:
        begin: of its first wait or forward, None if nothing was seen.
        work_begin: when its batch was there.
        waited_ns: for its batches; ``early_ns`` of it before ``begin``, ``inner_ns`` after ``work_begin``.
        late_ns: waited for the next part's batches, in this one.
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


def read_step(events: Sequence[TrainingEvent], before: Before) -> TimedStep | None:
    """The step that these events amount to, in order of their ends; None if no backward was among them.

    Args:
        events: since the step before; the last ones are the optimizers' steps.
    """
    first_update = len(events)
    while first_update and events[first_update - 1].kind == "optimizer":
        first_update -= 1
    work, updates = events[:first_update], events[first_update:]
    backwards = [event for event in work if event.kind == "backward"]
    if not updates or not backwards:
        return None
    closure = _evaluated_again(backwards, updates)
    if closure is not None:  # a closure that the optimizer evaluates again and again: all of it is its own
        kept = [event for event in work if event.end <= closure.begin]
        work = [*kept, TrainingEvent("backward", closure.begin, closure.begin)]
    step = _Reading(before)
    region: list[TrainingEvent] = []
    for event in work:
        if event.kind == "backward":
            step.add(region, event)
            region = []
        else:
            region.append(event)
    if closure is not None:
        step.faults["nested_stages"] = "the optimizer evaluates a closure more than once"
    return step.finish(region, updates[-1].end)


def _evaluated_again(
    backwards: Sequence[TrainingEvent], updates: Sequence[TrainingEvent]
) -> TrainingEvent | None:
    """The optimizer's step that holds more than one backward."""
    if len(backwards) == 1:
        return None
    for update in updates:
        if sum(update.begin <= event.begin and event.end <= update.end for event in backwards) > 1:
            return update
    return None


class _Reading:
    """A step under construction: one ``add`` a backward, then ``finish``."""

    def __init__(self, before: Before) -> None:
        self.faults: dict[str, str] = {}
        self._before = before
        self._start = before.end
        self._micro: list[dict[str, int]] = []
        self._syncs: list[int | None] = []
        self._late_ns = before.held_ns
        self._late_batches = 0
        self._backward_end = 0

    def add(self, region: Sequence[TrainingEvent], backward: TrainingEvent) -> None:
        """What lies between the backward before and this one."""
        seen = any(event.kind == "forward" for event in region)
        part = _with_forward(region) if seen else _without(region)
        self.faults.update(part.faults)
        self._backward_end = backward.end
        if self._micro and part.begin is None:  # one more loss of the same micro-step
            self._micro[-1][BACKWARD] += backward.ns
            return
        stages = {DATA: part.waited_ns + self._late_ns, BACKWARD: backward.ns}
        if part.work_begin is not None:
            stages[FORWARD] = backward.begin - part.work_begin - part.inner_ns - part.late_ns
        if not self._micro:
            self._begin(part, backward, stages)
        self._micro.append(stages)
        self._syncs.append(backward.mark)
        self._late_ns = part.late_ns
        self._late_batches = max(0, self._late_batches - 1) + part.late_batches

    def _begin(self, part: _Part, backward: TrainingEvent, stages: dict[str, int]) -> None:
        begin = backward.begin if part.begin is None else part.begin
        if self._start is None:
            self._start = begin - part.early_ns
        elif part.has_data or self._late_ns:  # else the wait for data, unseen, is in it: the residual's
            stages[CALLBACKS] = max(0, begin - self._start - part.early_ns)

    def finish(self, tail: Sequence[TrainingEvent], end: int) -> TimedStep:
        """The step, with what followed its last backward."""
        late_ns = 0
        for event in tail:
            if event.kind == "data":
                late_ns += event.ns
                self._late_batches += event.mark == BATCH
        self._micro[-1][OPTIMIZER] = end - self._backward_end - late_ns
        if self._late_batches > len(self._micro):
            self.faults["prefetch_unaligned"] = "batches were fetched more than a step ahead"
        held = self._late_ns + late_ns
        assert self._start is not None
        return TimedStep(
            wall_ns=end - self._start - held + self._before.held_ns,
            micro_steps=tuple(self._micro),
            syncs=() if None in self._syncs else tuple(bool(sync) for sync in self._syncs),
            faults=self.faults,
            left=Before(end, held),
        )


def _with_forward(region: Sequence[TrainingEvent]) -> _Part:
    """Seen with its forwards: what follows the last one is fetched for later; before it lie the waits for its
    batches, and before those other forwards that train, with theirs. All earlier is evaluation."""
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
        if data == forward and start == stop:  # no loader: what comes before training is evaluation
            while forward < stop - 1 and not region[forward].mark:
                forward += 1
            data = forward
        start = data
        if not data or data == forward or region[data - 1].kind != "forward":
            break
    part = _part(region[:start], region[start:stop])
    for event in late:
        part.late_ns += event.ns
        part.late_batches += event.mark == BATCH
    return part


def _without(region: Sequence[TrainingEvent]) -> _Part:
    """Seen without its forwards (compiled, or no module): the batches of the loader asked last."""
    stop = len(region)
    while stop and region[stop - 1].mark == EXHAUSTED:
        stop -= 1
    if not stop:
        return _Part()
    key, start = region[stop - 1].key, stop
    while start and region[start - 1].key == key and region[start - 1].mark != EXHAUSTED:
        start -= 1
    part = _part(region[:start], region[start:stop])
    finished = {event.key for event in region if event.mark == EXHAUSTED}
    if any(event.key not in {key, *finished} for event in region[:start]):
        part.faults["loop_unclear"] = "several loaders, and no forward between them was seen"
    return part


def _part(earlier: Sequence[TrainingEvent], events: Sequence[TrainingEvent]) -> _Part:
    """Of its own waits and forwards, and what came before them."""
    part = _Part(begin=events[0].begin, work_begin=events[0].begin)
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
