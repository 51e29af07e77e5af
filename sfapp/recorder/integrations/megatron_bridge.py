"""Record Megatron-Bridge training: one callback records ``pretrain`` and ``finetune``."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from sfapp.model.manifest import Accumulation
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER
from sfapp.recorder.integrations.megatron import layout
from sfapp.recorder.integrations.recording_callback import RecordingCallback
from sfapp.recorder.integrations.safe_hooks import (
    never_raises,
    warns_if_it_fails,
)

STAGES = (DATA, FORWARD, BACKWARD, OPTIMIZER)

_MICRO_BATCHES = "megatron.core.num_microbatches_calculator"


class MegatronBridgeRecorderCallback(RecordingCallback):
    """Callback that records training by Megatron-Bridge's events, and by its timer of batches and forwards.

    >>> callback = MegatronBridgeRecorderCallback("packets", run_id="train-7")
    >>> pretrain(config, forward_step, callbacks=[callback])

    A step is one of Megatron-Bridge's training steps, and its micro-batches are added up, because the timer
    does not identify them.

    - data: ``get_batch``.
    - forward: from there to the end of the model's forward, and from the step's begin to the first batch:
      zeroing gradients, and on later pipeline stages the wait for the first activations.
    - backward: from the end of a forward to the next batch or the optimizer: backward passes, pipeline
      communication, exchange of gradients.
    - optimizer: from ``optimizer.step`` to the step's end: schedulers and reductions of norm and loss too.
    - between steps: logs, checkpoints and evaluation.

    The rank's place in Megatron's parallel groups is declared as its layout. Megatron-Bridge does not notify
    callbacks of an exception; the recorder is then closed when the process ends.

    Args:
        output: folder for packets.
        watch_waits: measure how long this rank waits for others within each stage
            (``Recorder.watch_waits``).
        options: options of ``sfapp.Recorder`` except ``stages``, ``accumulation`` and ``first_step``.

    Raises:
        RecorderError: the recorder has no such option.
    """

    def __init__(self, output: str | Path, *, watch_waits: bool = True, **options: Any) -> None:
        super().__init__(output, watch_waits=watch_waits, **options)
        self._micro_batches = 1

    # ---- events, each with Megatron-Bridge's CallbackContext -------------------------------------

    @warns_if_it_fails
    def on_train_start(self, context: Any) -> None:
        """Create the recorder; the process groups exist by now."""
        self._close()
        self._micro_batches = _micro_batches()
        first_step = context.state.train_state.step
        self._begin(STAGES, _accumulation(self._micro_batches), first_step, None, layout=layout() or None)
        state, optimizer = context.state, context.optimizer
        state._straggler_timer = _RecordedTimer(self, state.straggler_timer)
        optimizer.step = _RecordedUpdate(self, optimizer.step)

    @never_raises
    def on_train_step_start(self, context: Any) -> None:
        micro_batches = _micro_batches()
        if micro_batches != self._micro_batches and self._recorder is not None:  # It grows on schedule.
            self._micro_batches = micro_batches
            self._recorder.reconfigure(accumulation=_accumulation(micro_batches))
        self.phases.end_step(completed=False)  # Megatron-Bridge may have left a step unfinished.
        self.phases.begin_step()
        self.phases.enter(FORWARD)

    @never_raises
    def on_train_step_end(self, context: Any) -> None:
        self.phases.end_step()

    def on_train_end(self, context: Any) -> None:
        """Close the recorder, and leave timer and optimizer as they were."""
        state, optimizer = context.state, context.optimizer
        if isinstance(state.straggler_timer, _RecordedTimer):
            state._straggler_timer = state.straggler_timer.original
        if isinstance(optimizer.step, _RecordedUpdate):
            optimizer.step = optimizer.step.original
        self._close()

    # ---- inside a step ---------------------------------------------------------------------------

    @never_raises
    def section_begins(self, stage: str) -> None:
        """Begin a stage, which lasts until the next one begins."""
        self.phases.enter(stage)


class _RecordedTimer:
    """Megatron's ``StragglerDetector`` that also tells the callback which section begins."""

    def __init__(self, callback: MegatronBridgeRecorderCallback, original: Any) -> None:
        self.original = original
        self._callback = callback
        self._fetches = False

    def __call__(self, bdata: bool = False) -> _RecordedTimer:
        """Set whether the next timed section fetches a batch."""
        self._fetches = bdata
        self.original(bdata)
        return self

    def __enter__(self) -> _RecordedTimer:
        self._callback.section_begins(DATA if self._fetches else FORWARD)
        self.original.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.original.__exit__(kind, value, trace)
        self._callback.section_begins(FORWARD if self._fetches else BACKWARD)
        self._fetches = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class _RecordedUpdate:
    """The optimizer's ``step`` that also tells the callback when it begins."""

    def __init__(self, callback: MegatronBridgeRecorderCallback, original: Any) -> None:
        self.original = original
        self._callback = callback

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._callback.section_begins(OPTIMIZER)
        return self.original(*args, **kwargs)


def _micro_batches() -> int:
    """Return the number of micro-batches of a step; 1 where Megatron does not say it."""
    number = getattr(sys.modules.get(_MICRO_BATCHES), "get_num_microbatches", None)
    return 1 if number is None else int(number())


def _accumulation(micro_batches: int) -> Accumulation:
    return Accumulation(factor=micro_batches, ordered=micro_batches == 1)
