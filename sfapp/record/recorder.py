"""The recorder's face to a training loop: ``step()`` and ``stage()``.

The hot path is two clock reads and an addition a stage, and one row copied a step. Contexts are made once and
reused; nothing is allocated, locked, synchronised or sent on the training thread.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

import sfapp
from sfapp.errors import RecorderError
from sfapp.model.manifest import Accumulation, ClosedBy, Parallelism, Prefetch, RecorderInfo, Wrapper
from sfapp.model.stages import (
    BACKWARD,
    DATA,
    DEFAULT_STAGES,
    FORWARD,
    MAX_NAME_LENGTH,
    RESIDUAL,
    expand_stages,
)
from sfapp.model.window import RankIdentity
from sfapp.record.buffers import Schema, WindowBuffer
from sfapp.record.gather import TelemetryGroup
from sfapp.record.identity import identity_from_environment, world_size_from_environment
from sfapp.record.writer import NOT_DISTRIBUTED, Job, Writer

MICRO_STAGES = (DATA, FORWARD, BACKWARD)
"""The stages that gradient accumulation repeats."""

_Error = type[BaseException] | None


class _Stage:
    """One reusable stage context. Entering it inside another stage records a fault, not time."""

    __slots__ = ("_begin", "_index", "_recorder")

    def __init__(self, recorder: Recorder, index: int) -> None:
        self._recorder = recorder
        self._index = index
        self._begin = 0

    def __enter__(self) -> None:
        recorder = self._recorder
        if recorder._open_stage is not None or not recorder._in_step:
            recorder._fault("nested_stages" if recorder._in_step else "stage_outside_step")
            return
        recorder._open_stage = self
        self._begin = recorder._clock()

    def __exit__(self, kind: _Error, value: BaseException | None, trace: TracebackType | None) -> None:
        recorder = self._recorder
        if recorder._open_stage is not self:
            return
        recorder._open_stage = None
        spent = recorder._clock() - self._begin
        if spent < 0:
            recorder._fault("nonmonotonic_clock")
            return
        recorder._spent[self._index] += spent


class _Unknown:
    """A stage that the schema does not have: its time stays in the residual, and a fault says so."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder._fault("unknown_stage")

    def __exit__(self, kind: _Error, value: BaseException | None, trace: TracebackType | None) -> None:
        return


class _Step:
    """The reusable step context."""

    __slots__ = ("_begin", "_recorder")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._begin = 0

    def __enter__(self) -> None:
        recorder = self._recorder
        recorder._in_step = True
        recorder._open_stage = None
        recorder._spent[:] = recorder._zeros
        self._begin = recorder._clock()

    def __exit__(self, kind: _Error, value: BaseException | None, trace: TracebackType | None) -> None:
        recorder = self._recorder
        end = recorder._clock()
        recorder._in_step = False
        if kind is None:
            recorder._finish_step(end - self._begin, end)
        recorder._step_number += 1


class _MicroStep:
    """The reusable context of one gradient-accumulation micro-step."""

    __slots__ = ("_index", "_recorder")

    def __init__(self, recorder: Recorder, index: int) -> None:
        self._recorder = recorder
        self._index = index

    def __enter__(self) -> None:
        self._recorder._micro = self._index

    def __exit__(self, kind: _Error, value: BaseException | None, trace: TracebackType | None) -> None:
        self._recorder._micro = 0


