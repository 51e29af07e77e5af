"""Record Hugging Face training: a callback for ``transformers.Trainer`` and a context for Accelerate
loops."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from sfapp.errors import MissingExtraError
from sfapp.model.manifest import Accumulation, Wrapper
from sfapp.model.stages import DATA, FORWARD, OPTIMIZER
from sfapp.recorder.integrations.safe_hooks import (
    check_options,
    never_raises,
    warns_if_it_fails,
    watch_waits_if_possible,
)
from sfapp.recorder.recorder import Recorder
from sfapp.recorder.side_channels.last_gradient import DataParallelPart
from sfapp.recorder.timing.batches import Batch
from sfapp.recorder.timing.model_hooks import ModelHook
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
"""Time from the end of the model's forward pass to the optimizer step; no hook separates backward and
clipping."""

STAGES = (DATA, FORWARD, BACKWARD_AND_CLIP, OPTIMIZER)

_SET_BY_THE_TRAINER = ("stages", "accumulation", "first_step")


class _UncompiledHook(ModelHook):
    """Hook that a compiled model calls too, outside its graph."""

    __slots__ = ()
    __call__ = torch.compiler.disable(ModelHook.__call__)


class _ModelHooks:
    """Forward hooks on a module, which mark the end of the forward and the beginning of the backward pass."""

    recording = False
    phases: Phases
    _handles: tuple[Any, ...] = ()

    def _register_hooks(self, model: torch.nn.Module) -> None:
        before, after = _UncompiledHook(self._forward_begins), _UncompiledHook(self._forward_ends)
        self._handles = (model.register_forward_pre_hook(before), model.register_forward_hook(after))

    def _remove_hooks(self) -> None:
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


class HuggingFaceRecorderCallback(_ModelHooks, TrainerCallback):
    """Callback that records ``Trainer.train`` by the Trainer's own events.

    >>> Trainer(model, args, train_dataset=data, callbacks=[HuggingFaceRecorderCallback("packets",
    run_id="train-7")])

    A step is an optimizer step; with ``gradient_accumulation_steps`` its micro-steps are recorded separately.
    The Trainer's events and the model's forward hook separate these stages:

    - data: from the last event between steps (end of a step, log, checkpoint, evaluation) to the beginning of
      the next step. The Trainer fetches the batches of all micro-steps before the first one, so the whole
      wait belongs to the first micro-step.
    - forward: from the beginning of the step or micro-step to the end of the model's ``forward``.
    - ``model.backward_and_clip_cpu_wall``: from there to the optimizer step: backward pass, clipping,
      gradient norm, and a loss computed outside the model.
    - optimizer: the optimizer step.
    - residual: schedulers, zeroing gradients and other callbacks, up to this callback's ``on_step_end``.

    - between steps: logging, evaluation and checkpoints, which follow the step.

    The Trainer does not notify callbacks of an exception; the recorder is then closed when the process ends.

    Args:
        output: folder for packets.
        watch_waits: measure how long this rank waits for others within each stage
            (``Recorder.watch_waits``).
        options: options of ``sfapp.Recorder`` except ``stages``, ``accumulation`` and ``first_step``.

    Raises:
        RecorderError: the recorder has no such option.
    """

    def __init__(self, output: str | Path, *, watch_waits: bool = True, **options: Any) -> None:
        check_options(options, _SET_BY_THE_TRAINER)
        self._output = output
        self._watch_waits = watch_waits
        self._options = options
        self._recorder: Recorder | None = None
        self._micro_step = 0
        self._skips_sync = False

    @warns_if_it_fails
    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        optimizer: Any = None,
        **kwargs: Any,
    ) -> None:
        """Create the recorder; the process group exists by now."""
        self._close()
        wrapper = _wrapper_of_trainer(args, model, optimizer)
        factor = args.gradient_accumulation_steps
        self._skips_sync = factor > 1 and wrapper in ("ddp", "fsdp1", "fsdp2") and not _syncs_each_batch(args)
        self._recorder = Recorder(
            self._output,
            stages=STAGES,
            accumulation=Accumulation(factor=factor, sync="last" if self._skips_sync else "every"),
            first_step=state.global_step,
            **{"wrapper": wrapper, **self._options},
        )
        if self._watch_waits:  # The Trainer hands out the model without its wrapper.
            inside_ddp = wrapper == "ddp" and model is not None
            watch_waits_if_possible(self._recorder, DataParallelPart(model) if inside_ddp else model)
        self.phases = self._recorder.phases()
        self.recording = True
        if model is not None:
            self._register_hooks(model)

    def on_train_end(self, *event: Any, **kwargs: Any) -> None:
        """Close the recorder."""
        self._close()

    def _close(self) -> None:
        self._remove_hooks()
        recorder, self._recorder, self.recording = self._recorder, None, False
        if recorder is not None:
            recorder.close()

    @never_raises
    def on_epoch_begin(self, *event: Any, **kwargs: Any) -> None:
        self.phases.wait()

    @never_raises
    def on_step_begin(self, *event: Any, **kwargs: Any) -> None:
        self._micro_step = 0
        self.phases.end_step(completed=False)  # The Trainer may have left a step unfinished.
        self.phases.begin_step()
        self.phases.micro_step(0)
        self.phases.enter(FORWARD)

    @never_raises
    def on_substep_end(self, *event: Any, **kwargs: Any) -> None:
        self.phases.set_sync(not self._skips_sync)
        self._micro_step += 1
        self.phases.micro_step(self._micro_step)
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
    """Return the model's wrapper. Callbacks receive the model without it, so the arguments decide."""
    wrapper = wrapper_of(model, getattr(optimizer, "optimizer", optimizer))
    if wrapper != "single":
        return wrapper
    if args.deepspeed or args.fsdp:
        return "other"
    return "ddp" if args.parallel_mode == ParallelMode.DISTRIBUTED else "single"


