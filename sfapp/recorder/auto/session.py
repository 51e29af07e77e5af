"""Record an unmodified training script: turn the hooks' reports of one process into steps of a ``Recorder``.

Nothing here raises into training. A loop that the hooks cannot follow is recorded with a fault or not at all,
with one message; its stages are never guessed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sfapp.model.manifest import Accumulation, Wrapper
from sfapp.recorder.auto.fail_open import fail_open
from sfapp.recorder.auto.script_evidence import ScriptEvidence, stop_all
from sfapp.recorder.auto.script_place import script_place
from sfapp.recorder.auto.script_waits import ScriptWaits
from sfapp.recorder.auto.settings import Settings
from sfapp.recorder.auto.steps import STAGES, Kind, PreviousStep, TimedStep, TrainingEvent, read_step
from sfapp.recorder.identity import place_here
from sfapp.recorder.transport.rank_group import distributed_rank
from sfapp.recorder.transport.transports import GatherMode
from sfapp.recorder.wrapper import wrapper_among

if TYPE_CHECKING:
    from sfapp.model.standstill import TrainingPlace
    from sfapp.recorder import Recorder

LEARNING_STEPS = 3
"""Steps from which the number of micro-steps is learned."""

MAX_ORDERED_MICRO_STEPS = 32
"""Maximum number of micro-steps with their own columns; the times of more are added up."""

_MAX_EVENTS = 1 << 14
"""Maximum number of events kept between two optimizer steps; the first events of a long evaluation are
dropped."""


class Session:
    """Receiver of the hooks' reports, on the main thread of one training process.

    Attributes:
        active: False once recording is over; the hooks then do nothing.
        inside: kind of the outermost open section; sections inside it are not reported.
        optimizer_steps: number of optimizer steps so far.
    """

    def __init__(self, settings: Settings, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.active = True
        self.inside: Kind | None = None
        self.optimizer_steps = 0
        self._settings = settings
        self._clock = clock
        self._thread = threading.get_ident()
        self._begin = 0
        self._key = 0
        self._mark: int | None = None
        self._events: list[TrainingEvent] = []
        self._waits = ScriptWaits(self._thread, clock, self, settings.event_fraction)
        self._evidence, self._cpu_begin = ScriptEvidence(), 0
        self._stepping: list[tuple[int, int, int]] = []  # id, begin and its CPU time, by open optimizer step
        self._previous = PreviousStep()
        self._pending: list[TimedStep] | None = []  # None once the number of micro-steps is known
        self._recorder: Recorder | None = None
        self._accumulation = Accumulation()
        self._latest: list[int] = []  # number of micro-steps of the latest steps
        self._optimizers: frozenset[int] = frozenset()
        self._faults: dict[str, str] = {}
        self._sync: bool | None = None
        self._trained: dict[int, Any] = {}  # modules by id, until their wrapper is known
        self._optimizer: Any = None
        self._wrapper: Wrapper = "other"
        self._steps = self._recorded = 0
        self._has_reported = False

    # ---- reports of the hooks -------------------------------------------------------------------

    @fail_open
    def enter(self, kind: Kind, key: int = 0, mark: int | None = None) -> bool:
        """Begin a section; return False if it is inside another one or on another thread."""
        if not self.active:
            return False
        if threading.get_ident() != self._thread:
            if kind == "data":
                self._faults.setdefault("prefetch_unaligned", "batches were fetched on another thread")
            return False
        if self.inside == "forward" and kind == "backward":  # The module's forward runs backward.
            self.leave("forward")
        if self.inside is not None:
            return False
        if self._events and self._events[-1].kind == "optimizer":
            self._end_step()
        self.inside, self._key, self._mark = kind, key, mark
        if kind == "backward":
            self._mark = self._sync
        self._begin, self._cpu_begin = self._clock(), self._evidence.cpu()
        return True

    @fail_open
    def leave(self, kind: Kind, mark: int | None = None) -> None:
        """End the section that ``enter`` began."""
        end = self._clock()
        if self.inside != kind:
            return
        self.inside = None
        if kind == "backward" and self._mark:
            self._waits.backward_ended(self._begin, end)
        events = self._events
        mark, cpu = self._mark if mark is None else mark, self._evidence.cpu()
        events.append(TrainingEvent(kind, self._begin, end, self._key, mark, self._cpu_begin, cpu))
        if len(events) > _MAX_EVENTS:
            if any(event.kind == "backward" for event in events):
                self._faults["loop_unclear"] = f"more than {_MAX_EVENTS} events in a step"
            del events[: _MAX_EVENTS // 2]

    @fail_open
    def optimizer_step_begins(self, optimizer: Any) -> None:
        """Begin an optimizer step."""
        if self.active and threading.get_ident() == self._thread:
            started = [key for key, *_ in self._stepping]
            if id(optimizer) in started:  # An exception ended its last step.
                del self._stepping[started.index(id(optimizer)) :]
            self._stepping.append((id(optimizer), self._clock(), self._evidence.cpu()))

    @fail_open
    def optimizer_step_ends(self, optimizer: Any) -> None:
        """End an optimizer step."""
        if not self.active:
            return
        if threading.get_ident() != self._thread:
            self.give_up("the optimizer steps on a thread other than the main one")
            return
        started = [key for key, *_ in self._stepping]
        if id(optimizer) in started:
            place = started.index(id(optimizer))
            begin = self._stepping[place][1:]
            del self._stepping[place:]
            self.add_optimizer_step(optimizer, begin)

    @fail_open
    def add_optimizer_step(self, optimizer: Any, begin: tuple[int, int] | None = None) -> None:
        """Add an optimizer step, including one that was skipped because gradients overflowed.
        It began at this time and CPU time."""
        if self.active and threading.get_ident() == self._thread:
            self._evidence.read_counters()  # The optimizer's step contains this call, so its end follows.
            end, cpu = self._clock(), self._evidence.cpu()
            self.optimizer_steps += 1
            since, cpu_since = (end, cpu) if begin is None else begin
            while self._events and self._events[-1].kind == "optimizer" and self._events[-1].begin >= since:
                self._events.pop()  # Another optimizer's step within this one is part of it.
                self.optimizer_steps -= 1
            self._events.append(TrainingEvent("optimizer", since, end, id(optimizer), None, cpu_since, cpu))
            if self._pending is not None:
                self._optimizer = optimizer

    @fail_open
    def module_called(self, module: Any, sync: bool | None) -> None:
        """Note the call of an outermost module.

        Args:
            sync: whether DDP will exchange the gradients of this call; None if unknown.
        """
        if sync is not None:
            self._sync = sync
            self._waits.watch(module)
        if self._pending is not None and self._mark:
            self._trained.setdefault(id(module), module)

    # ---- process group and end of the script ----------------------------------------------------

    @fail_open
    def process_group_created(self) -> None:
        """Create the recorder after ``init_process_group`` has returned.

        The recorder creates its own process group, which needs all ranks, and every rank of a job makes this
        call. Steps before it stay apart: if only some ranks took them, the group's would get other numbers.
        """
        if not self.active or threading.get_ident() != self._thread:
            return
        if self._recorder is None:
            self._close(failing=False)
            self._make_recorder("gloo")
        else:
            self._record_completed()
            self._recorder.rejoin()
            self._learn_again()
        self._waits.listen()

    @fail_open
    def process_group_closing(self) -> None:
        """Gather the last window before ``destroy_process_group`` runs."""
        if self.active and threading.get_ident() == self._thread:
            self._close(failing=sys.exc_info()[0] is not None)

    def close(self, failing: bool = False) -> None:
        """Close the recorder at the end of the script; if it is failing, hardly wait for the other ranks."""
        self._finish(failing)
        self.active = False
        self._evidence.close()

    def disable_in_child(self) -> None:
        """Stop recording in a forked child, which does not train."""
        self.active = False
        self._recorder = None
        stop_all(self._waits, self._evidence)

    def give_up(self, why: str) -> None:
        """Stop recording and report the reason once per job."""
        self.active = False
        with suppress(Exception):  # fail-open: this is called where an error must not reach training
            stop_all(self._waits, self._evidence)
        self._report_once(why)

    # ---- steps ----------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """Number that the current step gets if it is recorded."""
        recorder = self._recorder
        return (self._recorded if recorder is None else recorder.next_step) + len(self._pending or ())

    @fail_open
    def _finish(self, failing: bool) -> None:
        if not self.active:
            return
        self._close(failing)
        if not self._recorded:
            seen = f"{self._steps} optimizer steps, but no backward before them" if self._steps else "no step"
            self._report_once(f"nothing was recorded: the process's main thread took {seen}")

    def _close(self, failing: bool) -> None:
        self._record_completed()
        recorder, self._recorder = self._recorder, None
        self._waits.stop()
        if recorder is not None:
            recorder.__exit__(InterruptedError if failing else None, None, None)
        self._learn_again()

    def _record_completed(self) -> None:
        """Record the steps that are complete, although no further one has begun."""
        if self._events and self._events[-1].kind == "optimizer":
            self._end_step()
        if self._pending:
            self._learn(self._pending)

    def _learn_again(self) -> None:
        """Learn the loop again: it may be another model's, or in another process group."""
        self._pending = []
        self._previous = self._evidence.reset()
        self._optimizers, self._sync = frozenset(), None

    def _report_once(self, message: str) -> None:
        if not self._has_reported and os.environ.get("RANK", "0") == "0":
            sys.stderr.write(f"sfapp: {message}\n")
        self._has_reported = True

    def _get_recorder(self) -> Recorder:
        """Return the recorder, creating it if needed.

        A recorder created here must not wait for other ranks, which may never reach this place.
        """
        if self._recorder is not None:
            return self._recorder
        return self._make_recorder("gloo" if distributed_rank() is None else "local")

    def _make_recorder(self, gather: GatherMode) -> Recorder:
        from sfapp.recorder import Recorder

        settings = self._settings
        self._recorder = Recorder(
            settings.output,
            run_id=settings.run_id,
            window_steps=settings.window_steps,
            stages=STAGES,
            between=settings.between,
            first_step=self._recorded,
            gather=gather,
            storage_options=settings.storage_options,
        )
        self._recorder.follow_places(self._place)
        return self._recorder

    def _place(self) -> TrainingPlace | None:
        kind = self.inside or ("optimizer" if self._stepping else None)
        place = script_place(self.number, kind, self._begin, self._events, self._thread)
        return place if self.active else None

    def _end_step(self) -> None:
        """Record the step that the optimizers have ended; the time this takes lies between the steps."""
        begin, cpu = self._clock(), self._evidence.cpu()
        events, self._events = self._events, []
        self._stepping.clear()  # An exception ended those that are still open.
        self._steps += 1
        waits, sampled = self._waits.take()
        step = read_step(events, self._previous, waits, sampled)
        evidence = self._evidence.take(events, step)
        end = events[-1].end
        if step is None:
            before = self._previous
            lost = 0 if before.end is None else end - before.end + before.held_ns
            self._previous = PreviousStep(end, between_ns=before.between_ns + lost)
        else:
            self._previous, step.evidence = step.after, evidence
            self._note_optimizers(events)
            if self._faults:
                step.faults.update(self._faults)
                self._faults = {}
            self._add_step(step)
        own = self._clock() - begin
        self._previous.end = end + own
        self._previous.between_ns = self._previous.between_ns + own if self._settings.between else 0
        self._evidence.end_own(cpu, self._settings.between)

    def _note_optimizers(self, events: list[TrainingEvent]) -> None:
        keys = [events[-1].key]
        place = len(events) - 2
        while place >= 0 and events[place].kind == "optimizer":
            keys.append(events[place].key)
            place -= 1
        optimizers = frozenset(keys)
        if self._optimizers and optimizers != self._optimizers:
            self._faults["optimizers_alternate"] = f"{len(optimizers | self._optimizers)} optimizers"
        self._optimizers = optimizers

    def _add_step(self, step: TimedStep) -> None:
        if self._pending is None:
            self._record(step)
            return
        self._pending.append(step)
        if len(self._pending) == LEARNING_STEPS:
            self._learn(self._pending)

    def _learn(self, steps: list[TimedStep]) -> None:
        """Derive the accumulation from the first steps, then record them."""
        self._pending = None
        self._wrapper = self._find_wrapper()
        recorder = self._get_recorder()
        counts = Counter(len(step.micro_steps) for step in steps)
        factor = max(counts, key=lambda count: (counts[count], count))
        self._set_accumulation(recorder, factor, ordered=len(counts) == 1)
        recorder.declare(wrapper=self._wrapper)
        for step in steps:
            self._record(step)

    def _find_wrapper(self) -> Wrapper:
        trained, optimizer = self._trained.values(), self._optimizer
        self._trained, self._optimizer = {}, None  # The script may drop them, and their memory.
        if distributed_rank() is None and place_here().world_size == 1:
            return "single"
        return wrapper_among(trained, optimizer)

    def _set_accumulation(self, recorder: Recorder, factor: int, ordered: bool) -> None:
        is_known = self._sync is not None or factor == 1 or self._wrapper == "single"
        self._accumulation = Accumulation(
            factor=factor,
            ordered=ordered and factor <= MAX_ORDERED_MICRO_STEPS,
            sync="every" if is_known else "unknown",
        )
        recorder.reconfigure(accumulation=self._accumulation)
        self._latest = []

    def _record(self, step: TimedStep) -> None:
        recorder = self._get_recorder()
        factor, count = self._accumulation.factor, len(step.micro_steps)
        if count != factor or not self._accumulation.ordered:
            self._adapt_accumulation(recorder, step, count)
        elif self._latest:
            self._latest.clear()
        recorder.add_step(
            *(step.wall_ns, step.micro_steps, step.syncs, step.faults),
            *(step.waits, step.device_calls, step.evidence),
        )
        self._recorded += 1

    def _adapt_accumulation(self, recorder: Recorder, step: TimedStep, count: int) -> None:
        """Handle a different number of micro-steps: a fault until it has been the same for some steps."""
        self._latest = [*self._latest, count][-LEARNING_STEPS:]
        same = self._latest == [count] * LEARNING_STEPS
        if same and (count != self._accumulation.factor or count <= MAX_ORDERED_MICRO_STEPS):
            self._set_accumulation(recorder, count, ordered=True)
        elif count != self._accumulation.factor:
            step.faults["accumulation_mixed"] = f"{count} micro-steps, not {self._accumulation.factor}"
