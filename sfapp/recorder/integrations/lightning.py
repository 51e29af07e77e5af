"""Lightning: one callback records every ``trainer.fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from sfapp.errors import MissingExtraError
from sfapp.model.manifest import Accumulation
from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER
from sfapp.recorder.integrations.hooks import begins_or_warns, check_options, never_raises
from sfapp.recorder.recorder import Recorder
from sfapp.recorder.timing.phases import Phases
from sfapp.recorder.wrapper import wrapper_of

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"sfapp.recorder.integrations.lightning needs {missing.name}: pip install 'sfapp[lightning]'"
    ) from missing

STAGES = (DATA, FORWARD, BACKWARD, OPTIMIZER, CALLBACKS)
"""In Lightning's order: most callbacks run when the batch has ended, after the optimizer."""


class RecorderCallback(Callback):
    """Records training by Lightning's own hooks and leaves packets.

    >>> Trainer(callbacks=[RecorderCallback("packets", run_id="train-7")])

    A step is an optimizer step; with ``accumulate_grad_batches`` its micro-steps are kept apart.

    - data: from the end of one batch's callbacks to the next batch's start. Besides the wait for the loader
      it holds what no hook tells apart from it: the module's own ``on_train_batch_end``, loggers, schedulers,
      the broadcast by which Lightning asks all ranks for SIGTERM, moving the batch to its device.
    - forward: ``training_step``.
    - backward: from the last callback's ``on_before_backward`` to the first one's ``on_after_backward``.
    - optimizer: clipping, ``optimizer.step`` and schedulers, to the batch's end.
    - callbacks: the other callbacks' hooks round the batch, the backward pass and the optimizer step. This
      callback goes first, and a part of it last, checkpoints included.
    - residual: zeroing gradients, the module's own ``on_after_backward``. Under manual optimization also all
      of ``training_step`` that lies after the first backward pass and in no other: no hook says what it is.

    Validation between batches belongs to no step. A step that Lightning leaves early is not recorded.

    Args:
        output: folder for packets.
        options: of ``sfapp.Recorder``, but ``stages``, ``accumulation``, ``first_step``.

    Raises:
        RecorderError: an option that the recorder does not have.
    """

    phases: Phases

    def __init__(self, output: str | Path, **options: Any) -> None:
        check_options(options, ("stages", "accumulation", "first_step"))
        self._output = output
        self._options = options
        self._perf: Recorder | None = None
        self.recording = False
        self._closing = _LastCallback(self)
        self._factor = 1
        self._micro = 0
        self._optimizer_steps = 0
        self._manual = False
        self._skips_sync = False

    # ---- the fit --------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Put this callback before all others, and its other half behind them."""
        if stage == "fit":
            own = (self, self._closing)
            others = [callback for callback in trainer.callbacks if callback not in own]  # type: ignore[attr-defined]
            trainer.callbacks = [self, *others, self._closing]  # type: ignore[attr-defined]

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the other callbacks as they were."""
        self._remove_closing(trainer)

    @begins_or_warns
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the recorder: the ranks are there and the model is wrapped."""
        model = trainer.strategy.model
        self._manual = not pl_module.automatic_optimization
        wrapper = wrapper_of(model, trainer.optimizers[0] if trainer.optimizers else None)
        self._skips_sync = isinstance(model, DistributedDataParallel)
        self._factor = trainer.accumulate_grad_batches
        self._perf = Recorder(
            self._output,
            stages=STAGES,
            accumulation=self._accumulation(),
            first_step=trainer.global_step,
            **{"wrapper": wrapper, **self._options},
        )
        self.phases = self._perf.phases()
        self.recording = True

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the recorder."""
        self._close(None)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save what was recorded, without waiting long: the process may be failing."""
        self._close(exception)
        self._remove_closing(trainer)  # there is no teardown after an error

    def _remove_closing(self, trainer: Trainer) -> None:
        others = [callback for callback in trainer.callbacks if callback is not self._closing]  # type: ignore[attr-defined]
        trainer.callbacks = others  # type: ignore[attr-defined]

    def _close(self, error: BaseException | None) -> None:
        perf, self._perf, self.recording = self._perf, None, False
        if perf is not None:
            perf.__exit__(None if error is None else type(error), error, None)

    def _accumulation(self) -> Accumulation:
        last = self._skips_sync and self._factor > 1
        return Accumulation(factor=self._factor, sync="last" if last else "every")

    # ---- a batch: each hook begins here and ends in the last callback ----------------------------

    @never_raises
    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self.phases.in_step:
            self._optimizer_steps = trainer.global_step
            self._micro = 0
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
        """All callbacks have handled the batch's end: it ends the step if the optimizer stepped."""
        stepped = self._manual or trainer.global_step > self._optimizer_steps
        if not self._manual:
            self.phases.set_sync(stepped or not self._skips_sync)
        if stepped:
            self.phases.end_step()
            self.phases.wait()
        else:
            self._micro += 1
            self.phases.micro_step(self._micro)
            self.phases.enter(DATA)

    @never_raises
    def callbacks_ended(self, next_stage: str | None) -> None:
        """All callbacks have handled the event: the next stage begins, if a hook reports one."""
        if next_stage is None or (self._manual and next_stage == OPTIMIZER):
            self.phases.leave()
        else:
            self.phases.enter(next_stage)

    # ---- between batches ------------------------------------------------------------------------

    @never_raises
    def epoch_started(self, trainer: Trainer) -> None:
        """The first batch is waited for. The accumulation may have been scheduled anew."""
        self.phases.end_step(completed=False)  # one that Lightning left in the middle
        if trainer.accumulate_grad_batches != self._factor:
            self._factor = trainer.accumulate_grad_batches
            if self._perf is not None:
                self._perf.reconfigure(accumulation=self._accumulation())
        self.phases.wait()

    @never_raises
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.phases.leave()
        self.phases.stop_waiting()

    @never_raises
    def validation_ended(self) -> None:
        """The next batch is waited for again."""
        if self.phases.in_step:
            self.phases.enter(DATA)
        else:
            self.phases.wait()


class _LastCallback(Callback):
    """The other half of ``RecorderCallback``, behind all other callbacks: tells where their time ends."""

    def __init__(self, first: RecorderCallback) -> None:
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