class Recorder:
    """Records how long each stage of each training step took on this rank, and leaves packets.

    >>> perf = sfapp.Recorder("packets", run_id="train-7")
    >>> with perf.step():
    ...     with perf.stage("data.next_wait"):
    ...         batch = next(batches)

    Make it on every rank, after ``init_process_group`` (it makes a Gloo group of its own), and close it on
    every rank. Nothing it does later raises, blocks or delays training: what goes wrong is a fault in the
    packet, and rows that could not be gathered are left as one part a rank.

    Args:
        root: folder for packets, ``<root>/<run_id>/<window>.parquet``.
        run_id: the run's name.
        window_steps: steps a window.
        stages: ordered explicit stages; the residual ``step.other_cpu_wall`` is added at the end.
        accumulation: gradient accumulation; where ``ordered`` and the factor above 1, data, forward and
            backward are kept apart per micro-step (``with perf.micro_step(k):``).
        identity: this rank's place; from torchrun's environment where None.
        role: diagnosis role of this rank (``dp``, ``pp0``, ``expert3``).
        wrapper, parallelism, prefetch, model_fit: declared in the packet (packet.md).
        first_step: number of the first step.
        gather_timeout: seconds a rank waits for the others at a window's end, off the training thread.
        max_pending: closed windows that may wait for the writer before one is dropped.
        clock: monotonic ns; for tests.

    Raises:
        RecorderError: the arguments cannot work.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        run_id: str,
        window_steps: int = 100,
        stages: Sequence[str] = DEFAULT_STAGES[:-1],
        accumulation: Accumulation | None = None,
        identity: RankIdentity | None = None,
        role: str | None = None,
        wrapper: Wrapper = "other",
        parallelism: Parallelism | None = None,
        prefetch: Prefetch = "unknown",
        model_fit: bool = False,
        first_step: int = 0,
        gather_timeout: float = 30.0,
        max_pending: int = 4,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        if window_steps < 1 or max_pending < 1 or gather_timeout <= 0:
            raise RecorderError("window_steps, max_pending and gather_timeout must be positive")
        if not run_id or len(run_id) > MAX_NAME_LENGTH:
            raise RecorderError(f"run_id must have 1 to {MAX_NAME_LENGTH} characters")
        self._clock = clock
        self._window_steps = window_steps
        self._step_number = first_step
        self._window_number = 0
        self._gather_timeout = gather_timeout
        self._max_pending = max_pending
        self._in_step = False
        self._closed = False
        self._dropped = False
        self._open_stage: _Stage | None = None
        self._micro = 0
        self._step = _Step(self)
        self._unknown = _Unknown(self)
        identity = identity or identity_from_environment(role)
        self._broad_stages = tuple(stages)
        schema = _schema(self._broad_stages, accumulation or Accumulation(), identity.role)
        self._use(schema)
        self._span_ns = self._calibrate()
        self._buffer = WindowBuffer.empty(schema, 0, window_steps)
        group, why_alone = _make_group(identity, gather_timeout)
        job = Job(
            root=Path(root),
            run_id=run_id,
            identity=identity,
            world_size=group.world_size if group else world_size_from_environment(),
            wrapper=wrapper,
            parallelism=parallelism or Parallelism(),
            prefetch=prefetch,
            model_fit=model_fit,
            recorder=_recorder_info(group, identity),
        )
        self._writer = Writer(job, group, max_pending, why_alone)
        atexit.register(self.close)

    # ---- the training loop ----------------------------------------------------------------------

    def step(self) -> _Step:
        """Context of one optimizer step. A step whose body raises is not recorded."""
        return self._step

    def stage(self, name: str) -> _Stage | _Unknown:
        """Context of one stage of the current step. Entered twice, its time adds up."""
        return self._spans[self._micro].get(name, self._unknown)

    def micro_step(self, index: int) -> _MicroStep:
        """Context of one gradient-accumulation micro-step, counted from 0."""
        return self._micro_steps[index if 0 <= index < len(self._micro_steps) else 0]

    # ---- windows --------------------------------------------------------------------------------

    def reconfigure(
        self,
        *,
        stages: Sequence[str] | None = None,
        accumulation: Accumulation | None = None,
    ) -> None:
        """Change the stages or the accumulation between steps, on every rank alike: closes the window."""
        old = self._buffer.schema
        self._broad_stages = tuple(stages) if stages is not None else self._broad_stages
        schema = _schema(self._broad_stages, accumulation or old.accumulation, old.role)
        if schema == old:
            return
        self._close_window("schema_change" if stages is not None else "accumulation_change", schema)

    def flush(self) -> None:
        """Close the current window now, on every rank alike."""
        self._close_window("flush", self._buffer.schema)

    def close(self) -> None:
        """Close the last window, write what waits and stop. On every rank; again is no harm."""
        if self._closed:
            return
        self._close_window("shutdown", self._buffer.schema)
        self._closed = True
        atexit.unregister(self.close)
        # What waits may time out once in its gather; after that the ranks write alone, without waiting.
        self._writer.close(timeout=2 * self._gather_timeout + 10)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: _Error, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def written(self) -> tuple[Path, ...]:
        """Packets this rank has written so far."""
        return tuple(self._writer.written)

    @property
    def failures(self) -> tuple[str, ...]:
        """What went wrong so far, for a log; training was never told."""
        return tuple(self._writer.failures)

    # ---- inside ---------------------------------------------------------------------------------

    def _use(self, schema: Schema) -> None:
        """Make the contexts of a schema."""
        explicit = schema.stages[:-1]
        index = {stage: place for place, stage in enumerate(explicit)}
        micro_steps = schema.accumulation.factor if schema.accumulation.ordered else 1
        self._spans = [
            {
                name: _Stage(self, index[name] if name in index else index[f"{name}[{micro}]"])
                for name in self._broad_stages
            }
            for micro in range(micro_steps)
        ]
        self._micro_steps = [_MicroStep(self, micro) for micro in range(micro_steps)]
        self._micro = 0
        self._zeros = [0] * len(explicit)
        self._spent = [0] * len(explicit)

    def _fault(self, name: str) -> None:
        self._buffer.faults.setdefault(name)

    def _finish_step(self, wall_ns: int, end: int) -> None:
        if self._closed:
            return
        if wall_ns < 0:
            self._fault("nonmonotonic_clock")
            wall_ns = 0
        buffer = self._buffer
        buffer.append(self._step_number, wall_ns, self._spent)
        buffer.record_ns += self._clock() - end + self._span_ns * len(self._spent)
        if buffer.is_full:
            self._close_window("full", buffer.schema)

    def _close_window(self, closed_by: ClosedBy, schema: Schema) -> None:
        """Hand the buffer over and open the next; waits only at shutdown, when training is over."""
        if self._closed:
            return
        buffer = self._buffer
        buffer.closed_by = closed_by
        buffer.ended_at = datetime.now(UTC)
        # At shutdown an empty window is still announced: the other ranks may have one that is not.
        if buffer.filled or closed_by == "shutdown":
            wait = self._gather_timeout if closed_by == "shutdown" else 0.0
            if not self._writer.submit(buffer, wait):
                self._dropped = True
            self._window_number += 1
        if schema != buffer.schema:
            self._use(schema)
        self._buffer = WindowBuffer.empty(schema, self._window_number, self._window_steps)
        if self._dropped:
            self._dropped = False
            self._fault("dropped_steps")

    def _calibrate(self, rounds: int = 200) -> int:
        """What one stage context costs here, ns: the part of the overhead that no clock sees."""
        self._buffer = WindowBuffer.empty(_schema(("x",), Accumulation(), None), 0, 1)
        self._in_step = True
        span = next(iter(self._spans[0].values()), self._unknown)
        clock = time.perf_counter_ns
        real, self._clock = self._clock, clock
        begin = clock()
        for _ in range(rounds):
            with span:
                pass
        cost = (clock() - begin) // rounds
        self._clock = real
        self._in_step = False
        self._spent[:] = self._zeros
        return cost


def _schema(stages: tuple[str, ...], accumulation: Accumulation, role: str | None) -> Schema:
    if not stages or len(set(stages)) != len(stages) or RESIDUAL in stages:
        raise RecorderError(f"stages must be different names without {RESIDUAL!r}, which is added: {stages}")
    if any(not name or len(name) > MAX_NAME_LENGTH for name in stages):
        raise RecorderError(f"stage names must have 1 to {MAX_NAME_LENGTH} characters")
    if accumulation.factor < 1:
        raise RecorderError(f"the accumulation factor must be at least 1, not {accumulation.factor}")
    if accumulation.ordered and accumulation.factor > 1:
        repeated = [stage for stage in stages if stage in MICRO_STAGES]
        stages = expand_stages(stages, repeated, accumulation.factor)
    return Schema((*stages, RESIDUAL), accumulation, role)


def _make_group(identity: RankIdentity, timeout: float) -> tuple[TelemetryGroup | None, str | None]:
    """The telemetry group, or why this rank records alone."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None, NOT_DISTRIBUTED
    if dist.get_world_size() == 1:
        return None, None
    try:
        return TelemetryGroup(identity, timedelta(seconds=timeout)), None
    except Exception as error:  # fail-open: record parts rather than fail the job
        return None, f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def _recorder_info(group: TelemetryGroup | None, identity: RankIdentity) -> RecorderInfo:
    import torch

    return RecorderInfo(
        version=sfapp.__version__,
        torch=str(torch.__version__),
        backend=group.training_backend if group else "none",
        host=identity.hostname,
    )
