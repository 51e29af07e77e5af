"""Fill windows with the steps that the timers report, and hand them to the sink when they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

from sfapp.errors import RecorderError, describe_error
from sfapp.model.capture import PROFILED, CaptureLimits
from sfapp.model.manifest import Accumulation, ClosedBy, Wrapper
from sfapp.model.reasons import reason_sentence
from sfapp.model.stages import BETWEEN, stage_category, with_between
from sfapp.packets.declared import check_declared
from sfapp.packets.sink import PacketSink
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.recorder.capture.rank_captures import Position, RankCaptures
from sfapp.recorder.options import SideChannelOptions, WindowOptions
from sfapp.recorder.rank_coordinates import Layout, coordinates_of
from sfapp.recorder.self_check import SelfCheck
from sfapp.recorder.side_channels.device_waits import StagedCalls
from sfapp.recorder.side_channels.recorded_channels import RecordedChannels
from sfapp.recorder.signal_errors import interrupted_afterwards, is_of_a_signal_handler
from sfapp.recorder.termination import SIGTERM_WATCH
from sfapp.recorder.timing.contexts import MicroStep
from sfapp.recorder.timing.host_counters import StepEvidence, add_evidence, host_row, set_host_row
from sfapp.recorder.timing.timer_backend import measure_costs, new_state
from sfapp.recorder.timing.timers import Clock
from sfapp.recorder.training_place import place_of
from sfapp.recorder.transport.gather_errors import warn
from sfapp.recorder.transport.gather_sink import GatherSink
from sfapp.recorder.transport.rank_group import GatherRank

_MAX_WARNING = 300

Rejoin = Callable[[GatherRank, int, int], tuple[GatherRank, int, int]]
"""Function that joins a changed world: from this rank, its next window and step to those of all ranks."""


class WindowRecorder:
    """The current window of a rank, and the timers that fill it.

    Windows end at step numbers, not at row counts, so that they close together with the other ranks' even if
    a rank skips a step. Everything here fails open: recording may end, training continues.

    Attributes:
        state: the timers' state.
        schema: the current schema.
        rank: this rank, for the sink. channels: the side channels.
        data_stage: the stage to which waits for batches are charged.
        captures: profiler captures on this rank; set by ``start``.
        self_check: warns if nothing is measured; set by ``start``.
    """

    captures: RankCaptures
    self_check: SelfCheck

    def __init__(self, clock: Clock, windows: WindowOptions, side: SideChannelOptions) -> None:
        self.state = new_state(clock, self._finish_step, self._follow_steps, self.note, windows.strict)
        self.channels = RecordedChannels(self.state, side)
        self.is_recording = False
        self._window_steps = windows.window_steps
        self._has_between = windows.between
        self._warned_of = {PROFILED}  # The user requested it, so there is no warning.
        self._bare_step_ns, self._stage_ns = measure_costs()

    def start(
        self,
        schema: WindowSchema,
        sink: PacketSink,
        rank: GatherRank,
        window: int,
        step: int,
        captures: CaptureLimits | None,
    ) -> None:
        """Open the first window and accept captures.

        Args:
            window, step: number of the first window and of the first step.
            captures: limits of captures; None to accept none.
        """
        self.rank = rank
        self._sink = sink
        self._window_number = window
        self._use(schema)
        self._open_window(schema, step)
        sink.follow(lambda: place_of(self.state) if self.is_recording else None)
        self.self_check = SelfCheck(self.state, lambda: self.rank, isinstance(sink, GatherSink))
        self.captures = RankCaptures(
            self.state,
            sink.mailbox,
            self._position,
            self._mark_profiled,
            captures,
            sink.failures,
            self.self_check.look,
        )
        self.is_recording = True

    def note(self, code: str, detail: str) -> None:
        """Record a telemetry fault, and log the first of its kind as a warning.

        Most faults are mistakes in the instrumented loop, whose author reads the log long before a packet.
        """
        self._buffer.note(code, detail)
        if code not in self._warned_of:
            self._warned_of.add(code)
            meaning = reason_sentence(code).rstrip(".")
            seen = f"{code}: {detail}"[:_MAX_WARNING] if detail else code
            warn(f"{meaning} ({seen}; training continues, and packets list the fault)")

    def micro_step(self, index: int, sync: bool | None) -> MicroStep:
        """Return the context of a micro-step; arguments are those of ``Recorder.micro_step``."""
        try:
            micro = self._micro_steps[max(-1, min(index, len(self._micro_steps) - 1))]
        except Exception:  # fail-open: not a whole number
            micro = self._micro_steps[-1]  # Used for any other index.
        micro.declare(sync)
        return micro

    def add_step(
        self,
        wall_ns: int,
        micro_steps: Sequence[Mapping[str, int]],
        syncs: Sequence[bool],
        faults: Mapping[str, str],
        waits: Sequence[Mapping[str, int]] = (),
        device_calls: StagedCalls | None = None,
        evidence: StepEvidence | None = None,
    ) -> None:
        """Record a step that was timed elsewhere; arguments are those of ``Recorder.add_step``."""
        if not self.is_recording:
            return
        end = self.state.clock()
        try:
            for code, detail in faults.items():
                self.note(code, detail)
            self._fill_row(micro_steps, syncs, waits)
            if device_calls is not None:
                self._add_device_calls(device_calls)
            add_evidence(self.state, evidence, self.schema.column_of, end)
            begin = end - wall_ns
        except RecorderError:  # The recorder is strict.
            raise
        except Exception as error:  # fail-open: the arguments may be anything
            self._give_up(error)
            return
        self._finish_step(begin, end, True)
        self.state.ended = end
        self._follow_steps()

    def _fill_row(
        self,
        micro_steps: Sequence[Mapping[str, int]],
        syncs: Sequence[bool],
        waits: Sequence[Mapping[str, int]],
    ) -> None:
        """Enter stages and waits of a step that was timed elsewhere."""
        state = self.state
        state.reset()
        state.syncs.extend(syncs)
        spent = state.spent()
        for stages, column_of in zip_longest(micro_steps, self.schema.column_of[: len(micro_steps)]):
            columns = column_of or self.schema.column_of[-1]
            for name, stage_ns in stages.items():
                if name in columns:
                    spent[columns[name]] += stage_ns
                else:
                    state.find_stage(name)  # An unknown stage; the look-up records the fault.
        for stages, column_of in zip(waits, self.schema.column_of, strict=False):
            for name, blocked in stages.items():
                if name in column_of:
                    self.channels.add_wait(column_of[name], blocked)
        state.set_spent(spent)

    def _add_device_calls(self, calls: StagedCalls) -> None:
        columns = self.schema.column_of
        column_of = [
            None if place is None else columns[min(place[0], len(columns) - 1)].get(place[1])
            for place in calls.stages
        ]
        self.channels.add_device_calls(calls.step, column_of)
        self.rank.job.extra["event_fraction"] = calls.step.sampler.fraction

    def reconfigure(
        self,
        stages: Sequence[str] | None = None,
        accumulation: Accumulation | None = None,
        role: str | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Change what is recorded, between steps; a change closes the window."""
        old = self.schema
        try:
            if self.state.in_step:
                raise RecorderError("inside a step")
            broad = with_between(stages or old.broad, self._has_between)
            place = old.coordinates if layout is None else coordinates_of(layout)
            schema = WindowSchema.of(broad, accumulation or old.accumulation, role or old.role, place)
        except Exception as refusal:  # fail-open: the arguments may be anything
            self.note("reconfigure_refused", str(refusal))
            return
        if schema.broad != old.broad:
            self.close_window("schema_change", schema)
        elif schema.accumulation != old.accumulation:
            self.close_window("accumulation_change", schema)
        elif (schema.role, schema.coordinates) != (old.role, old.coordinates):
            self.close_window("role_change", schema)

    def declare(self, wrapper: Wrapper | None, layout: Layout | None) -> None:
        """Change what is declared; arguments are those of ``Recorder.declare``."""
        if wrapper is not None:
            try:
                check_declared("wrapper", wrapper, Wrapper)
                self.rank.job = replace(self.rank.job, wrapper=wrapper)
            except RecorderError as refusal:
                self.note("reconfigure_refused", str(refusal))
        if layout is not None:
            self.reconfigure(layout=layout)

    def rejoin(self, rejoin: Rejoin) -> None:
        """Close the window, and continue in the new world with its ranks' next window and step."""
        if not self.is_recording:
            return
        if self.rank.group is not None:  # The ranks for which it waits may no longer exist.
            self.rank.group.give_up("the world changed before the other ranks responded")
        self.close_window("world_change", replace(self.schema, coordinates={}))
        self.rank, window, step = rejoin(self.rank, self._window_number, self.state.number)
        self._window_number = self._buffer.number = window
        self._sink.begin_window(self.rank, self._buffer)
        self._continue_from(step)

    def close_window(self, closed_by: ClosedBy, schema: WindowSchema | None = None) -> None:
        """Submit the window and open the next one, without waiting.

        Args:
            schema: schema of the next window; unchanged if None.
        """
        if not self.is_recording:
            return
        begin = self.state.clock()
        try:
            with interrupted_afterwards():
                is_kept = self._hand_over(closed_by)
                # If this window was empty and not submitted, its faults belong to the next one.
                faults = {} if self._window_number > self._buffer.number else self._buffer.faults
                self._open_window(schema or self.schema, self.state.number)
                self._buffer.faults.update(faults)
                if not is_kept:
                    self.note("dropped_steps", "")
                self._buffer.record_ns += self.state.clock() - begin
        except Exception as error:
            self._give_up(error)

    def stop(self) -> None:
        """Submit the last window; nothing is recorded afterwards."""
        if not self.is_recording:
            return
        self.is_recording = False
        self.state.report_due = 0
        try:
            self._hand_over("shutdown")
        except Exception as error:
            self._give_up(error)

    # ---- callbacks of the timers ----------------------------------------------------------------

    def _finish_step(self, begin: int, end: int, completed: bool) -> None:
        """Record a step with additional data, or drop an incomplete one."""
        state = self.state
        if not self.is_recording:
            state.clear_row()
            return
        try:
            if state.syncs:
                self._follow_syncs(state.syncs)
            if completed:
                self.channels.finish_step(state.number)
                if end < begin:
                    self.note("nonmonotonic_clock", "step")
                    begin = end
                state.add_row(end - begin)
                self._buffer.record_ns += state.clock() - end
            else:
                self.channels.drop_step()
                state.clear_row()
            state.number += 1
        except Exception as error:
            self._give_up(error)

    def _follow_steps(self) -> None:
        """Perform the work that is due between two steps."""
        state = self.state
        if not self.is_recording:
            return
        if state.number >= state.capture_due:
            self.captures.pass_step(state.number - 1, self._buffer.number)
        if state.number >= self._window_end:
            self.close_window("full")
        elif state.number >= state.due:
            try:
                with interrupted_afterwards():
                    self._plan_next()
            except Exception as error:
                self._give_up(error)

    def _plan_next(self) -> None:
        """Set when ``_follow_steps`` is called next: after the window's first step, at whose time the window
        began, and when a page is full."""
        state, buffer = self.state, self._buffer
        SIGTERM_WATCH.take_pipe_back()
        if not buffer.filled and not buffer.sync():
            state.due = state.number + 1
        else:
            state.due = min(self._window_end, state.number + (buffer.room or buffer.next_page()))

    def _follow_syncs(self, syncs: Sequence[bool]) -> None:
        """Close the window before a step with another pattern of gradient exchanges than declared."""
        old = self.schema.accumulation
        if len(syncs) != old.factor:
            self.note("accumulation_mixed", f"{len(syncs)} micro-steps, not {old.factor}")
            return
        is_last_only = old.factor > 1 and syncs[-1] and not any(syncs[:-1])
        sync = "last" if is_last_only else "every" if all(syncs) else "mixed"
        if sync != old.sync:
            spent, host = self.state.spent(), host_row(self.state)
            self.state.clear_row()
            changed = replace(self.schema, accumulation=replace(old, sync=sync))
            self.close_window("accumulation_change", changed)
            self.state.set_spent(spent)  # This step's stages, whose columns do not change.
            set_host_row(self.state, *host)

    # ---- windows --------------------------------------------------------------------------------

    def _use(self, schema: WindowSchema) -> None:
        """Create the contexts of a schema."""
        self.schema = schema
        timed = [name for name in schema.broad if name != BETWEEN]  # The others have a context.
        column_of = [{name: columns[name] for name in timed} for columns in schema.column_of]
        between = schema.column_of[0].get(BETWEEN)
        self.state.use(column_of, len(schema.stages) - 1, between)
        self.channels.use_other_stages()
        self._micro_steps = [MicroStep(self.state, micro) for micro in range(len(self.state.stages))]
        self._step_cost_ns = self._bare_step_ns + self._stage_ns * len(timed)
        data = [name for name in timed if stage_category(name) == "data"]
        self.data_stage = data[0] if data else timed[0]
        self.state.held_column = schema.column_of[0][self.data_stage] if data else None

    def _open_window(self, schema: WindowSchema, step: int) -> None:
        """Open a window that begins with this step."""
        if schema is not self.schema:
            self._use(schema)
        self._buffer = WindowBuffer.empty(schema, self._window_number, self._window_steps)
        self._buffer.step_cost_ns = self._step_cost_ns
        self.channels.begin_window(self._buffer)
        self._sink.begin_window(self.rank, self._buffer)
        self._continue_from(step)

    def _continue_from(self, step: int) -> None:
        """Let the window that has just been opened begin with this step."""
        self.state.number = self._window_begin = step
        self._window_end = step + self._window_steps
        self.state.due = step + 1

    def _hand_over(self, closed_by: ClosedBy) -> bool:
        """Submit the window if it has a step; return False if its rows had to be dropped.

        At shutdown an empty window is submitted too, because other ranks may have a non-empty one.
        """
        is_last = closed_by == "shutdown"
        if self.state.number == self._window_begin and not is_last:
            return True
        self.channels.drop_events()
        self._buffer.nested_ns, self.state.nested_ns = self.state.nested_ns, 0
        self._buffer.close(closed_by)
        self.self_check.check_window(self._buffer)
        self._window_number += 1
        return self._sink.end_window(self.rank, self._buffer, is_last)

    def _give_up(self, error: Exception) -> None:
        """End recording after an unexpected error; training continues, or gets its own error."""
        self.is_recording = False
        self.state.report_due = 0
        self.captures.stop("recording stopped")
        self._sink.failures.append(f"recording stopped: {describe_error(error)}")
        if self._window_number == self._buffer.number and self._buffer.recorded:
            with suppress(Exception):  # fail-open: this may be what ended the recording
                self._hand_over("shutdown")
        if is_of_a_signal_handler(error):
            raise error

    # ---- captures -------------------------------------------------------------------------------

    def _position(self) -> Position:
        return Position(self.rank, self.state.number, self._window_end)

    def _mark_profiled(self, step: int) -> None:
        self.channels.mark(PROFILED, step)
        self.note("profiled_steps", f"step {step}")
