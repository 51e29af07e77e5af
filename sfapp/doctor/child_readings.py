"""Read what may take long or crash, in a process that ``sfapp doctor`` can kill: torch and the GPU driver.

It prints one line of JSON.
"""

from __future__ import annotations

import sys

import msgspec

from sfapp.errors import describe_error


class TorchReading(msgspec.Struct, frozen=True, kw_only=True):
    """The installed torch.

    Attributes:
        version: empty without torch. error: why it cannot be imported.
        has_distributed: whether it has torch.distributed. backends: process-group backends that it has.
        devices: number of its CUDA devices. cuda: version of CUDA that it was built for.
    """

    version: str = ""
    error: str = ""
    has_distributed: bool = False
    backends: tuple[str, ...] = ()
    devices: int = 0
    cuda: str = ""


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that NVML sees: their names, or why there are none."""

    names: tuple[str, ...] = ()
    error: str = ""


def read_torch() -> TorchReading:
    """Import torch and describe it."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        return TorchReading(error=describe_error(error))
    version = str(torch.__version__)
    if not dist.is_available():
        return TorchReading(version=version, cuda=torch.version.cuda or "")
    available = {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
    }
    return TorchReading(
        version=version,
        has_distributed=True,
        backends=tuple(name for name, there in available.items() if there),
        devices=torch.cuda.device_count(),
        cuda=torch.version.cuda or "",
    )


def read_gpus() -> GpuReading:
    """Ask NVML for the GPUs, as the sampler of a streaming job does."""
    from sfapp.stream.system_readings import GpuSampler

    sampler = GpuSampler(0)
    try:
        names = tuple(sample.name for sample in sampler.sample(0))
        return GpuReading(names=names, error=sampler.no_gpu_because or "")
    finally:
        sampler.close()


READERS = {"torch": read_torch, "gpu": read_gpus}

if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(READERS[sys.argv[1]]()).decode() + "\n")