def _syncs_each_batch(args: TrainingArguments) -> bool:
    options = getattr(args.accelerator_config, "gradient_accumulation_kwargs", None) or {}
    return bool(options.get("sync_each_batch", False))


class AccelerateRecorder(_ModelHooks):
    """Context that records an Accelerate loop by hooks on its model and optimizer.

    The loop keeps its code, except that it iterates over ``batches``.

    >>> with AccelerateRecorder(accelerator, model, optimizer, "packets") as recorded:
    ...     for batch in recorded.batches(loader):
    ...         with accelerator.accumulate(model):
    ...             loss = model(batch).sum()
    ...             accelerator.backward(loss)
    ...             optimizer.step()
    ...             optimizer.zero_grad()

    A step ends when the batch after an optimizer step is requested. The stages are those of
    ``HuggingFaceRecorderCallback``, except that each micro-step waits for its own batch, and that schedulers
    and logging after the optimizer step are in the residual. A forward pass in ``eval`` mode after an
    optimizer step ends the step, so that validation lies between steps.

    Args:
        accelerator: the ``accelerate.Accelerator``.
        model, optimizer: the results of ``accelerator.prepare``.
        output: folder for packets.
        watch_waits: measure how long this rank waits for others within each stage
            (``Recorder.watch_waits``).
        options: options of ``sfapp.Recorder`` except ``stages`` and ``accumulation``.

    Raises:
        RecorderError: the recorder has no such option.
    """

    def __init__(
        self,
        accelerator: Any,
        model: torch.nn.Module,
        optimizer: Any,
        output: str | Path,
        *,
        watch_waits: bool = True,
        **options: Any,
    ) -> None:
        check_options(options, ("stages", "accumulation"))
        base_optimizer = getattr(optimizer, "optimizer", optimizer)
        self._accelerator = accelerator
        self._factor = int(accelerator.gradient_accumulation_steps)
        self._micro_step = 0
        self._stepped = self._has_sync = False
        state = getattr(accelerator, "gradient_state", None)
        self._syncs_each_batch = bool(getattr(state, "plugin_kwargs", {}).get("sync_each_batch", False))
        syncs_last = self._factor > 1 and not self._syncs_each_batch
        self._recorder = Recorder(
            output,
            stages=STAGES,
            accumulation=Accumulation(factor=self._factor, sync="last" if syncs_last else "every"),
            **{"wrapper": wrapper_of(model, base_optimizer), **options},
        )
        if watch_waits:
            watch_waits_if_possible(self._recorder, model)
        self.phases = self._recorder.phases()
        self.recording = True
        self._register_hooks(model)
        self._handles += (
            base_optimizer.register_step_pre_hook(self._optimizer_begins),
            base_optimizer.register_step_post_hook(self._optimizer_ends),
        )

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the loader's batches, record the wait for each, and begin and end steps between them."""
        batches = iter(loader)
        while True:
            self._batch_requested()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._batch_received()
            yield batch

    def close(self) -> None:
        """Close the recorder and remove the hooks from model and optimizer."""
        self._end_step()
        self._remove_hooks()
        self.recording = False
        self._recorder.close()

    def __enter__(self) -> AccelerateRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._remove_hooks()
            self.recording = False
            self._recorder.__exit__(kind, value, trace)

    @never_raises
    def _batch_requested(self) -> None:
        self._end_step()
        if self.phases.in_step:
            self._micro_step += 1
            self.phases.micro_step(self._micro_step)
            self.phases.enter(DATA)
        else:
            self.phases.wait()

    @never_raises
    def _batch_received(self) -> None:
        if not self.phases.in_step:
            self._micro_step = 0
            self.phases.begin_step()
            self.phases.micro_step(0)
        self._has_sync = False
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
        if not self._has_sync:
            self._has_sync = True
            self.phases.set_sync(self._syncs_each_batch or bool(self._accelerator.sync_gradients))
        self.phases.enter(FORWARD)

    @never_raises
    def _optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.phases.enter(OPTIMIZER)

    @never_raises
    def _optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.phases.leave()
        self._stepped = True


def __getattr__(name: str) -> Any:
    """Return the class for its deprecated name.

    Raises:
        AttributeError: the module has no such name.
    """
    if name != "RecorderCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "RecorderCallback has been renamed to HuggingFaceRecorderCallback", DeprecationWarning, stacklevel=2
    )
    return HuggingFaceRecorderCallback
