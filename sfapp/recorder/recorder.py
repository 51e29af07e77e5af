"""``Recorder``: the interface for training loops, and the start and end of recording."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from sfapp.errors import RecorderError
from sfapp.model.capture import DEFAULT_LIMITS, CaptureLimits
from sfapp.model.host_evidence import EVIDENCE_KEY
from sfapp.model.manifest import Accumulation, Wrapper
from sfapp.model.periods import WORKERS_KEY
from sfapp.model.rank_table import RankIdentity
from sfapp.model.stages import FORWARD_EVENT
from sfapp.model.standstill import PlaceSource
from sfapp.packets.output import open_output
from sfapp.packets.window_rows import WindowSchema
from sfapp.recorder.identity import identity_after_change
from sfapp.recorder.job_description import describe_job
from sfapp.recorder.options import (
    GatherOptions,
    JobOptions,
    RecorderKeywords,
    RecorderOptions,
    SideChannelOptions,
    WindowOptions,
)
from sfapp.recorder.rank_coordinates import Layout
from sfapp.recorder.side_channels.channels import EventSample, RecordedChannel
from sfapp.recorder.side_channels.device_waits import StagedCalls
from sfapp.recorder.signal_errors import interrupted_afterwards
from sfapp.recorder.termination import SIGTERM_WATCH
from sfapp.recorder.timing.batches import Batch, Batches
from sfapp.recorder.timing.contexts import MicroStep, UncountedStage
from sfapp.recorder.timing.host_counters import StepEvidence
from sfapp.recorder.timing.phases import Phases
from sfapp.recorder.timing.timers import Clock, Stage, Step
from sfapp.recorder.transport.rank_group import GatherRank, join
from sfapp.recorder.transport.transports import TRANSPORTS, GatherMode, open_sink
from sfapp.recorder.window.window_recorder import WindowRecorder

_HURRIED_SECONDS = 2.0
"""Seconds that a process that is failing or has received SIGTERM may wait for its packets."""

_GRACE_SECONDS = 1.0
"""Seconds that closing waits beyond a gather's timeout, so that the gather can end and keep its rows."""


