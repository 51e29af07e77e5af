"""How a model is parallelised, by what it is wrapped in."""

from __future__ import annotations

from typing import Any

from sfapp.model.manifest import Wrapper


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

    if not isinstance(model, torch.nn.Module):
        return "other"
    if not torch.distributed.is_available():
        return "single"
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    kinds = {type(module) for module in model.modules()}
    if any(issubclass(kind, sharded_module()) for kind in kinds):
        return "fsdp2"
    if any(issubclass(kind, FullyShardedDataParallel) for kind in kinds):
        return "fsdp1"
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        return "zero1"
    return "ddp" if any(issubclass(kind, DistributedDataParallel) for kind in kinds) else "single"


def sharded_module() -> type:
    """The class that ``fully_shard`` mixes into a module; torch has moved it."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:  # before torch 2.6
        from torch.distributed._composable.fsdp import FSDPModule
    return FSDPModule
