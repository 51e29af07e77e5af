"""Hugging Face: a callback for ``transformers.Trainer``, and a context for loops written with Accelerate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from sfapp.errors import MissingExtraError
from sfapp.model.manifest import Accumulation, Wrapper
from sfapp.model.stages import DATA, FORWARD, OPTIMIZER
from sfapp.recorder.integrations.hooks import begins_or_warns, check_options, never_raises
from sfapp.recorder.recorder import Recorder
from sfapp.recorder.timing.batches import Batch
from sfapp.recorder.timing.phases import Phases
from sfapp.recorder.wrapper import wrapper_of

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.training_args import ParallelMode
except ModuleNotFoundError as missing:
    raise MissingExtraError(
        f"sfapp.recorder.integrations.hf needs {missing.name}: pip install 'sfapp[hf]'"
    ) from missing

BACKWARD_AND_CLIP = "model.backward_and_clip_cpu_wall"
"""From the end of the model's forward pass to the optimizer's step: no hook tells these apart."""

STAGES = (DATA, FORWARD, BACKWARD_AND_CLIP, OPTIMIZER)

_TAKEN_FROM_THE_LOOP = ("stages", "accumulation", "first_step")


class _ModelHooks:
    """A module's own forward hooks: where the forward pass ends and the backward pass may begin."""

    recording = False
    phases: Phases
    _handles: tuple[Any, ...] = ()

    def _watch(self, model: torch.nn.Module) -> None:
        # A compiled model calls them too, outside its graph.
        before, after = (
            torch.compiler.disable(self._forward_begins),
            torch.compiler.disable(self._forward_ends),
        )
        self._handles = (model.register_forward_pre_hook(before), model.register_forward_hook(after))

    def _unwatch(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = ()

    @never_raises
    def _forward_begins(self, module: torch.nn.Module, args: Any) -> None:
        if module.training:
            self.phases.enter(FORWARD)

    @never_raises
    def _forward_ends(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if module.training:
            self.phases.enter(BACKWARD_AND_CLIP)


class RecorderCallback(_ModelHooks, TrainerCallback):
    """Records ``Trainer.train`` by the Trainer's own events, and leaves packets.

    >>> Trainer(model, args, train_dataset=data, callbacks=[RecorderCallback("packets", run_id="train-7")])

    A step is an optimizer step; with ``gradient_accumulation_steps`` its micro-steps are kept apart. What the
    Trainer's events and the model's forward hook tell apart:

    - data: from the last event between steps (a step's end, a log, a checkpoint, an evaluation) to the next
      step's beginning. The Trainer fetches the batches of all micro-steps before the first of them, so their
      wait is the first one's.
    - forward: from the step's or micro-step's beginning to the end of the model's ``forward``.
    - ``model.backward_and_clip_cpu_wall``: from there to the optimizer's step: backward pass, clipping and
      the gradients' norm, and a loss computed outside the model.
    - optimizer: the optimizer's step.
    - residual: schedulers, zeroing gradients and other callbacks, up to this callback's ``on_step_end``.

    Logging, evaluation and checkpoints come after the step and belong to none.

    The Trainer tells callbacks of no exception: a recorder that it leaves open closes with the process.

    Args:
        output: folder for packets.
        options: of ``sfapp.Recorder``, but ``stages``, ``accumulation``, ``first_step``.

    Raises:
        RecorderError: an option that the recorder does not have.
    """

    def __init__(self, output: str | Path, **options: Any) -> None:
        check_options(options, _TAKEN_FROM_THE_LOOP)
        self._output = output
        self._options = options
        self._perf: Recorder | None = None
        self._micro = 0
        self._skips_sync = False

    @begins_or_warns
    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        optimizer: Any = None,
        **kwargs: Any,
    ) -> None:
        """Make the recorder: the ranks are there."""
        self._close()
        wrapper = _wrapper_of_trainer(args, model, optimizer)
        factor = args.gradient_accumulation_steps
        self._skips_sync = factor > 1 and wrapper in ("ddp", "fsdp1", "fsdp2") and not _syncs_each_batch(args)
        self._perf = Recorder(
            self._output,
            stages=STAGES,
            accumulation=Accumulation(factor=factor, sync="last" if self._skips_sync else "every"),
            first_step=state.global_step,
            **{"wrapper": wrapper, **self._options},
        )
        self.phases = self._perf.phases()
        self.recording = True
        if model is not None:
            self._watch(model)

    def on_train_end(self, *event: Any, **kwargs: Any) -> None:
        """Close the recorder."""
        self._close()

    def _close(self) -> None:
        self._unwatch()
        perf, self._perf, self.recording = self._perf, None, False
        if perf is not None:
            perf.close()

    @never_raises
    def on_epoch_begin(self, *event: Any, **kwargs: Any) -> None:
        self.phases.wait()

    @never_raises
    def on_step_begin(self, *event: Any, **kwargs: Any) -> None:
        self._micro = 0
        self.phases.end_step(completed=False)  # one that the Trainer left in the middle
        self.phases.begin_step()
        self.phases.micro_step(0)
        self.phases.enter(FORWARD)

    @never_raises
    def on_substep_end(self, *event: Any, **kwargs: Any) -> None:
        self.phases.set_sync(not self._skips_sync)
        self._micro += 1
        self.phases.micro_step(self._micro)
        self.phases.enter(FORWARD)

    @never_raises
    def on_pre_optimizer_step(self, *event: Any, **kwargs: Any) -> None:
        self.phases.set_sync(True)
        self.phases.enter(OPTIMIZER)

    @never_raises
    def on_optimizer_step(self, *event: Any, **kwargs: Any) -> None:
        self.phases.leave()

    @never_raises
    def on_step_end(self, *event: Any, **kwargs: Any) -> None:
        self.phases.end_step()
        self.phases.wait()

    @never_raises
    def on_log(self, *event: Any, **kwargs: Any) -> None:
        self.phases.wait()

    @never_raises
    def on_save(self, *event: Any, **kwargs: Any) -> None:
        self.phases.wait()

    @never_raises
    def on_evaluate(self, *event: Any, **kwargs: Any) -> None:
        self.phases.wait()


def _wrapper_of_trainer(args: TrainingArguments, model: Any, optimizer: Any) -> Wrapper:
    """Callbacks see the model inside its wrapper; the arguments say what that is."""
    inside = wrapper_of(model, getattr(optimizer, "optimizer", optimizer))
    if inside != "single":
        return inside
    if args.deepspeed or args.fsdp:
        return "other"
    return "ddp" if args.parallel_mode == ParallelMode.DISTRIBUTED else "single"


def _syncs_each_batch(args: TrainingArguments) -> bool:
    options = getattr(args.accelerator_config, "gradient_accumulation_kwargs", None) or {}
    return bool(options.get("sync_each_batch", False))


class AccelerateRecorder(_ModelHooks):
    """Records a loop written with Accelerate, by the forward hooks of its model and the step hooks of its
    optimizer; the loop keeps its code but for ``batches``.

    >>> with AccelerateRecorder(accelerator, model, optimizer, "packets") as recorded:
    ...     for batch in recorded.batches(loader):
    ...         with accelerator.accumulate(model):
    ...             loss = model(batch).sum()
    ...             accelerator.backward(loss)
    ...             optimizer.step()
    ...             optimizer.zero_grad()

    A step ends when the batch after an optimizer step is asked for. Stages as in ``RecorderCallback``, but
    that each micro-step waits for its own batch, and what follows the optimizer is in the residual:
    schedulers, logging. A forward pass of the model in ``eval`` mode ends a step whose optimizer has stepped:
    validation belongs to none.

    Args:
        accelerator: an ``accelerate.Accelerator``.
        model, optimizer: as ``accelerator.prepare`` returned them.
        output: folder for packets.
        options: of ``sfapp.Recorder``, but ``stages``, ``accumulation``.

    Raises:
        RecorderError: an option that the recorder does not have.
    """

    def __init__(
        self, accelerator: Any, model: torch.nn.Module, optimizer: Any, output: str | Path, **options: Any
    ) -> None:
        check_options(options, ("stages", "accumulation"))
        inside = getattr(optimizer, "optimizer", optimizer)
        self._accelerator = accelerator
        self._factor = int(accelerator.gradient_accumulation_steps)
        self._micro = 0
        self._stepped = self._told_sync = False
        state = getattr(accelerator, "gradient_state", None)
        self._syncs_each = bool(getattr(state, "plugin_kwargs", {}).get("sync_each_batch", False))
        syncs_last = self._factor > 1 and not self._syncs_each
        self._perf = Recorder(
            output,
            stages=STAGES,
            accumulation=Accumulation(factor=self._factor, sync="last" if syncs_last else "every"),
            **{"wrapper": wrapper_of(model, inside), **options},
        )
        self.phases = self._perf.phases()
        self.recording = True
        self._watch(model)
        self._handles += (
            inside.register_step_pre_hook(self._optimizer_begins),
            inside.register_step_post_hook(self._optimizer_ends),
        )

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The loader's batches, whose waits are recorded and at which steps end and begin."""
        batches = iter(loader)
        while True:
            self._ask()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._got()
            yield batch

    def close(self) -> None:
        """Close the recorder, and leave model and optimizer as they were."""
        self._end_step()
        self._unwatch()
        self.recording = False
        self._perf.close()

    def __enter__(self) -> AccelerateRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._unwatch()
            self.recording = False
            self._perf.__exit__(kind, value, trace)

    @never_raises
    def _ask(self) -> None:
        self._end_step()
        if self.phases.in_step:
            self._micro += 1
            self.phases.micro_step(self._micro)
            self.phases.enter(DATA)
        else:
            self.phases.wait()

    @never_raises
    def _got(self) -> None:
        if not self.phases.in_step:
            self._micro = 0
            self.phases.begin_step()
            self.phases.micro_step(0)
        self._told_sync = False
        self.phases.enter(FORWARD)

    @never_raises
    def _end_step(self) -> None:
        if self._stepped:
            self._stepped = False
            self.phases.end_step()

    @never_raises
    def _forward_begins(self, module: torch.nn.Module, args: Any) -> None:
        if not module.training:
            self._end_step()
            return
        if not self._told_sync:
            self._told_sync = True
            self.phases.set_sync(self._syncs_each or bool(self._accelerator.sync_gradients))
        self.phases.enter(FORWARD)

    @never_raises
    def _optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.phases.enter(OPTIMIZER)

    @never_raises
    def _optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.phases.leave()
        self._stepped = True
