"""Memory as side channels: a few numbers per step, in bytes.

On a CUDA device they come from torch's allocator, in one step of ``CUDA_EVERY``, since querying it takes
longer than a step's stages; the peak covers the steps in between. Without one, it is the process's resident
memory in every step, under other names because it is not the tensors' memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sfapp.errors import RecorderError
from sfapp.files import OwnDescriptor
from sfapp.recorder.wrapper import wrapper_of

ALLOCATED, PEAK = "memory.allocated_bytes", "memory.peak_bytes"
"""Memory of tensors on this rank's CUDA device: current, and peak since the process began."""

RESIDENT, PEAK_RESIDENT = "memory.process_rss_bytes", "memory.process_peak_rss_bytes"
"""Resident memory of this process: current, and peak since it began."""

SHARD, FULL = "memory.parameter_shard_bytes", "memory.parameter_full_bytes"
"""Parameters on this rank, and of the whole model, which under FSDP1 includes padding."""

CUDA_EVERY = 8

_KIBIBYTE = 1024


def parameter_bytes(model: Any) -> tuple[int, int]:
    """Return the bytes of a model's parameters on this rank, and in total; one pass, no hooks.

    Under FSDP2 the total is exact; under FSDP1 it is the shard times the number of ranks that share it.
    """
    import torch

    shared_by = _shared_by(model)
    here = whole = 0
    with torch.no_grad():
        for parameter in model.parameters():
            to_local = getattr(parameter, "to_local", None)
            local = parameter if to_local is None else to_local()
            here += local.numel() * local.element_size()
            whole += parameter.numel() * parameter.element_size() * shared_by.get(id(parameter), 1)
    return here, whole


def _shared_by(model: Any) -> dict[int, int]:
    """Return the number of ranks that share each parameter under FSDP1, by the parameter's id."""
    if wrapper_of(model) != "fsdp1":
        return {}
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    return {
        id(parameter): unit.process_group.size()
        for unit in FullyShardedDataParallel.fsdp_modules(model)
        if unit.process_group is not None and unit.sharding_strategy is not ShardingStrategy.NO_SHARD
        for parameter in unit.parameters()
    }


class MemoryWatch:
    """Sampler of memory at the end of a step."""

    def __init__(self, model: Any = None) -> None:
        """Watch this process, and the parameters of a model if there is one.

        Args:
            model: a ``torch.nn.Module``, already sharded if it will be.

        Raises:
            RecorderError: the model is no module.
        """
        import torch

        if model is not None and not isinstance(model, torch.nn.Module):
            raise RecorderError(f"model must be a torch.nn.Module, not a {type(model).__name__}")
        parameters = () if model is None else tuple(model.parameters())
        on_cuda = any(parameter.is_cuda for parameter in parameters) or not parameters
        self._statm: OwnDescriptor | None = None
        self._fixed: dict[str, float] = {}
        if torch.cuda.is_available() and on_cuda:
            self._read, self._every = _cuda_reader(), CUDA_EVERY
            self.names: tuple[str, ...] = (ALLOCATED, PEAK)
        else:
            self._read, self._every = self._process_reader(), 1
            self.names = (RESIDENT, PEAK_RESIDENT)
        if model is not None:
            here, whole = parameter_bytes(model)
            self._fixed = {SHARD: float(here), FULL: float(whole)}
            self.names += (SHARD, FULL)

    def sample(self, step: int, side: dict[str, float]) -> None:
        """Add this step's memory to its side-channel values."""
        if step % self._every == 0:
            side.update(self._fixed)
            self._read(side)

    def next_sample(self, step: int) -> int:
        """Return the number of the first step from this one on that is sampled."""
        return -(-step // self._every) * self._every

    def close(self) -> None:
        """Close the open file."""
        if self._statm is not None:
            self._statm.close()

    def _process_reader(self) -> Callable[[dict[str, float]], None]:
        try:
            import resource
        except ImportError:  # The system does not have this module.
            return lambda side: None
        unit = 1 if sys.platform == "darwin" else _KIBIBYTE
        page = resource.getpagesize()
        with suppress(OSError):  # Without /proc only the peak is known.
            self._statm = OwnDescriptor(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))

        def read(side: dict[str, float]) -> None:
            side[PEAK_RESIDENT] = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
            if self._statm is not None:
                side[RESIDENT] = float(int(os.pread(self._statm.number, 64, 0).split()[1]) * page)

        return read


def _cuda_reader() -> Callable[[dict[str, float]], None]:
    import torch

    def read(side: dict[str, float]) -> None:
        all_pools = torch.cuda.memory_stats_as_nested_dict().get("allocated_bytes", {}).get("all", {})
        side[ALLOCATED] = float(all_pools.get("current", 0))
        side[PEAK] = float(all_pools.get("peak", 0))

    return read
