"""Determine how a model is parallelised from its wrapper."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from sfapp.model.manifest import Wrapper

_SHARDED: dict[Wrapper, tuple[tuple[str, str], ...]] = {
    "fsdp2": (
        ("torch.distributed.fsdp", "FSDPModule"),
        ("torch.distributed._composable.fsdp", "FSDPModule"),  # before torch 2.6
    ),
    "fsdp1": (("torch.distributed.fsdp", "FullyShardedDataParallel"),),
}
"""Modules and names of each wrapper's classes."""

_WRAPPERS: tuple[Wrapper, ...] = ("fsdp2", "fsdp1", "zero1", "ddp")

_ZERO = ("torch.distributed.optim", "ZeroRedundancyOptimizer")


def wrapper_of(model: Any, optimizer: Any = None) -> Wrapper:
    """Return the name of a model's wrapper for packets: ``fsdp2``, ``fsdp1``, ``zero1``, ``ddp``, ``single``.

    >>> sfapp.Recorder("packets", wrapper=wrapper_of(model, optimizer))

    Args:
        model: the module that the loop calls, wrapped or sharded.
        optimizer: the optimizer, which shows ZeRO stage 1, where only its state is sharded.

    Returns:
        ``other`` if the model is not a ``torch.nn.Module``.
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel

    if not isinstance(model, torch.nn.Module):
        return "other"
    kinds = {type(module) for module in model.modules()}
    for wrapper, homes in _SHARDED.items():
        if any(issubclass(kind, home) for home in _loaded(homes) for kind in kinds):
            return wrapper
    if isinstance(optimizer, _loaded((_ZERO,))):
        return "zero1"
    return "ddp" if any(issubclass(kind, DistributedDataParallel) for kind in kinds) else "single"


def wrapper_among(models: Iterable[Any], optimizer: Any = None) -> Wrapper:
    """Return the wrapper of models of which at most one is expected to be wrapped; ``other`` if none is."""
    found = {wrapper_of(model, optimizer) for model in models}
    return next((wrapper for wrapper in _WRAPPERS if wrapper in found), "other")


def _loaded(homes: Sequence[tuple[str, str]]) -> tuple[type, ...]:
    """Return the classes whose modules are loaded; no object can be of another class.

    Loading the modules here would take a second and may cause warnings.
    """
    found = (getattr(sys.modules.get(module), name, None) for module, name in homes)
    return tuple(kind for kind in found if isinstance(kind, type))
