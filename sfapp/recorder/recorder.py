"""The recorder's face to a training loop: ``step()`` and ``stage()``, and when windows open and close."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any

import sfapp
from sfapp.errors import RecorderError, describe_error
from sfapp.model.capture import DEFAULT_LIMITS, PROFILED, CaptureLimits
from sfapp.model.manifest import Accumulation, ClosedBy, Parallelism, Prefetch, RecorderInfo, Wrapper
from sfapp.model.reasons import reason_sentence
from sfapp.model.stages import DEFAULT_STAGES, FORWARD_EVENT, MAX_NAME_LENGTH, stage_category
from sfapp.model.window import RankIdentity
from sfapp.packets.job import JobInfo
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.recorder.capture.rank_captures import Captures, Position
from sfapp.recorder.identity import identity_after_change, place_here, role_of, run_id_from_environment
from sfapp.recorder.side_channels.channels import EventSample, SideChannel
from sfapp.recorder.side_channels.recording import Beside
from sfapp.recorder.termination import WATCH
from sfapp.recorder.timing.batches import Batch, Batches
from sfapp.recorder.timing.contexts import MicroStep, UncountedStage
from sfapp.recorder.timing.phases import Phases
from sfapp.recorder.timing.timer_backend import measure_costs, new_state, times_in_c
from sfapp.recorder.timing.timers import Clock, Stage, Step
from sfapp.recorder.transport.errors import warn
from sfapp.recorder.transport.process_group import GATHER_MODES, GatherMode, distributed_rank, join
from sfapp.recorder.transport.sink import open_sink

_LONGEST_WARNING = 300

_FAREWELL_SECONDS = 2.0
"""How long a process that is failing or told to terminate may still wait for its packets."""

_GRACE_SECONDS = 1.0
"""What closing waits beyond a gather's timeout, so that the gather ends by itself and leaves its rows."""


