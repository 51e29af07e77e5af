"""Arrays of NumPy or of torch, and the few conversions between them.

Arrays on the host are NumPy arrays, and most of sfapp never loads torch. A tensor on another device stays
there; functions that work on it use ``namespace``, since NumPy and torch share the names of most operations.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Array = Any
"""A NumPy array, or a torch tensor on a device other than the CPU."""


def as_array(values: Any) -> Array:
    """Return the values in C order: as a NumPy array, or as a tensor if they are on another device.

    The memory is shared if its order allows, including that of a CPU tensor.
    """
    if not isinstance(values, np.ndarray) and hasattr(values, "device"):
        if values.device.type != "cpu":
            return values.contiguous()
        values = values.detach().numpy()
    return np.ascontiguousarray(values)


def to_numpy(values: Array) -> npt.NDArray[Any]:
    """Return the values as a NumPy array, copied to the host if they are on another device."""
    if isinstance(values, np.ndarray):
        return values
    host: npt.NDArray[Any] = values.detach().cpu().numpy()
    return host


def to_device(values: Array, device: torch.device | str) -> Array:
    """Return the values on a device: as a NumPy array on the CPU, as a tensor on other devices."""
    if str(device) == "cpu":
        return to_numpy(values)
    import torch

    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    return as_array(tensor.to(device))


def dtype_name(values: Array) -> str:
    """Return the name of the element type, the same for NumPy and torch, such as ``int64``."""
    return str(values.dtype).rpartition(".")[2]


def namespace(values: Array) -> ModuleType:
    """Return the module that computes on these values: numpy or torch."""
    if isinstance(values, np.ndarray):
        return np
    import torch

    return torch
