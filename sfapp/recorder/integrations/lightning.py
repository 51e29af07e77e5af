"""Record Lightning training: one callback records every ``trainer.fit``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel

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
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"sfapp.recorder.integrations.lightning needs {missing.name}: pip install 'sfapp[lightning]'"
    ) from missing

STAGES = (DATA, FORWARD, BACKWARD, OPTIMIZER, CALLBACKS)
"""Stages in Lightning's order: most callbacks run at the end of the batch, after the optimizer."""


class LightningRecorderCallback(RecordingCallback, Callback):
    """Callback that records training by Lightning's own hooks.

    >>> Trainer(callbacks=[LightningRecorderCallback("packets", run_id="train-7")])

    A step is an optimizer step; with ``accumulate_grad_batches`` its micro-steps are recorded separately.

    - data: from the end of one batch's callbacks to the start of the next batch. Besides the wait for the
      loader it includes work that no hook separates from it: the module's own ``on_train_batch_end``,
      loggers, schedulers, the broadcast by which Lightning checks all ranks for SIGTERM, moving the batch to
      its device.
    - forward: ``training_step``.
    - backward: from the last callback's ``on_before_backward`` to the first one's ``on_after_backward``.
    - optimizer: clipping, ``optimizer.step`` and schedulers, to the batch's end.
    - callbacks: the other callbacks' hooks around the batch, the backward pass and the optimizer step,
      including checkpoints. This callback runs first and its second half last.
    - residual: zeroing gradients, the module's own ``on_after_backward``. Under manual optimization also the
      part of ``training_step`` after the first backward pass that is in no other backward pass, because no
      hook covers it.

    - between steps: validation between batches, and the time after the last batch of an epoch.

    A step that Lightning leaves early is not recorded.

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
        self._last_callback = _LastCallback(self)
        self._factor = 1
        self._micro_step = 0
        self._optimizer_steps = 0
        self._manual = False
        self._skips_sync = False

    # ---- fit ------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Move this callback before all others and add its second half after them."""
        if stage == "fit":
            own = (self, self._last_callback)
            owner: Any = trainer  # its class does not declare ``callbacks``
            others = [callback for callback in owner.callbacks if callback not in own]
            owner.callbacks = [self, *others, self._last_callback]

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remove the second half of this callback."""
        self._remove_last_callback(trainer)

    @warns_if_it_fails
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Create the recorder; the process group exists and the model is wrapped by now."""
        model = trainer.strategy.model
        self._manual = not pl_module.automatic_optimization
        wrapper = wrapper_of(model, trainer.optimizers[0] if trainer.optimizers else None)
        self._skips_sync = isinstance(model, DistributedDataParallel)
        self._factor = trainer.accumulate_grad_batches
        self._begin(STAGES, self._accumulation(), self._first_step(trainer), model, wrapper=wrapper)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the recorder."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save the recorded steps without waiting long, because the process may be failing."""
        self._close(exception)
        self._remove_last_callback(trainer)  # Lightning calls no teardown after an error.

    def _remove_last_callback(self, trainer: Trainer) -> None:
        owner: Any = trainer
        owner.callbacks = [callback for callback in owner.callbacks if callback is not self._last_callback]

    def _first_step(self, trainer: Trainer) -> int:
        """Return the number of steps before a checkpoint, as they were recorded.

        Under manual optimization a step is a batch, while ``global_step`` counts the steps of each optimizer.
        """
        batches: Any = trainer.fit_loop.epoch_loop.batch_progress.total  # Its class declares less.
        return int(batches.processed) if self._manual else trainer.global_step

    def _accumulation(self) -> Accumulation:
        last = self._skips_sync and self._factor > 1
        return Accumulation(factor=self._factor, sync="last" if last else "every")

    # ---- batch: each hook begins here and ends in the last callback ------------------------------

    @never_raises
    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self.phases.in_step:
            self._optimizer_steps = trainer.global_step
            self._micro_step = 0
            self.phases.begin_step()
            self.phases.micro_step(0)
        self.phases.enter(CALLBACKS)

    @never_raises
    def on_before_zero_grad(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self.phases.enter(CALLBACKS)

    @never_raises
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Any) -> None:
        self.phases.enter(CALLBACKS)

    @never_raises
    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.phases.enter(CALLBACKS)

    @never_raises
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self.phases.enter(CALLBACKS)

    @never_raises
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.phases.enter(CALLBACKS)

    @never_raises
    def batch_ended(self, trainer: Trainer) -> None:
        """End the step if the optimizer stepped; called after all callbacks of the batch's end."""
        stepped = self._manual or trainer.global_step > self._optimizer_steps
        if not self._manual:
            self.phases.set_sync(stepped or not self._skips_sync)
        if stepped:
            self.phases.end_step()
            self.phases.wait()
        else:
            self._micro_step += 1
            self.phases.micro_step(self._micro_step)
            self.phases.enter(DATA)

    @never_raises
    def callbacks_ended(self, next_stage: str | None) -> None:
        """Enter the stage that follows the callbacks; None if no hook covers the time after them."""
        if next_stage is None or (self._manual and next_stage == OPTIMIZER):
            self.phases.leave()
        else:
            self.phases.enter(next_stage)

    # ---- between batches ------------------------------------------------------------------------

    @never_raises
    def epoch_started(self, trainer: Trainer) -> None:
        """Begin to wait for the epoch's first batch; the accumulation may have changed on schedule."""
        self.phases.end_step(completed=False)  # Lightning may have left a step unfinished.
        if trainer.accumulate_grad_batches != self._factor:
            self._factor = trainer.accumulate_grad_batches
            if self._recorder is not None:
                self._recorder.reconfigure(accumulation=self._accumulation())
        self.phases.wait()

    @never_raises
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.phases.leave()
        self.phases.stop_waiting()

    @never_raises
    def validation_ended(self) -> None:
        """Wait for the next batch again."""
        if self.phases.in_step:
            self.phases.enter(DATA)
        else:
            self.phases.wait()


class _LastCallback(Callback):
    """Second half of ``LightningRecorderCallback``, after all other callbacks: marks the end of their
    time."""

    def __init__(self, first: LightningRecorderCallback) -> None:
        self._first = first

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first.epoch_started(trainer)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._first.callbacks_ended(FORWARD)

    def on_before_zero_grad(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self._first.callbacks_ended(None)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Any) -> None:
        self._first.callbacks_ended(BACKWARD)

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first.callbacks_ended(None)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self._first.callbacks_ended(OPTIMIZER)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._first.batch_ended(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first.validation_ended()


def __getattr__(name: str) -> Any:
    """Return the class for its deprecated name.

    Raises:
        AttributeError: the module has no such name.
    """
    if name != "RecorderCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "RecorderCallback has been renamed to LightningRecorderCallback", DeprecationWarning, stacklevel=2
    )
    return LightningRecorderCallback