class Recorder:
    """Records how long each stage of each training step took on this rank, and leaves packets.

    >>> with sfapp.Recorder(output="packets", run_id="train-7") as perf:
    ...     for _ in range(steps):
    ...         with perf.step():
    ...             with perf.stage("data.next_wait"):
    ...                 batch = next(batches)

    Make it on every rank, after ``init_process_group`` (it makes a Gloo group of its own), and close it on
    every rank. Once made, it never raises (but for ``strict``), and delays training only when it is closed:
    by ``timeout`` and little more at worst. What goes wrong is a fault in the packet; rows that could not be
    gathered are left as one part a rank. Where torch.distributed is not initialised, every rank of a larger
    job leaves parts.

    Args:
        output: folder for packets, ``<output>/<run_id>/<window>.parquet``.
        run_id: the run's name; rank 0's where ranks differ. A run that is started again goes on after the
            windows that it has. Where None: torchrun's ``--rdzv-id``, Slurm's job, else the time.
        window_steps: steps a window.
        stages: ordered explicit stages; the residual ``step.other_cpu_wall`` is added at the end.
        accumulation: gradient accumulation; where ``ordered`` and the factor above 1, data, forward and
            backward are kept apart per micro-step (``with perf.micro_step(k):``).
        identity: this rank's place; from torch.distributed and the launcher's environment (torchrun, Slurm,
            MPI) where None.
        roles: diagnosis role of this rank (``dp``, ``pp0``, ``expert3``), or of every rank by its number; an
            identity brings its own.
        wrapper, parallelism, prefetch, model_fit: declared in the packet (packet.md).
        first_step: number of the first step, for a run that goes on from a checkpoint; the highest of all
            ranks'.
        gather: how a window's rows come together: over a ``gloo`` or ``nccl`` group of the recorder's own; as
            the frontier alone, with the rows of a few ranks, at a cost that does not grow with their number
            (``reduce``, over Gloo, for thousands of ranks); or not at all (``local``: every rank leaves its
            part, which readers put together).
        timeout: seconds a rank waits for the others at a window's end, off the training thread but for NCCL.
        event_fraction: of the steps, those in which ``cuda_event_sample`` records events: 0, 0.05 or 1, say.
        strict: raise RecorderError where a stage is entered inside another one, outside a step or in a
            micro-step that was not declared, or one that is not among ``stages``.
        max_pending: closed windows that may wait to be written before one is dropped, beside short ones that
            wait to be gathered together (docs/recorder.md).
        stream: send rows to an aggregator as they are recorded, and gather nothing: its address or that of
            the node's relay, ``tcp://127.0.0.1:29766``, or ``sfapp.stream.StreamOptions``. Where None, what
            ``SFAPP_STREAM`` says.
        captures: how much of it a capture may profile (docs/capture.md); None, or ``SFAPP_CAPTURES=off`` in
            the environment, to take no requests.
        clock: monotonic ns; for tests.

    Raises:
        RecorderError: the arguments cannot work.
    """

    def __init__(
        self,
        output: str | Path,
        *,
        run_id: str | None = None,
        window_steps: int = 100,
        stages: Sequence[str] = DEFAULT_STAGES[:-1],
        accumulation: Accumulation | None = None,
        identity: RankIdentity | None = None,
        roles: str | Mapping[int, str] | Sequence[str] | None = None,
        wrapper: Wrapper = "other",
        parallelism: Parallelism | None = None,
        prefetch: Prefetch = "unknown",
        model_fit: bool = False,
        first_step: int = 0,
        gather: GatherMode = "gloo",
        timeout: float = 30.0,
        event_fraction: float = 0.0,
        strict: bool = False,
        max_pending: int = 4,
        stream: Any = None,
        captures: CaptureLimits | None = DEFAULT_LIMITS,
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        if window_steps < 1 or max_pending < 1 or timeout <= 0:
            raise RecorderError("window_steps, max_pending and timeout must be positive")
        if gather not in GATHER_MODES:
            raise RecorderError(f"gather must be one of {', '.join(GATHER_MODES)}, not {gather!r}")
        if not 0 <= event_fraction <= 1:
            raise RecorderError("event_fraction must lie between 0 and 1")
        run_id = run_id_from_environment() if run_id is None else run_id
        if not run_id or len(run_id) > MAX_NAME_LENGTH:
            raise RecorderError(f"run_id must have 1 to {MAX_NAME_LENGTH} characters")
        if not isinstance(clock(), int):
            raise RecorderError("the clock must count whole nanoseconds")
        rank = distributed_rank()
        place = place_here() if identity is None or rank is None else None
        identity = place.identity() if identity is None else identity
        identity = identity if roles is None else replace(identity, role=role_of(roles, identity.rank))
        if rank is not None and rank != identity.rank:
            raise RecorderError(f"the identity says rank {identity.rank}, torch.distributed rank {rank}")
        schema = WindowSchema.of(stages, accumulation or Accumulation(), identity.role)
        self._window_steps = window_steps
        self._timeout = timeout
        self._gather: GatherMode = gather
        self._process = os.getpid()
        self._told = {PROFILED}  # which was asked for
        self._state = new_state(clock, self._finish_step, self._follow_steps, self._note, strict)
        self._step = self._state.new_step()
        # The same two without a frame of Python's: between a model's kernels each costs a microsecond or two.
        self.step = itertools.repeat(self._step).__next__  # type: ignore[method-assign]
        self.stage = self._state.by_name.__getitem__  # type: ignore[method-assign]
        self._beside = Beside(self._state, event_fraction)
        self._bare_step_ns, self._stage_ns = measure_costs()
        job = JobInfo(
            root=Path(output),
            run_id=run_id,
            world_size=place.world_size if rank is None else 1,
            wrapper=wrapper,
            parallelism=parallelism or Parallelism(),
            prefetch=prefetch,
            model_fit=model_fit,
            recorder=_recorder_info(identity),
            extra={
                "event_fraction": event_fraction,
                "no_events": self._beside.no_events,
                "timed_in": "C" if times_in_c() else "Python",
            },
        )
        self._team, self._window_number, first_step = join(job, identity, timeout, gather, step=first_step)
        self._use(schema)
        self._writer = open_sink(stream, max_pending)
        self._open_window(schema, first_step)
        self._captures = Captures(
            self._state,
            self._writer.mailbox,
            self._position,
            self._mark_profiled,
            captures,
            self._writer.failures,
        )
        self._recording, self._ended = True, False
        self._stopping = threading.Lock()
        atexit.register(self._at_exit)
        WATCH.add(self._farewell)

    # ---- the training loop ----------------------------------------------------------------------

    def step(self) -> Step:
        """Context of one optimizer step. A step whose body raises keeps its number but is not recorded."""
        return self._step

    def stage(self, name: str) -> Stage | UncountedStage:
        """Context of one stage of the current step. Entered twice, its time adds up. Stages do not nest: an
        inner one is a fault, its time the outer one's."""
        return self._state.by_name[name]

    def micro_step(self, index: int, sync: bool | None = None) -> MicroStep:
        """Context of one gradient-accumulation micro-step, counted from 0. One that the accumulation does not
        have knows no stages: their time stays in the residual.

        Args:
            sync: whether its backward exchanges gradients (False under ``no_sync``). Said for all
                micro-steps, the pattern is recorded, and a change of it closes the window.
        """
        micro = self._micro_steps[index if 0 <= index < len(self._micro_steps) else -1]
        micro.sync = sync
        return micro

    def batches(self, loader: Iterable[Batch]) -> Batches[Batch]:
        """A loader whose waits count as the data stage of the step that consumes the batch, whether it is
        asked for before the step, in it, or by a prefetcher one step ahead.

        >>> for batch in perf.batches(loader):
        ...     with perf.step():
        ...         ...

        Where it cannot be known which step a batch is for (a thread fetches it, or steps are skipped), the
        window says ``prefetch_unaligned``.
        """
        return Batches(loader, self._state, lambda: self._schema.accumulation.factor, self._data_stage)

    def phases(self) -> Phases:
        """Steps and stages told by calls instead of contexts, for loops that offer hooks alone."""
        return Phases(self._state, self._step, self.stage, self.micro_step)

    def add_step(
        self,
        wall_ns: int,
        micro_steps: Sequence[Mapping[str, int]],
        syncs: Sequence[bool] = (),
        faults: Mapping[str, str] | None = None,
    ) -> None:
        """Record a step that was timed elsewhere, as a whole, instead of by ``step()`` and ``stage()``.

        Args:
            micro_steps: per micro-step the ns of its stages by name; what they leave of ``wall_ns`` is the
                residual.
            syncs: per micro-step whether gradients were exchanged, where known of all.
            faults: by code, with what was seen.
        """
        state, end = self._state, self._state.clock()
        for code, detail in (faults or {}).items():
            self._note(code, detail)
        state.reset()
        state.syncs.extend(syncs)
        spent_so_far = state.spent()
        for stages, column_of in zip_longest(micro_steps, self._schema.column_of[: len(micro_steps)]):
            columns = column_of or self._schema.column_of[-1]
            for name, spent in stages.items():
                if name in columns:
                    spent_so_far[columns[name]] += spent
                else:
                    self.stage(name)  # none such, which is noted
        try:
            state.set_spent(spent_so_far)
        except (TypeError, OverflowError) as error:
            self._give_up(error)
        self._finish_step(end - wall_ns, end, True)
        self._follow_steps()

    def declare(self, *, wrapper: Wrapper) -> None:
        """Say what the model is wrapped in, where that shows only after the recorder was made; the windows
        that are not closed yet will carry it."""
        self._team.job = replace(self._team.job, wrapper=wrapper)

    # ---- beside the stages ----------------------------------------------------------------------

    def side_channel(self, name: str) -> SideChannel | UncountedStage:
        """Context of something measured beside the stages, inside one or round several: its time over a step,
        in ms, as ``side.<name>``. Never part of the accounting."""
        return self._beside.channel(name)

    def cuda_event_sample(self, name: str = FORWARD_EVENT) -> EventSample | UncountedStage:
        """Context of a region of the current stream that two timing events go round in ``event_fraction`` of
        the steps, in ms. Nothing is waited for. Without a CUDA device the channel is there, sampled nowhere.
        """
        return self._beside.event(name, self._state.number)

    def observe(self, name: str, value: float) -> None:
        """Note a value of the current step as ``side.<name>``: bytes, tokens, a loss. The last one counts."""
        self._beside.observe(name, value)

    def watch_memory(self, model: Any = None) -> None:
        """From now on, memory at each step's end as side channels, ``memory.*`` in bytes: allocated and peak
        of this rank's CUDA device (in one step of 8), or resident memory of the process where there is none.

        Args:
            model: the model, sharded already where it will be: adds what its parameters take on this rank and
                altogether, from one pass over them now.

        Raises:
            RecorderError: the model is no module.
        """
        self._beside.watch_memory(model)

    def time_layers(self, model: Any) -> None:
        """A deep dive: from now on, host time of each layer's forward and backward pass as side channels,
        ``layer.<name>.forward_ms`` and ``.backward_ms``. Costs a few µs a layer; at most 12 layers.

        Raises:
            RecorderError: the model is sharded (FSDP) or compiled, or has too many layers or none.
        """
        self._beside.time_layers(model)

    # ---- windows --------------------------------------------------------------------------------

    def reconfigure(
        self,
        *,
        stages: Sequence[str] | None = None,
        accumulation: Accumulation | None = None,
        role: str | None = None,
    ) -> None:
        """Change what is recorded, between steps and on every rank alike; a change closes the window.

        What cannot be recorded (names that cannot be columns, a change inside a step) is refused with the
        fault ``reconfigure_refused``, and recording goes on as before.
        """
        old = self._schema
        try:
            if self._state.in_step:
                raise RecorderError("inside a step")
            schema = WindowSchema.of(stages or old.broad, accumulation or old.accumulation, role or old.role)
        except RecorderError as refusal:
            self._note("reconfigure_refused", str(refusal))
            return
        if schema.broad != old.broad:
            self._close_window("schema_change", schema)
        elif schema.accumulation != old.accumulation:
            self._close_window("accumulation_change", schema)
        elif schema.role != old.role:
            self._close_window("role_change", schema)

    def rejoin(self, identity: RankIdentity | None = None) -> None:
        """Close the window and join the ranks that torch.distributed has now, after the world has changed; on
        every rank of the new world alike, between steps. A process that is new to it makes its recorder then,
        and all go on with the highest window and step that any of them had."""
        if not self._recording:
            return
        if self._team.group is not None:  # whatever it still waits for, nobody may be there to answer
            self._team.group.give_up("the world changed before the other ranks answered")
        self._close_window("world_change", self._schema)
        identity = identity or replace(identity_after_change(self._team.identity), role=self._schema.role)
        self._team, window, step = join(
            self._team.job, identity, self._timeout, self._gather, self._window_number, self._state.number
        )
        self._window_number = self._buffer.number = window
        self._writer.begin_window(self._team, self._buffer)
        self._go_on_from(step)

    def flush(self) -> None:
        """Close the current window now, on every rank alike."""
        self._close_window("flush", self._schema)

    def close(self) -> None:
        """Close the last window, write what waits and stop. On every rank; again is no harm."""
        self._end(self._timeout + _GRACE_SECONDS)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        failing = kind is not None and not issubclass(kind, SystemExit)
        self._end(_FAREWELL_SECONDS if failing else self._timeout + _GRACE_SECONDS)

    @property
    def stages(self) -> tuple[str, ...]:
        """The ordered explicit stages, without the residual."""
        return self._schema.broad

    @property
    def accumulation(self) -> Accumulation:
        """Gradient accumulation as it is recorded now."""
        return self._schema.accumulation

    @property
    def written(self) -> tuple[Path, ...]:
        """The newest packets this rank has written, at most 256."""
        return tuple(self._writer.written)

    @property
    def pending(self) -> int:
        """Closed windows that are not on disk yet, those among them that wait to be gathered together."""
        return self._writer.pending

    @property
    def failures(self) -> tuple[str, ...]:
        """The newest things that went wrong, at most 256, for a log; training was never told."""
        return tuple(self._writer.failures)

    # ---- inside ---------------------------------------------------------------------------------

    def _position(self) -> Position:
        return Position(self._team, self._state.number, self._window_end)

    def _mark_profiled(self, step: int) -> None:
        self._beside.mark(PROFILED, step)
        self._note("profiled_steps", f"step {step}")

    def _use(self, schema: WindowSchema) -> None:
        """Make the contexts of a schema."""
        self._schema = schema
        self._state.use(schema.column_of, len(schema.stages) - 1)
        self._micro_steps = [MicroStep(self._state, micro) for micro in range(len(self._state.stages))]
        self._step_ns = self._bare_step_ns + self._stage_ns * len(schema.broad)
        data = [name for name in schema.broad if stage_category(name) == "data"]
        self._data_stage = data[0] if data else schema.broad[0]
        self._state.held_column = schema.column_of[0][self._data_stage] if data else None

    def _note(self, code: str, detail: str) -> None:
        """Record a telemetry fault. The first of its kind is a warning in the log as well: most are slips of
        the instrumented loop, and whoever made one reads the log long before a packet."""
        self._buffer.note(code, detail)
        if code not in self._told:
            self._told.add(code)
            meaning = reason_sentence(code).rstrip(".")
            seen = f"{code}: {detail}"[:_LONGEST_WARNING] if detail else code
            warn(f"{meaning} ({seen}; training goes on, packets say it of their window)")

    def _finish_step(self, begin: int, end: int, completed: bool) -> None:
        """A step that has more than a row has ended, or none that counts."""
        state = self._state
        if not self._recording:
            state.clear_row()
            return
        try:
            if state.syncs:
                self._follow_syncs(state.syncs)
            if completed:
                self._beside.finish_step(state.number)
                if end < begin:
                    self._note("nonmonotonic_clock", "step")
                    begin = end
                state.add_row(end - begin)
                self._buffer.record_ns += state.clock() - end
            else:
                self._beside.drop_step()
                state.clear_row()
            state.number += 1
        except Exception as error:
            self._give_up(error)

    def _follow_steps(self) -> None:
        """What is due between two steps. Windows end at step numbers, not at row counts: where a rank had to
        leave a step out, its windows still close with the others'."""
        state = self._state
        if not self._recording:
            return
        if state.number >= state.capture_due:
            self._captures.pass_step(state.number - 1, self._buffer.number)
        if state.number >= self._window_end:
            self._close_window("full", self._schema)
        elif state.number >= state.due:
            try:
                self._plan_next()
            except Exception as error:
                self._give_up(error)

    def _plan_next(self) -> None:
        """Say when ``_follow_steps`` is to be called next: for the window's first step, which tells when it
        began, and where a page is full."""
        state, buffer = self._state, self._buffer
        if not buffer.filled and not buffer.sync():
            state.due = state.number + 1
        else:
            state.due = min(self._window_end, state.number + (buffer.room or buffer.next_page()))

    def _follow_syncs(self, syncs: Sequence[bool]) -> None:
        """Close the window before a step whose gradients are exchanged in another pattern than declared."""
        old = self._schema.accumulation
        if len(syncs) != old.factor:
            self._note("accumulation_mixed", f"{len(syncs)} micro-steps, not {old.factor}")
            return
        last = old.factor > 1 and syncs[-1] and not any(syncs[:-1])
        sync = "last" if last else "every" if all(syncs) else "mixed"
        if sync != old.sync:
            spent = self._state.spent()
            self._state.clear_row()
            changed = replace(self._schema, accumulation=replace(old, sync=sync))
            self._close_window("accumulation_change", changed)
            self._state.set_spent(spent)  # the step's own: the columns are the same

    def _open_window(self, schema: WindowSchema, step: int) -> None:
        """Begin a window with this step."""
        if schema is not self._schema:
            self._use(schema)
        self._buffer = WindowBuffer.empty(schema, self._window_number, self._window_steps)
        self._buffer.step_cost_ns = self._step_ns
        self._buffer.record_from(self._state)
        self._beside.buffer = self._buffer
        self._writer.begin_window(self._team, self._buffer)
        self._go_on_from(step)

    def _go_on_from(self, step: int) -> None:
        """The window that has just been opened begins with this step."""
        self._state.number = self._window_begin = step
        self._window_end = step + self._window_steps
        self._state.due = step + 1

    def _close_window(self, closed_by: ClosedBy, schema: WindowSchema) -> None:
        """Hand the window over and open the next, without waiting for anything."""
        if not self._recording:
            return
        begin = self._state.clock()
        try:
            kept = self._hand_over(closed_by)
            noted = {} if self._window_number > self._buffer.number else self._buffer.faults
            self._open_window(schema, self._state.number)
            self._buffer.faults.update(noted)
            if not kept:
                self._note("dropped_steps", "")
            self._buffer.record_ns += self._state.clock() - begin
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Fail-open: recording ends, training goes on."""
        self._recording = False
        self._state.reports_every_step = True
        self._captures.stop("recording stopped")
        self._writer.failures.append(f"recording stopped: {describe_error(error)}")

    def _hand_over(self, closed_by: ClosedBy) -> bool:
        """Give the window to the writer if it saw a step; False if its rows had to be dropped.

        At shutdown an empty window is handed over too: the other ranks may have one that is not.
        """
        last = closed_by == "shutdown"
        if self._state.number == self._window_begin and not last:
            return True
        self._beside.forget_events()
        self._buffer.nested_ns, self._state.nested_ns = self._state.nested_ns, 0
        self._buffer.close(closed_by)
        self._window_number += 1
        return self._writer.end_window(self._team, self._buffer, last)

    def _end(self, seconds: float) -> None:
        # A forked child has no writer thread and no rows of its own.
        if self._ended or self._process != os.getpid():
            return
        self._ended = True
        atexit.unregister(self._at_exit)
        self._stop_recording()
        self._beside.close()
        deadline = time.monotonic() + seconds
        self._captures.stop("the recorder was closed")
        self._captures.close(seconds)  # what it has to say may go where the rows go
        self._writer.close(max(_GRACE_SECONDS, deadline - time.monotonic()))
        WATCH.remove(self._farewell)  # last: SIGTERM may come while this waits

    def _stop_recording(self) -> None:
        with self._stopping:  # the training's thread and SIGTERM's may both be here
            if self._recording:
                self._recording = False
                self._state.reports_every_step = True
                try:
                    self._hand_over("shutdown")
                except Exception as error:
                    self._give_up(error)

    def _at_exit(self) -> None:
        failing = getattr(sys, "last_value", None) is not None  # an error nobody caught ends the process
        self._end(_FAREWELL_SECONDS if failing else self._timeout + _GRACE_SECONDS)

    def _farewell(self) -> None:
        """SIGTERM: save this rank's rows, on the thread that watches for it, while training may still run."""
        self._stop_recording()
        self._captures.leave()
        self._writer.save_parts("the process was told to terminate (SIGTERM)", _FAREWELL_SECONDS)


def _recorder_info(identity: RankIdentity) -> RecorderInfo:
    import torch

    return RecorderInfo(
        version=sfapp.__version__, torch=str(torch.__version__), backend="none", host=identity.hostname
    )
