"""How a model is parallelised, by what it is wrapped in."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from sfapp.model.manifest import Wrapper

_SHARDED: dict[Wrapper, tuple[tuple[str, str], ...]] = {
    "fsdp2": (
        ("torch.distributed.fsdp", "FSDPModule"),
        ("torch.distributed._composable.fsdp", "FSDPModule"),  # before torch 2.6
    ),
    "fsdp1": (("torch.distributed.fsdp", "FullyShardedDataParallel"),),
}
"""By wrapper, where the classes of its modules live."""

_ZERO = ("torch.distributed.optim", "ZeroRedundancyOptimizer")


def wrapper_of(model: Any, optimizer: Any = None) -> Wrapper:
    """What a packet says of a model: ``fsdp2``, ``fsdp1``, ``zero1``, ``ddp``, ``single``.

    >>> sfapp.Recorder("packets", wrapper=wrapper_of(model, optimizer))

    Args:
        model: the module as the loop calls it, wrapped or sharded.
        optimizer: the optimizer, for ZeRO stage 1, which shards nothing else.

    Returns:
        ``other`` for what is no ``torch.nn.Module``.
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


def _loaded(homes: Sequence[tuple[str, str]]) -> tuple[type, ...]:
    """Those of the classes whose modules are loaded: no object is of another. Loading them for this would
    take a second, and may warn."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in homes)
    return tuple(kind for kind in found if isinstance(kind, type))
