"""Record Composer training: one callback records every ``trainer.fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfapp.errors import MissingExtraError
from sfapp.model.manifest import Accumulation
from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER
from sfapp.recorder.integrations.recording_callback import RecordingCallback
from sfapp.recorder.integrations.safe_hooks import (
    never_raises,
    warns_if_it_fails,
)
from sfapp.recorder.wrapper import wrapper_of

try:
    from composer import Callback
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"sfapp.recorder.integrations.composer needs {missing.name}: pip install mosaicml"
    ) from missing

STAGES = (DATA, FORWARD, BACKWARD, OPTIMIZER, CALLBACKS)


class ComposerRecorderCallback(RecordingCallback, Callback):  # type: ignore[misc]  # Composer may not be installed.
    """Callback that records training by Composer's events.

    >>> Trainer(model, train_loader, callbacks=[ComposerRecorderCallback("packets", run_id="train-7")])

    A step is a batch; the times of its micro-batches are added up.

    - data: the next batch, moving it to the device and its transforms.
    - forward: ``forward`` and ``loss``.
    - backward: the backward pass, including the exchange of gradients.
    - optimizer: from the end of a backward pass to the next forward pass or the end of the batch: clipping,
      ``optimizer.step``, the mean of losses over ranks, schedulers, metrics.
    - callbacks: callbacks at the end of the batch, and the checkpoint unless an evaluation precedes it.
    - residual: loggers and callbacks at the start of the batch, zeroing gradients.
    - between steps: evaluation, and the time between epochs.

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
        self._counted = 0

    # ---- events, each with Composer's State and Logger -------------------------------------------

    @warns_if_it_fails
    def fit_start(self, state: Any, logger: Any) -> None:
        """Create the recorder; the process group exists and the model is wrapped by now."""
        self._close()
        wrapper = wrapper_of(state.model, state.optimizers[0] if state.optimizers else None)
        first_step = int(state.timestamp.batch)
        self._begin(STAGES, _accumulation(self._micro_batches), first_step, state.model, wrapper=wrapper)

    @never_raises
    def before_dataloader(self, state: Any, logger: Any) -> None:
        self.phases.end_step(completed=False)  # Composer may have left the batch before.
        if self._counted not in (0, self._micro_batches) and self._recorder is not None:
            self._micro_batches = self._counted
            self._recorder.reconfigure(accumulation=_accumulation(self._counted))
        self._counted = 0
        self.phases.wait()

    @never_raises
    def after_dataloader(self, state: Any, logger: Any) -> None:
        # Not earlier, because no batch follows at the end of an epoch, or where a checkpoint is resumed.
        self.phases.begin_step()

    @never_raises
    def before_forward(self, state: Any, logger: Any) -> None:
        self._counted += 1
        self.phases.enter(FORWARD)

    @never_raises
    def before_backward(self, state: Any, logger: Any) -> None:
        self.phases.enter(BACKWARD)

    @never_raises
    def after_backward(self, state: Any, logger: Any) -> None:
        self.phases.enter(OPTIMIZER)

    @never_raises
    def batch_end(self, state: Any, logger: Any) -> None:
        self.phases.enter(CALLBACKS)

    @never_raises
    def eval_start(self, state: Any, logger: Any) -> None:
        self.phases.end_step()

    @never_raises
    def batch_checkpoint(self, state: Any, logger: Any) -> None:
        self.phases.end_step()

    def fit_end(self, state: Any, logger: Any) -> None:
        """Close the recorder."""
        self._close()

    def close(self, state: Any, logger: Any) -> None:
        """Close the recorder of a ``fit`` that failed."""
        self._close()


def _accumulation(micro_batches: int) -> Accumulation:
    return Accumulation(factor=micro_batches, ordered=micro_batches == 1)
