"""Hooks on PyTorch's public functions that report to a ``Session``.

- Loaders: ``DataLoader.__iter__`` and the iterator that it returns; the same of torchdata's
  ``StatefulDataLoader``, which has its own.
- Backward: ``torch.autograd.backward``, which ``Tensor.backward`` calls.
- Optimizers: their global step hooks, and ``GradScaler.step`` for the steps that it skips.
- DeepSpeed's engine: ``backward``, which exchanges gradients after PyTorch's own, and its update of the
  model.
- Forward: a global forward pre-hook that exists only while no module runs. The outermost module's call
  removes it and registers it again, so that inner modules cost nothing and no module keeps a hook.
  ``torch.compile`` would include the hook in compiled code, so its first use removes the hook permanently;
  steps then have no forwards.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from sfapp.recorder.auto.import_hooks import ImportHook
from sfapp.recorder.auto.session import Session
from sfapp.recorder.auto.steps import BATCH, EXHAUSTED, STARTED
from sfapp.recorder.timing.model_hooks import ModelHook

P = ParamSpec("P")
R = TypeVar("R")


def install(session: Session) -> None:
    """Install the hooks, which report to a session. Call it once per process, after ``import torch``."""
    forwards = _ForwardHook(session)
    _hook_loaders(session)
    _hook_backward(session, forwards)
    _hook_optimizers(session)
    _hook_process_groups(session)
    _hook_compile(session, forwards)
    _hook_deepspeed(session, forwards)
    forwards.enable()
    os.register_at_fork(after_in_child=session.disable_in_child)


class _ForwardHook:
    """Hook that reports the outermost calls of modules.

    Attributes:
        is_barred: whether it is disabled permanently.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hook: Any = None
        self._on_module: Any = None
        self.is_barred = False

    def enable(self) -> None:
        """Report the next call of a module, which is an outermost one."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        if self._hook is None and not self.is_barred and self._session.active:
            self._hook = register_module_forward_pre_hook(self._before)

    def disable(self) -> None:
        """Ignore calls of modules, which happen inside a section that is already timed."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def disable_permanently(self) -> None:
        """Ignore all further calls of modules."""
        self.is_barred = True
        self.disable()

    def _before(self, module: Any, args: Any) -> None:
        import torch

        if torch.compiler.is_compiling():
            return
        trains = torch.is_grad_enabled() and module.training
        if not self._session.enter("forward", 0, int(trains)):
            if self._session.inside == "backward" or not self._session.active:
                self.disable()  # Checkpointed modules run again in backward.
            return
        self._session.module_called(module, getattr(module, "require_backward_grad_sync", None))
        self._leave_module()
        try:
            self._on_module = module.register_forward_hook(ModelHook(self._after), always_call=True)
        except Exception:  # fail-open: without a hook the end of the call is unknown
            self._session.leave("forward")
            return
        self.disable()

    def _after(self, module: Any, args: Any, output: Any) -> None:
        self._session.leave("forward")
        self._leave_module()
        self.enable()

    def _leave_module(self) -> None:
        """Remove the hook of a module, which stays on it where Ctrl-C ended the call."""
        if self._on_module is not None:
            self._on_module.remove()
            self._on_module = None


class _TimedBatches(Iterator[Any]):
    """Iterator of a loader that reports the waits and otherwise behaves as the original iterator."""

    def __init__(self, batches: Iterator[Any], session: Session, key: int) -> None:
        self._batches = batches
        self._session = session
        self._key = key

    def __next__(self) -> Any:
        session = self._session
        if not session.enter("data", self._key, EXHAUSTED):
            return next(self._batches)
        try:
            batch = next(self._batches)
        except BaseException:
            session.leave("data")
            raise
        session.leave("data", BATCH)
        return batch

    def __len__(self) -> int:
        batches: Any = self._batches
        return len(batches)  # as the wrapped iterator defines it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def _hook_loaders(session: Session) -> None:
    """Hook the loaders of PyTorch, and those of torchdata once the script imports them."""
    from torch.utils.data import DataLoader

    def loaded(module: ModuleType) -> None:
        with suppress(AttributeError):  # Then its waits are not seen.
            _hook_loader(module.StatefulDataLoader, session)

    _hook_loader(DataLoader, session)
    ImportHook("torchdata.stateful_dataloader.stateful_dataloader", loaded).install()


