"""One process's recording of a training script that knows nothing of it: from hooks to a ``Recorder``.

Nothing here raises into training. Where a loop is not one that the hooks can follow, this says so once and
records nothing, or records it with a fault; it never guesses.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sfapp.errors import describe_error
from sfapp.model.manifest import Accumulation, Wrapper
from sfapp.recorder.auto.steps import STAGES, Before, Kind, TimedStep, TrainingEvent, read_step
from sfapp.recorder.identity import place_here
from sfapp.recorder.transport.rank_group import distributed_rank
from sfapp.recorder.transport.transports import GatherMode
from sfapp.recorder.wrapper import wrapper_of

if TYPE_CHECKING:
    from sfapp.recorder import Recorder

LEARNED_FROM = 3
"""Steps after which the number of micro-steps is known, or known to vary."""

MOST_KEPT_APART = 32
"""Micro-steps with columns of their own; with more of them they are added up."""

_WRAPPERS: tuple[Wrapper, ...] = ("fsdp2", "fsdp1", "zero1", "ddp")

_MOST_EVENTS = 1 << 14
"""Most that is kept of what happens between two optimizer steps; a long evaluation loses its beginning."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``sfapp run`` was asked for."""

    output: Path
    run_id: str | None = None
    window_steps: int = 100


def _fail_open(
    method: Callable[Concatenate[Session, P], R],
) -> Callable[Concatenate[Session, P], R | None]:
    """An error of ours ends the recording, not the training."""

    def guarded(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # fail-open
            self.give_up(f"recording stopped: {describe_error(error)}")
            return None

    functools.update_wrapper(guarded, method)
    return guarded


class Session:
    """What the hooks report to, on the main thread of one training process.

    Attributes:
        active: False once recording is over; the hooks then do nothing.
        inside: what is under way: the outermost counts, what lies within it is its own.
        updates: optimizer steps seen.
    """

    def __init__(self, settings: Settings, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.active = True
        self.inside: Kind | None = None
        self.updates = 0
        self._settings = settings
        self._clock = clock
        self._thread = threading.get_ident()
        self._begin = 0
        self._key = 0
        self._mark: int | None = None
        self._events: list[TrainingEvent] = []
        self._stepping: list[tuple[int, int]] = []  # optimizers whose step is under way, and since when
        self._before = Before()
        self._pending: list[TimedStep] | None = []  # until the number of micro-steps is known
        self._recorder: Recorder | None = None
        self._accumulation = Accumulation()
        self._latest: list[int] = []  # micro-steps of the latest steps
        self._optimizers: frozenset[int] = frozenset()
        self._faults: dict[str, str] = {}
        self._sync: bool | None = None
        self._trained: dict[int, Any] = {}  # modules, until it is known what they are wrapped in
        self._optimizer: Any = None
        self._wrapper: Wrapper = "other"
        self._steps = self._recorded = 0
        self._said = False

    # ---- what the hooks report ------------------------------------------------------------------

    @_fail_open
    def enter(self, kind: Kind, key: int = 0, mark: int | None = None) -> bool:
        """Something begins; False if it lies within something else, or is not the training thread's."""
        if not self.active:
            return False
        if threading.get_ident() != self._thread:
            if kind == "data":
                self._faults.setdefault("prefetch_unaligned", "batches were fetched on another thread")
            return False
        if self.inside == "forward" and kind == "backward":  # trains inside a module's forward
            self.leave("forward")
        if self.inside is not None:
            return False
        if self._events and self._events[-1].kind == "optimizer":
            self._end_step()
        self.inside, self._key, self._mark = kind, key, mark
        if kind == "backward":
            self._mark = self._sync
        self._begin = self._clock()
        return True

    @_fail_open
    def leave(self, kind: Kind, mark: int | None = None) -> None:
        """What was entered ends."""
        end = self._clock()
        if self.inside != kind:
            return
        self.inside = None
        events = self._events
        events.append(
            TrainingEvent(kind, self._begin, end, self._key, self._mark if mark is None else mark),
        )
        if len(events) > _MOST_EVENTS:
            if any(event.kind == "backward" for event in events):
                self._faults["loop_unclear"] = f"more than {_MOST_EVENTS} events in a step"
            del events[: _MOST_EVENTS // 2]

    @_fail_open
    def update_begins(self, optimizer: Any) -> None:
        """An optimizer's step begins; those that it makes others take are part of it."""
        if self.active and threading.get_ident() == self._thread:
            started = [key for key, _ in self._stepping]
            if id(optimizer) in started:  # its last step was left by an exception
                del self._stepping[started.index(id(optimizer)) :]
            self._stepping.append((id(optimizer), self._clock()))

    @_fail_open
    def update_ends(self, optimizer: Any) -> None:
        """An optimizer's step has ended."""
        if not self.active:
            return
        if threading.get_ident() != self._thread:
            self.give_up("the optimizer steps on a thread other than the main one")
            return
        started = [key for key, _ in self._stepping]
        if id(optimizer) in started:
            place = started.index(id(optimizer))
            begin = self._stepping[place][1]
            del self._stepping[place:]
            if not self._stepping:
                self.update(optimizer, begin)

    @_fail_open
    def update(self, optimizer: Any, begin: int | None = None) -> None:
        """An optimizer's step, or its turn that was skipped as gradients had overflowed."""
        end = self._clock()
        if self.active and threading.get_ident() == self._thread:
            self.updates += 1
            self._events.append(
                TrainingEvent("optimizer", end if begin is None else begin, end, id(optimizer))
            )
            if self._pending is not None:
                self._optimizer = optimizer

    @_fail_open
    def runs(self, module: Any, sync: bool | None) -> None:
        """An outermost module is about to run; ``sync``: whether DDP will exchange its gradients."""
        if sync is not None:
            self._sync = sync
        if self._pending is not None and self._mark:
            self._trained.setdefault(id(module), module)

    # ---- the job around it ----------------------------------------------------------------------

    @_fail_open
    def joined(self) -> None:
        """``init_process_group`` has returned: the one call that every rank of a job makes. So the
        recorder, which creates its own group, is created here."""
        if not self.active or threading.get_ident() != self._thread:
            return
        if self._recorder is None:
            self._make_recorder("gloo")
        else:
            self._recorder.rejoin()

    @_fail_open
    def leaving(self) -> None:
        """``destroy_process_group`` is about to run: the last window is gathered while it can be."""
        if self.active and threading.get_ident() == self._thread:
            self._close(failing=sys.exc_info()[0] is not None)

    def close(self, failing: bool = False) -> None:
        """The script has ended. One that is failing waits for the other ranks no more than moments."""
        self._finish(failing)
        self.active = False

    def forget(self) -> None:
        """This is a forked child: nothing in it is training's."""
        self.active = False
        self._recorder = None

    def give_up(self, why: str) -> None:
        """Record nothing more, and say so once for the job."""
        self.active = False
        self._say(why)

    # ---- inside ---------------------------------------------------------------------------------

    @_fail_open
    def _finish(self, failing: bool) -> None:
        if not self.active:
            return
        self._close(failing)
        if not self._recorded:
            seen = f"{self._steps} optimizer steps, but no backward before them" if self._steps else "no step"
            self._say(f"nothing was recorded: the process's main thread took {seen}")

    def _close(self, failing: bool) -> None:
        if self._events and self._events[-1].kind == "optimizer":
            self._end_step()
        if self._pending:
            self._learn(self._pending)
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__(InterruptedError if failing else None, None, None)
        # Whatever trains after this (another world, another model) is learned anew.
        self._pending = []
        self._before = Before()
        self._optimizers, self._sync = frozenset(), None

    def _say(self, what: str) -> None:
        if not self._said and os.environ.get("RANK", "0") == "0":
            sys.stderr.write(f"sfapp: {what}\n")
        self._said = True

    def _recorder_now(self) -> Recorder:
        """The recorder; made here, it must not wait for ranks that may never come this far."""
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
            first_step=self._recorded,
            gather=gather,
        )
        return self._recorder

    def _end_step(self) -> None:
        """Read the step that the optimizers have ended. What this costs is no part of the next one."""
        begin = self._clock()
        events, self._events = self._events, []
        self._steps += 1
        step = read_step(events, self._before)
        end = events[-1].end
        if step is None:
            self._before = Before(end)
        else:
            self._before = step.left
            self._note_optimizers(events)
            if self._faults:
                step.faults.update(self._faults)
                self._faults = {}
            self._take(step)
        self._before.end = end + self._clock() - begin

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

    def _take(self, step: TimedStep) -> None:
        if self._pending is None:
            self._record(step)
            return
        self._pending.append(step)
        if len(self._pending) == LEARNED_FROM:
            self._learn(self._pending)

    def _learn(self, steps: list[TimedStep]) -> None:
        """Set the accumulation as the first steps show it, then record them."""
        self._pending = None
        self._wrapper = self._find_wrapper()
        recorder = self._recorder_now()
        counts = Counter(len(step.micro_steps) for step in steps)
        factor = max(counts, key=lambda count: (counts[count], count))
        self._accumulate(recorder, factor, ordered=len(counts) == 1)
        recorder.declare(wrapper=self._wrapper)
        for step in steps:
            self._record(step)

    def _find_wrapper(self) -> Wrapper:
        if distributed_rank() is None and place_here().world_size == 1:
            return "single"
        found = {wrapper_of(module, self._optimizer) for module in self._trained.values()}
        self._trained, self._optimizer = {}, None
        return next((wrapper for wrapper in _WRAPPERS if wrapper in found), "other")

    def _accumulate(self, recorder: Recorder, factor: int, ordered: bool) -> None:
        known = self._sync is not None or factor == 1 or self._wrapper == "single"
        self._accumulation = Accumulation(
            factor=factor,
            ordered=ordered and factor <= MOST_KEPT_APART,
            sync="every" if known else "unknown",
        )
        recorder.reconfigure(accumulation=self._accumulation)
        self._latest = []

    def _record(self, step: TimedStep) -> None:
        recorder = self._recorder_now()
        factor, count = self._accumulation.factor, len(step.micro_steps)
        if count != factor or not self._accumulation.ordered:
            self._follow(recorder, step, count)
        elif self._latest:
            self._latest.clear()
        recorder.add_step(step.wall_ns, step.micro_steps, step.syncs, step.faults)
        self._recorded += 1

    def _follow(self, recorder: Recorder, step: TimedStep, count: int) -> None:
        """Another number of micro-steps than learned: a fault, until it has been the same for some steps."""
        self._latest = [*self._latest, count][-LEARNED_FROM:]
        same = self._latest == [count] * LEARNED_FROM
        if same and (count != self._accumulation.factor or count <= MOST_KEPT_APART):
            self._accumulate(recorder, count, ordered=True)
        elif count != self._accumulation.factor:
            step.faults["accumulation_mixed"] = f"{count} micro-steps, not {self._accumulation.factor}"