class Recorder:
    """Recorder of the stage durations of each training step on this rank, which writes packets.

    Examples:
        >>> with sfapp.Recorder(output="packets", run_id="train-7") as perf:
        ...     for _ in range(steps):
        ...         with perf.step():
        ...             with perf.stage("data.next_wait"):
        ...                 batch = next(batches)

    Create it on every rank, after ``init_process_group`` (it creates its own Gloo group), and close it on
    every rank. Once created, it never raises (except with ``strict``). It delays training only when it is
    closed, at most by little more than ``timeout``. Errors become faults in the packet; rows that could not
    be gathered are written as one part per rank. If torch.distributed is not initialised, every rank of a
    larger job writes parts.

    Args:
        output: folder for packets, ``<output>/<run_id>/<window>.parquet``, or ``s3://BUCKET/PREFIX``.
        job: description of the job and this rank in packets.
        windows: content of a window: its steps, stages and gradient accumulation.
        gather: transport that combines the ranks' rows: a name in ``TRANSPORTS``, whose titles describe them
            (``sfapp.recorder.transport.transports``); or the group of options.
        side_channels: measurements in addition to the stages.
        stream: send rows to an aggregator while they are recorded, instead of gathering: the address of the
            aggregator or of the node's relay, ``tcp://127.0.0.1:29766``, or ``sfapp.stream.StreamOptions``.
            If None, the address in ``SFAPP_STREAM``, if any.
        captures: limits of profiler captures (docs/capture.md); None or ``SFAPP_CAPTURES=off`` refuse them.
        storage_options: options of the bucket by name (docs/fleet.md). clock: monotonic ns; for tests.
        keywords: any field of the option groups (``sfapp.recorder.options``), such as ``run_id`` or
            ``window_steps``; it takes precedence over the group's.

    Attributes:
        step: called without arguments: the context of one optimizer step. A step whose body raises keeps its
            number but is not recorded.
        stage: called with a name: the context of one stage of the current step. The times of repeated entries
            are added. Stages do not nest: an inner one is a fault, and its time counts for the outer one.

    Raises:
        RecorderError: the arguments are invalid.
    """

    # Callables made per recorder, not methods: compiled, they have no Python frame (``find_stage``).
    step: Callable[[], Step]
    stage: Callable[[str], Stage | UncountedStage]

    def __init__(
        self,
        output: str | Path,
        *,
        job: JobOptions | None = None,
        windows: WindowOptions | None = None,
        gather: GatherMode | GatherOptions = "gloo",
        side_channels: SideChannelOptions | None = None,
        stream: Any = None,
        storage_options: Mapping[str, object] | None = None,
        captures: CaptureLimits | None = DEFAULT_LIMITS,
        clock: Clock = time.perf_counter_ns,
        **keywords: Unpack[RecorderKeywords],
    ) -> None:
        options = RecorderOptions.of(job, windows, gather, side_channels, keywords)
        self._output = open_output(output, storage_options, "recorder", options.gather.spool_bytes)
        identity, job_info = describe_job(self._output.folder, options)
        if not isinstance(clock(), int):
            raise RecorderError("the clock must count whole nanoseconds")
        stages, accumulation = options.windows.recorded_stages, options.windows.accumulation or Accumulation()
        schema = WindowSchema.of(stages, accumulation, identity.role, identity.coordinates)
        self._process = os.getpid()
        self._timeout = options.gather.timeout
        self._transport = TRANSPORTS[options.gather.gather]
        self._windows = WindowRecorder(clock, options.windows, options.side_channels)
        self._state = self._windows.state
        self._channels = self._windows.channels
        job_info.extra["no_events"] = self._channels.no_events
        if self._channels.evidence is not None:
            job_info.extra[EVIDENCE_KEY] = self._channels.evidence.summary
        self._step = self._state.new_step()
        self.step = itertools.repeat(self._step).__next__
        self.stage = self._state.find_stage
        window = self._output.following_window(job_info.run_id, identity.rank)
        start = window, options.windows.first_step
        rank, window, step = join(job_info, identity, self._transport, self._timeout, *start)
        self._sink = open_sink(stream, options.gather.max_pending, self._output)
        self._windows.start(schema, self._sink, rank, window, step, captures)
        self._has_ended = False
        self._stopping = threading.Lock()
        atexit.register(self._at_exit)
        SIGTERM_WATCH.add(self._on_sigterm, self._sink.failures)

    # ---- the training loop ----------------------------------------------------------------------

    def micro_step(self, index: int, sync: bool | None = None) -> MicroStep:
        """Return the context of one gradient-accumulation micro-step, counted from 0.

        In an undeclared micro-step, stages are unknown and their time stays in the residual.

        Args:
            sync: whether its backward exchanges gradients (False under ``no_sync``). If given for all
                micro-steps, the pattern is recorded, and a change of it closes the window.
        """
        return self._windows.micro_step(index, sync)

    def batches(self, loader: Iterable[Batch]) -> Batches[Batch]:
        """Return a loader whose waits count as the data stage of the step that uses the batch.

        The batch may be fetched before the step, within it, or by a prefetcher one step ahead. If its step
        cannot be known (a thread fetches it, or steps are skipped), the window has the fault
        ``prefetch_unaligned``.
        """
        windows = self._windows
        with suppress(Exception):  # fail-open: the loader may be anything
            workers = getattr(loader, WORKERS_KEY, 0)
            if isinstance(workers, int):  # Every so many batches come from the same worker.
                windows.rank.job.extra[WORKERS_KEY] = workers
        return Batches(loader, self._state, lambda: windows.schema.accumulation.factor, windows.data_stage)

    def phases(self) -> Phases:
        """Return steps and stages as calls instead of contexts, for loops that only offer hooks."""
        return Phases(self._state, self._step, self.stage, self.micro_step)

    def add_step(
        self,
        wall_ns: int,
        micro_steps: Sequence[Mapping[str, int]],
        syncs: Sequence[bool] = (),
        faults: Mapping[str, str] | None = None,
        waits: Sequence[Mapping[str, int]] = (),
        device_calls: StagedCalls | None = None,
        evidence: StepEvidence | None = None,
    ) -> None:
        """Record a whole step that was timed elsewhere, instead of with ``step()`` and ``stage()``.

        Args:
            micro_steps: per micro-step the ns of its stages by name; the rest of ``wall_ns`` is the residual.
            syncs: per micro-step whether gradients were exchanged, if known for all. faults: detail by code.
            waits: per micro-step the ns by stage in which this rank was blocked in group communication.
            device_calls: its calls on the device if it is ``next_step`` and was sampled.
            evidence: host evidence of the step; if None, only the thread's counters are read now.
        """
        self._windows.add_step(wall_ns, micro_steps, syncs, faults or {}, waits, device_calls, evidence)

    def follow_places(self, places: PlaceSource) -> None:
        """Report where the training thread is from this source, for steps that are added with ``add_step``.

        A streamed job reports it every second, to name a rank that holds a job still (docs/hangs.md).
        """
        self._windows.self_check.expect_no_step()
        self._sink.follow(places)

    def declare(self, *, wrapper: Wrapper | None = None, layout: Layout | None = None) -> None:
        """Declare what becomes known only after the recorder was created.

        Args:
            wrapper: the model's wrapper. It applies to windows that are not closed yet.
            layout: this rank's place in the parallel layout, as in ``JobOptions``. Declare it between steps
                and on every rank; a change closes the window.

        An invalid value is refused with the fault ``reconfigure_refused``, and recording continues.
        """
        self._windows.declare(wrapper, layout)

    # ---- side channels --------------------------------------------------------------------------

    def side_channel(self, name: str) -> RecordedChannel | UncountedStage:
        """Return the context of a measurement that may lie within a stage or span several.

        Its time over a step is recorded in ms as ``side.<name>``. It is never part of the accounting.
        """
        return self._channels.channel(name)

    def cuda_event_sample(self, name: str = FORWARD_EVENT) -> EventSample | UncountedStage:
        """Return the context of a region of the stream, timed in ms in ``event_fraction`` of the steps.

        Nothing waits for the device. Without a CUDA device the channel exists, without values.
        """
        return self._channels.event(name, self._state.number)

    def observe(self, name: str, value: float) -> None:
        """Record a value of the current step as ``side.<name>``, such as a loss; the last value counts."""
        self._channels.observe(name, value)

    def watch_memory(self, model: Any = None) -> None:
        """Record memory at the end of each step from now on, as side channels ``memory.*`` in bytes.

        It is allocated and peak memory of this rank's CUDA device (in one step of 8), else of the process.

        Args:
            model: the model, already sharded if it will be: adds the bytes of its parameters on this rank and
                in total, from one pass over them now.

        Raises:
            RecorderError: the model is no module.
        """
        self._channels.watch_memory(model)

    def watch_waits(self, model: Any = None) -> None:
        """Measure from now on how long this rank waits for others within each stage, as ``wait.<stage>``.

        A rank that is slow where ranks wait for each other can then be named (docs/accounting.md, section
        15). Call it on every rank and on the training thread, once the model is wrapped. Calls of
        torch.distributed are then timed (cost: docs/evidence/overhead.md). Over NCCL, waits on the device
        are sampled in ``event_fraction`` of the steps, as ``device_wait.<stage>_ms``.

        Args:
            model: the model as it is trained. DistributedDataParallel waits inside C++: there, waiting in
                backward is what follows the last gradient.
        """
        self._channels.watch_waits(model)

    def time_layers(self, model: Any) -> None:
        """Record host time of each layer's forward and backward pass from now on.

        The side channels are ``layer.<name>.forward_ms`` and ``.backward_ms``. It costs a few µs per layer;
        at most 12 layers are possible.

        Raises:
            RecorderError: the model is sharded (FSDP) or compiled, or has too many layers or none.
        """
        self._channels.time_layers(model)

    # ---- windows --------------------------------------------------------------------------------

    def reconfigure(
        self,
        *,
        stages: Sequence[str] | None = None,
        accumulation: Accumulation | None = None,
        role: str | None = None,
    ) -> None:
        """Change what is recorded, between steps and on every rank; a change closes the window.

        An invalid change is refused with the fault ``reconfigure_refused``, and recording continues.
        """
        self._windows.reconfigure(stages, accumulation, role)

    def rejoin(self, identity: RankIdentity | None = None) -> None:
        """Close the window and join the present ranks of torch.distributed, after the world has changed.

        Call it on every rank of the new world, between steps; a new process creates its recorder then. All
        continue with the highest window and step of any of them. Declare the new parallel layout.
        """
        role = self._windows.schema.role

        def join_again(rank: GatherRank, window: int, step: int) -> tuple[GatherRank, int, int]:
            new = identity or replace(identity_after_change(rank.identity), role=role)
            new = replace(new, attributes=new.attributes or rank.identity.attributes)
            return join(rank.job, new, self._transport, self._timeout, window, step)

        self._windows.rejoin(join_again)

    def flush(self) -> None:
        """Close the current window now, on every rank."""
        self._windows.close_window("flush")

    def close(self) -> None:
        """Close the last window, write what waits, and stop; on every rank. Later calls do nothing."""
        self._end(self._timeout + _GRACE_SECONDS)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_failing = kind is not None and not issubclass(kind, SystemExit)
        self._end(_HURRIED_SECONDS if is_failing else self._timeout + _GRACE_SECONDS)

    @property
    def stages(self) -> tuple[str, ...]:
        """The ordered explicit stages, the time between steps included, without the residual."""
        return self._windows.schema.broad

    @property
    def accumulation(self) -> Accumulation:
        """Gradient accumulation as it is currently recorded."""
        return self._windows.schema.accumulation

    @property
    def coordinates(self) -> Mapping[str, int]:
        """This rank's place in the parallel layout as it is currently recorded, by dimension."""
        return self._windows.schema.coordinates

    @property
    def next_step(self) -> int:
        """Number of the current step; between steps, of the next one."""
        return self._state.number

    @property
    def written(self) -> tuple[Path, ...]:
        """The newest packets that this rank has written, at most 256."""
        return tuple(self._sink.written)

    @property
    def pending(self) -> int:
        """Number of closed windows that are not on disk yet, including those that wait to be gathered."""
        return self._sink.pending

    @property
    def failures(self) -> tuple[str, ...]:
        """The newest failures, at most 256, for a log; they were not raised."""
        return tuple(self._sink.failures)

    # ---- the end --------------------------------------------------------------------------------

    def _end(self, seconds: float) -> None:
        if self._has_ended or self._process != os.getpid():  # A forked child has neither a thread nor rows.
            return
        deadline = time.monotonic() + seconds

        def rest() -> float:
            return max(_GRACE_SECONDS, deadline - time.monotonic())

        with ExitStack() as end, interrupted_afterwards():
            self._has_ended = True
            atexit.unregister(self._at_exit)
            # In reverse: Ctrl-C in one skips none of the others, and at the beginning of ``close`` no rows.
            end.callback(SIGTERM_WATCH.remove, self._on_sigterm)  # Last: SIGTERM may come while this waits.
            end.callback(lambda: self._output.close(rest()))
            end.push(lambda kind, *_: self._save_if(kind is not None, rest()))
            end.callback(lambda: self._sink.close(rest()))
            end.callback(self._windows.captures.close, seconds)  # Captures may be delivered through the sink.
            self._stop_recording()
            self._channels.close()
            self._windows.captures.stop("the recorder was closed")

    def _save_if(self, interrupted: bool, seconds: float) -> None:
        if interrupted:
            self._sink.save_parts("the recorder was interrupted", seconds)

    def _stop_recording(self) -> None:
        with self._stopping:  # The training thread and the one that handles SIGTERM may both arrive here.
            self._windows.stop()

    def _at_exit(self) -> None:
        is_failing = getattr(sys, "last_value", None) is not None  # An uncaught error ends the process.
        self._end(_HURRIED_SECONDS if is_failing else self._timeout + _GRACE_SECONDS)

    def _on_sigterm(self) -> None:
        """Save this rank's rows, on the thread that handles SIGTERM, while training may still run."""
        self._stop_recording()
        self._windows.captures.leave()
        self._sink.save_parts("the process received SIGTERM", _HURRIED_SECONDS)
        self._output.close(_HURRIED_SECONDS)