def _hook_loader(loader: Any, session: Session) -> None:
    """Time the iterators of a class of loaders, and its subclasses that do not replace ``__iter__``."""
    make = loader.__iter__

    @functools.wraps(make)
    def iterate(self: Any) -> Any:
        entered = session.enter("data", id(self), STARTED)
        try:
            batches = make(self)
        finally:
            if entered:
                session.leave("data")
        is_timed = not session.active or isinstance(batches, _TimedBatches)
        return batches if is_timed else _TimedBatches(batches, session, id(self))

    loader.__iter__ = iterate


def _hook_backward(session: Session, forwards: _ForwardHook) -> None:
    import torch

    torch.autograd.backward = _timed_backward(torch.autograd.backward, session, forwards)


def _timed_backward(run: Callable[P, R], session: Session, forwards: _ForwardHook) -> Callable[P, R]:
    """Return a function that runs a backward pass, and reports it."""

    @functools.wraps(run)
    def backward(*args: P.args, **kwargs: P.kwargs) -> R:
        if not session.enter("backward"):
            return run(*args, **kwargs)
        try:
            return run(*args, **kwargs)
        finally:
            session.leave("backward")
            forwards.enable()

    return backward


def _hook_deepspeed(session: Session, forwards: _ForwardHook) -> None:
    """Hook DeepSpeed's engine once the script imports it."""

    def loaded(module: ModuleType) -> None:
        with suppress(AttributeError):  # Then PyTorch's own hooks remain.
            engine: Any = module.DeepSpeedEngine
            engine.backward = _timed_backward(engine.backward, session, forwards)
            engine._take_model_step = _timed_model_step(engine._take_model_step, session)

    ImportHook("deepspeed.runtime.engine", loaded).install()


def _timed_model_step(step: Callable[..., R], session: Session) -> Callable[..., R]:
    """Return DeepSpeed's update of the model that reports itself as one optimizer step.

    It contains the steps of the optimizers inside ZeRO's, the gather of the parameters that follows them, and
    nothing else where gradients overflowed.
    """

    @functools.wraps(step)
    def model_step(engine: Any, *args: Any, **kwargs: Any) -> R:
        session.optimizer_step_begins(engine)
        result = step(engine, *args, **kwargs)
        session.optimizer_step_ends(engine)
        return result

    return model_step


def _hook_optimizers(session: Session) -> None:
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: session.optimizer_step_begins(optimizer))
    register_optimizer_step_post_hook(lambda optimizer, args, kwargs: session.optimizer_step_ends(optimizer))
    step = torch.amp.GradScaler.step

    @functools.wraps(step)
    def scaled_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        steps_before = session.optimizer_steps
        result = step(self, optimizer, *args, **kwargs)
        if session.optimizer_steps == steps_before:
            session.add_optimizer_step(optimizer)
        return result

    torch.amp.GradScaler.step = scaled_step  # type: ignore[method-assign]  # this is the hook


def _hook_process_groups(session: Session) -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed import device_mesh, distributed_c10d

    initialise, destroy = dist.init_process_group, dist.destroy_process_group

    @functools.wraps(initialise)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = initialise(*args, **kwargs)
        session.process_group_created()
        return result

    @functools.wraps(destroy)
    def destroy_process_group(group: Any = None) -> Any:
        if group is None or group is dist.group.WORLD:
            session.process_group_closing()
        return destroy(group)

    _replace("init_process_group", init_process_group, dist, distributed_c10d, device_mesh)
    _replace("destroy_process_group", destroy_process_group, dist, distributed_c10d)


_REPORTS = ("enter", "leave", "optimizer_step_begins", "optimizer_step_ends", "add_optimizer_step")
"""The session's methods that hooks call inside a training step."""


def _hook_compile(session: Session, forwards: _ForwardHook) -> None:
    import torch

    make = torch.compile

    @functools.wraps(make)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if not forwards.is_barred:
            forwards.disable_permanently()
            for name in _REPORTS:
                # Compiled steps call them between graphs: they read clocks, which no graph can.
                setattr(session, name, torch.compiler.disable(getattr(session, name)))
        return make(*args, **kwargs)

    torch.compile = compiled


def _replace(name: str, function: Callable[..., Any], *modules: Any) -> None:
    for module in modules:
        if hasattr(module, name):
            setattr(module, name, function)
