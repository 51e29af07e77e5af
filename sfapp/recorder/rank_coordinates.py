"""Determine a rank's coordinates in the parallel layout: declared, or from a ``DeviceMesh``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sfapp.errors import RecorderError
from sfapp.model.manifest import DIMENSIONS

Layout: TypeAlias = Mapping[str, int] | Any
"""This rank's coordinates by dimension, or a ``torch.distributed.device_mesh.DeviceMesh``."""

_DIMENSION_OF = {
    **{name: name for name in DIMENSIONS},
    **dict.fromkeys(("dp_replicate", "dp_shard", "data_parallel", "fsdp", "ddp"), "dp"),
    "pipeline_parallel": "pp",
    "tensor_parallel": "tp",
    "expert_parallel": "ep",
    "context_parallel": "cp",
}
"""Dimension by its name in a mesh: the names of TorchTitan, Accelerate, Lightning and PyTorch's examples."""


def coordinates_of(layout: Layout) -> Mapping[str, int]:
    """Return this rank's coordinates by dimension.

    Several dimensions of a mesh may be one of ours, such as ``dp_replicate`` and ``dp_shard``: their
    coordinates are combined in the order of the mesh. Other dimensions of a mesh are left out.

    Args:
        layout: the coordinates, which are returned unchanged, or a mesh.

    Raises:
        RecorderError: the mesh does not contain this rank, or none of its dimensions is known by its name.
    """
    if isinstance(layout, Mapping) or not hasattr(layout, "mesh_dim_names"):
        return layout  # ``WindowSchema.of`` checks it.
    names = tuple(layout.mesh_dim_names or ())
    places = layout.get_coordinate()
    if places is None:
        raise RecorderError("this rank is not in the device mesh that was given as layout")
    found: dict[str, int] = {}
    for name, place, size in zip(names, places, tuple(layout.shape), strict=False):
        if name in _DIMENSION_OF:
            dimension = _DIMENSION_OF[name]
            found[dimension] = found.get(dimension, 0) * int(size) + int(place)
    if not found:
        listed = ", ".join(names) or "none"
        raise RecorderError(
            f"no dimension of the device mesh has a known name (its names: {listed}): name them as in "
            f"init_device_mesh(…, mesh_dim_names={DIMENSIONS[:2]!r}), or pass layout={{'dp': …}}"
        )
    return found
