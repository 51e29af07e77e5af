"""All side channels of one recorder: timed regions, values, device events, memory, layers."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from sfapp.errors import RecorderError, describe_error
from sfapp.model.host_evidence import EVIDENCE_PREFIX
from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_rows import (
    CHANNEL_NAME,
    FIRST_STAGE_COLUMN,
    MAX_CHANNELS,
    STEP_COLUMN,
    Values,
    WindowBuffer,
)
from sfapp.recorder.options import SideChannelOptions
from sfapp.recorder.side_channels.channels import (
    Device,
    EventSample,
    EventSampler,
    RecordedChannel,
    cuda_device,
)
from sfapp.recorder.side_channels.device_waits import (
    DEVICE_WAIT_PREFIX,
    MAX_CALLS,
    DeviceCalls,
    DeviceWaits,
    SampledStep,
)
from sfapp.recorder.side_channels.host_evidence import VARIABLE, HostEvidence, chosen_kinds
from sfapp.recorder.side_channels.layers import LayerTimes, channels_of, layers_of
from sfapp.recorder.side_channels.memory import MemoryWatch
from sfapp.recorder.side_channels.stage_waits import StageWaits, WatchedWaits
from sfapp.recorder.timing.contexts import UNCOUNTED, UncountedStage
from sfapp.recorder.timing.timers import NEVER, StepState


class RecordedChannels:
    """The side channels of one recorder. A channel that fails affects no other.

    Attributes:
        buffer: the current window.
        no_events: why there are no device events although they were requested; empty otherwise.
        evidence: host evidence; None if none was requested.
    """

    def __init__(self, state: StepState, options: SideChannelOptions) -> None:
        self.buffer: WindowBuffer
        self.no_events = ""
        self.evidence: HostEvidence | None = None
        self._state = state
        self._fraction = event_fraction = options.event_fraction
        kinds = chosen_kinds(options.evidence, os.environ.get(VARIABLE, ""))
        if kinds:
            self.evidence = HostEvidence(state, kinds, self._store_evidence)
        self._channels: dict[str, RecordedChannel | EventSample] = {}
        self._sampler: EventSampler | None = None
        self._memory: MemoryWatch | None = None
        self._layers: LayerTimes | None = None
        self._waits: StageWaits | None = None
        self._device_calls: DeviceCalls | None = None
        self._device_waits: DeviceWaits | None = None
        self._added_calls: tuple[SampledStep | None, Sequence[int | None]] = (None, ())
        self._device: Device | None = None
        if event_fraction:
            self._device, self.no_events = cuda_device()
            self._sampler = None if self._device is None else EventSampler(event_fraction, self._device)
        self._choose_reports(0)

    def channel(self, name: str) -> RecordedChannel | UncountedStage:
        """Return the context of a side channel."""
        found = self._find(name)
        if found is None:
            if not self._may_add(name):
                return UNCOUNTED
            found = self._channels[name] = RecordedChannel(self._state, name)
        return found if isinstance(found, RecordedChannel) else UNCOUNTED

    def event(self, name: str, step: int) -> EventSample | UncountedStage:
        """Return the context of a device event channel in a step."""
        if self._sampler is None:
            if self._fraction and (self._find(name) or self._may_add(name)):
                self.buffer.channel(name)  # The empty channel shows that it was requested.
            return UNCOUNTED
        if self._sampler.error:
            self._note(name, self._sampler.error)
            return UNCOUNTED
        if not self._sampler.samples(step) or not self._state.in_step:
            return UNCOUNTED
        found = self._find(name)
        if found is None:
            if not self._may_add(name):
                return UNCOUNTED
            found = self._channels[name] = EventSample(self._sampler, name, self._place_of)
        return found if isinstance(found, EventSample) else UNCOUNTED

    def observe(self, name: str, value: float) -> None:
        """Record a value of the current step."""
        try:
            number = float(value)
        except Exception:  # fail-open: a tensor of several values raises errors of its own
            number = math.nan
        if not math.isfinite(number):
            self._note(name, "not a finite number")
        elif not self._state.in_step:
            self._note(name, "outside a step")
        elif self._find(name) or self._may_add(name):
            self._channels.setdefault(name, RecordedChannel(self._state, name))
            self._state.side[name] = number

    def watch_memory(self, model: Any) -> None:
        """Implement ``Recorder.watch_memory``."""
        watch = MemoryWatch(model)
        if not all(name in self._channels or self._may_add(name) for name in watch.names):
            watch.close()
            return
        self._reserve(watch.names)
        if self._memory is not None:
            self._memory.close()
        self._memory = watch
        self._choose_reports(self._state.number)

    def time_layers(self, model: Any) -> None:
        """Implement ``Recorder.time_layers``."""
        layers = layers_of(model)
        names = [name for layer in layers for name in channels_of(layer)]
        if not names or len(self._channels.keys() | set(names)) > MAX_CHANNELS:
            raise RecorderError(
                f"{len(layers)} layers are too many: there are channels for "
                f"{(MAX_CHANNELS - len(self._channels)) // 2}; pass a part of the model"
            )
        self._reserve(names)
        if self._layers is not None:
            self._layers.close()
        self._layers = LayerTimes(self._state, layers)

    def watch_waits(self, model: Any) -> None:
        """Implement ``Recorder.watch_waits``."""
        if self._waits is not None:
            self._waits.close()
        if self._device is not None:
            sampler = EventSampler(self._fraction, self._device, MAX_CALLS)
            self._device_calls = DeviceCalls(sampler, self._state, self._open_column)
            self._device_waits = DeviceWaits(sampler, self._device_wait_values)
        waits = WatchedWaits(self._state, model, self._may_store, self._waits_failed, self._device_calls)
        self._record_waits(waits)

    def add_wait(self, column: int, blocked: int) -> None:
        """Add a wait that was timed elsewhere, ns, to a stage column of the current step."""
        if self._waits is None:
            self._record_waits(StageWaits(self._state, self._may_store, self._waits_failed))
        assert self._waits is not None
        self._waits.add(column, blocked)

    def add_device_calls(self, step: SampledStep, column_of: Sequence[int | None]) -> None:
        """Add the calls of the current step, timed elsewhere, and the stage column of each if any."""
        if self._device_waits is None:
            self._device_waits = DeviceWaits(step.sampler, self._device_wait_values)
        self._added_calls = step, column_of

    def begin_window(self, buffer: WindowBuffer) -> None:
        """Record into this window from now on."""
        self.buffer = buffer
        if self.evidence is not None:
            buffer.evidence = self.evidence.kinds_for(buffer.schema.stages)
        buffer.record_from(self._state, self._waits, self.evidence)

    def use_other_stages(self) -> None:
        """Follow a change of the recorded stages."""
        for waits in (self._waits, self._device_waits):
            if waits is not None:
                waits.use_other_stages()

    def mark(self, name: str, step: int) -> None:
        """Set a channel to 1 in a step's row, if it was added last."""
        buffer = self.buffer
        row = buffer.sync() - 1
        if (
            row >= 0
            and buffer.row_NC[row, STEP_COLUMN] == step
            and (name in buffer.side or self._may_add(name))
        ):
            buffer.channel(name)[row] = 1.0

    # ---- following the steps --------------------------------------------------------------------

    def finish_step(self, step: int) -> None:
        """Store a step's values in the next row, and the times of completed device events."""
        side = self._state.side
        if self._memory is not None:
            self._sample_memory(self._memory, step)
        if self._waits is not None and self._waits.is_learning:
            self._waits.end_step()
        if side:
            self.buffer.add_side(side)
        if self._sampler is not None:
            self._sampler.poll()
        if self._device_waits is not None:
            self._finish_device_waits(self._device_waits, step)
        self._choose_reports(step + 1)

    def drop_step(self) -> None:
        """Clear the values of the current step, which is not recorded."""
        if self._sampler is not None:
            self._sampler.drop()
        self.buffer.reset_side()
        if self._waits is not None:
            self._waits.drop_step()
        if self._device_calls is not None:
            self._device_calls.take()

    def drop_events(self) -> None:
        """End the window: device events that have not happened are not stored."""
        if self._sampler is not None:
            self._sampler.drop()
        if self._device_waits is not None:
            self._device_waits.end_window(self.buffer.schema.stages)

    def close(self) -> None:
        """Release the model and the device."""
        for watch in (self._memory, self._layers, self._waits, self.evidence):
            if watch is not None:
                watch.close()

    def _sample_memory(self, memory: MemoryWatch, step: int) -> None:
        try:
            memory.sample(step, self._state.side)
        except Exception as error:  # fail-open: sampling ends
            self._memory = None
            self.buffer.note_side("memory", describe_error(error))

    def _choose_reports(self, step: int) -> None:
        """Set at the end of which step ``finish_step`` is needed next, from this one on."""
        due = [NEVER]
        if self._waits is not None and self._waits.is_learning:
            due.append(step)
        if self._memory is not None:
            due.append(self._memory.next_sample(step))
        if self._sampler is not None:
            is_waiting = self._sampler.waiting_pairs or (self._device_waits and self._device_waits.is_waiting)
            due.append(step if is_waiting else self._sampler.next_sample(step))
        self._state.report_due = min(due)

    def _store_evidence(self, name: str, value: float) -> None:
        """Store host evidence of the current step."""
        self.buffer.channel(name)[self.buffer.recorded] = value

    def _record_waits(self, waits: StageWaits) -> None:
        self._waits = waits
        self.buffer.record_waits_from(waits)
        self._choose_reports(self._state.number)

    def _waits_failed(self, reason: str) -> None:
        """Record why waits are missing; called on the thread that copies rows."""
        self.buffer.note_side("wait", reason)

    def _open_column(self) -> int | None:
        """Return the column of the stage that is being timed."""
        stage = self._state.open_stage
        return None if stage is None or stage is self._state.outside else stage.index - FIRST_STAGE_COLUMN

    def _finish_device_waits(self, waits: DeviceWaits, number: int) -> None:
        try:
            step, column_of = self._take_device_calls()
            if step is not None and step.number != number:  # Other ranks did not sample this step.
                step, column_of = None, ()
            stages = self.buffer.schema.stages
            for column in set(column_of):  # Waits of the host come first where channels are scarce.
                if column is not None:
                    self._may_store(WAIT_PREFIX + stages[column])
            waits.finish_step(step, column_of, self.buffer.recorded, stages)
            reason = waits.error
        except Exception as error:  # fail-open: measuring ends
            reason = describe_error(error)
            self._device_waits = None
        if reason:
            self.buffer.note_side(DEVICE_WAIT_PREFIX.rstrip("."), reason)

    def _take_device_calls(self) -> tuple[SampledStep | None, Sequence[int | None]]:
        """Return the calls of the step that ends and their columns."""
        if self._device_calls is None:
            added, self._added_calls = self._added_calls, (None, ())
            return added
        step = self._device_calls.take()
        return step, () if step is None else step.places

    def _device_wait_values(self, name: str) -> Values | None:
        return self.buffer.channel(name) if self._may_store(name) else None

    def _may_store(self, name: str) -> bool:
        """Return whether values may be stored under a name, and make it a channel if so."""
        if name not in self._channels:
            if not self._may_add(name):
                return False
            self._reserve([name])
        return True

    def _reserve(self, names: Any) -> None:
        for name in names:
            self._channels.setdefault(name, RecordedChannel(self._state, name))

    def _may_add(self, name: object) -> bool:
        """Return whether another side channel of this name is allowed."""
        is_free = isinstance(name, str) and not name.startswith(EVIDENCE_PREFIX)
        if len(self._channels) < MAX_CHANNELS and is_free and CHANNEL_NAME.fullmatch(str(name)):
            return True
        self._note(name, "name refused, or too many channels")
        return False

    def _find(self, name: object) -> RecordedChannel | EventSample | None:
        """Return the channel of a name, which may be any value from training code."""
        return self._channels.get(name) if isinstance(name, str) else None

    def _note(self, name: object, reason: str) -> None:
        self.buffer.note_side(name if isinstance(name, str) else type(name).__name__, reason)

    def _place_of(self, name: str) -> tuple[Values, int]:
        """Return a side channel's values in the current window, and the row of the current step."""
        return self.buffer.channel(name), self.buffer.recorded
