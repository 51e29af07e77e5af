"""Determine this process's place in its job: its rank and its node.

The sources, in order of precedence: torch.distributed, if initialised; torchrun's variables (and those of
launchers that set the same ones); Slurm's; MPI's. Values that one source lacks are taken from the next one
that agrees with it on rank and world size, because under ``srun torchrun`` Slurm counts launchers and not
ranks. If no source has nodes, all ranks are on one node.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sfapp.errors import IdentityError, RecorderError
from sfapp.model.rank_table import RankIdentity
from sfapp.recorder.transport.rank_group import distributed_rank, distributed_world_size
from sfapp.terminal import printable

TORCH = "torch.distributed"

_FIELDS = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "nodes")

# Per launcher and field: the variables that hold it, in order of precedence. The first row has torchrun's
# names, then Lightning's and Ray's (NODE_RANK) and DeepSpeed's (LOCAL_SIZE, CROSS_*).
_LAUNCHERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "torchrun": (
        ("RANK",),
        ("WORLD_SIZE",),
        ("LOCAL_RANK",),
        ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"),
        ("GROUP_RANK", "NODE_RANK", "CROSS_RANK"),
        ("GROUP_WORLD_SIZE", "NNODES", "CROSS_SIZE"),
    ),
    # The job step's variables: a batch script, one process, has SLURM_PROCID and SLURM_NTASKS too.
    "Slurm": (
        ("SLURM_PROCID",),
        ("SLURM_STEP_NUM_TASKS",),
        ("SLURM_LOCALID",),
        (),
        ("SLURM_NODEID",),
        ("SLURM_STEP_NUM_NODES",),
    ),
    "Open MPI": (
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        (),
        (),
    ),
    "MPI": (  # MPICH and Intel MPI (Hydra), Cray's PALS
        ("PMI_RANK",),
        ("PMI_SIZE",),
        ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
        (),
        (),
    ),
}
_SUFFICIENT: Mapping[str, frozenset[str]] = {"torchrun": frozenset({"rank", "world_size", "local_rank"})}
"""Fields of which any one shows that the launcher was used; other launchers need both rank and world size."""

_SLURM_TASKS = "SLURM_STEP_TASKS_PER_NODE"
_MOST_NODES = 2**20

_REMEDY = "start the ranks with torchrun, or pass identity="


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Place of a process in its job.

    Attributes:
        rank, world_size: number among all ranks, and number of ranks.
        local_rank, local_world_size: the same within its node; nodes may differ in size.
        node_rank, nodes: number of its node, and number of nodes.
        hostname: of this machine.
        source: origin of the values: ``torch.distributed``, ``torchrun``, ``Slurm``, …, or ``default``.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: int
    hostname: str
    source: str = "default"

    @property
    def is_node_leader(self) -> bool:
        """Whether it is its node's first rank, which performs the work that is done once per node."""
        return self.local_rank == 0

    def identity(self, role: str | None = None) -> RankIdentity:
        """Return the identity for packets, with the diagnosis role if one is declared."""
        return RankIdentity(self.rank, self.local_rank, self.node_rank, self.hostname, role)


def place_here() -> RankPlace:
    """Return this process's place, from the present state of torch.distributed and the environment.

    Raises:
        IdentityError: see ``resolve_place``.
    """
    rank = distributed_rank()
    distributed = None if rank is None else (rank, distributed_world_size())
    return resolve_place(os.environ, distributed, socket.gethostname())


def world_size_here() -> int:
    """Return the number of ranks, which the environment may state where it contradicts itself about places.

    Raises:
        IdentityError: a value is not a number.
    """
    try:
        return place_here().world_size
    except IdentityError:
        sizes = (source.values.get("world_size") for source in _sources(os.environ, None))
        return next((size for size in sizes if size is not None), 1)


def identity_after_change(before: RankIdentity) -> RankIdentity:
    """Return this rank's identity after torch.distributed was initialised again, in the same process.

    If the environment still describes the earlier world, only the rank's number changes.
    """
    try:
        return place_here().identity(before.role)
    except IdentityError:
        rank = distributed_rank()
        return before if rank is None else replace(before, rank=rank)


def resolve_place(
    environ: Mapping[str, str], distributed: tuple[int, int] | None, hostname: str
) -> RankPlace:
    """Return a process's complete place in its job.

    Args:
        environ: its environment.
        distributed: rank and world size in torch.distributed, None if it is not initialised.

    Raises:
        IdentityError: values are not numbers, contradict each other, or do not determine a rank's node; the
            message names them.
    """
    sources = list(_sources(environ, distributed))
    if not sources:
        return RankPlace(0, 1, 0, 1, 0, 1, hostname)
    first, *others = sources
    known = dict(first.values)
    names = list(first.names)
    launchers = []
    for other in others:
        if other.agrees(known):
            known = other.values | known
            names += other.names
        elif other.source == "torchrun":
            raise IdentityError(f"{_listed(first.names)} contradict {_listed(other.names)}: {_REMEDY}")
        else:
            launchers.append(other)
    is_open = not {"local_rank", "node_rank"} <= known.keys()
    for other in launchers:
        if is_open and other.values.get("nodes", 1) > 1 and known.get("world_size", 1) > 1:
            raise IdentityError(
                f"{_listed(other.names)} do not count the ranks of {_listed(names)}, so it is unknown which "
                f"ranks are on which node: {_REMEDY}"
            )
    return _Layout(known, names).place(hostname, first.source)


@dataclass(frozen=True, slots=True)
class _Source:
    """One source's values by field, and the names and values of its variables."""

    source: str
    values: dict[str, int]
    names: tuple[str, ...]

    def agrees(self, known: Mapping[str, int]) -> bool:
        """Return whether it describes the same ranks."""
        both = self.values.keys() & known.keys() & {"rank", "world_size"}
        return all(self.values[field] == known[field] for field in both)


def _sources(environ: Mapping[str, str], distributed: tuple[int, int] | None) -> Iterator[_Source]:
    if distributed is not None:
        rank, world_size = distributed
        yield _Source(
            TORCH, {"rank": rank, "world_size": world_size}, (f"{TORCH}'s rank {rank} of {world_size}",)
        )
    for launcher, variables in _LAUNCHERS.items():
        chosen = {
            field: name
            for field, candidates in zip(_FIELDS, variables, strict=True)
            for name in [next((name for name in candidates if name in environ), None)]
            if name is not None
        }
        enough = _SUFFICIENT.get(launcher)
        if not (chosen.keys() & enough if enough else {"rank", "world_size"} <= chosen.keys()):
            continue
        values = {field: _number(name, environ[name]) for field, name in chosen.items()}
        names = tuple(f"{name}={values[field]}" for field, name in chosen.items())
        if launcher == "Slurm" and _SLURM_TASKS in environ:
            sizes = tasks_per_node(environ[_SLURM_TASKS])
            if values.get("node_rank", 0) < len(sizes):
                values["local_world_size"] = sizes[values.get("node_rank", 0)]
                names += (f"{_SLURM_TASKS}={environ[_SLURM_TASKS]}",)
        yield _Source(launcher, values, names)


def _number(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise IdentityError(f"the environment variable {name}={text!r} is not a number") from None
    if value < 0:
        raise IdentityError(f"the environment variable {name}={text} must not be negative")
    return value


def tasks_per_node(text: str) -> tuple[int, ...]:
    """Parse Slurm's short form of the number of tasks on each node: ``4(x2),3`` is 4, 4, 3.

    Raises:
        IdentityError: the text has another form.
    """
    sizes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,7})\))?", part.strip())
        times = int(match[2] or 1) if match else 0
        if match is None or len(sizes) + times > _MOST_NODES:
            raise IdentityError(
                f"the environment variable {_SLURM_TASKS}={text[:80]!r} is not of the form 4(x2),3"
            )
        sizes += [int(match[1])] * times
    return tuple(sizes)


class _Layout:
    """Derivation of a rank's place from the known values, or of their contradiction."""

    def __init__(self, known: Mapping[str, int], names: Sequence[str]) -> None:
        self._known = known
        self._names = names

    def place(self, hostname: str, source: str) -> RankPlace:
        """Return the complete place.

        Raises:
            IdentityError: the values contradict each other, or one is missing.
        """
        known = self._known
        world_size = known.get("world_size", 1)
        rank = self._rank(world_size)
        local_world_size = self._local_world_size(rank, world_size)
        nodes = known.get("nodes", max(-(-world_size // max(local_world_size, 1)), 1))
        node_rank = self._node_rank(rank, local_world_size, nodes)
        local_rank = known.get("local_rank", rank - node_rank * local_world_size)
        self._check(rank < world_size, f"rank {rank} is not below the world size {world_size}")
        self._check(
            0 <= local_rank < local_world_size <= world_size,
            f"local rank {local_rank} of {local_world_size} does not fit a world of {world_size}",
        )
        self._check(node_rank < nodes, f"node {node_rank} is not below the number of nodes, {nodes}")
        self._check(
            local_world_size == world_size if nodes == 1 else world_size - local_world_size >= nodes - 1,
            f"{world_size} ranks cannot be on {nodes} nodes with {local_world_size} of them on this one",
        )
        return RankPlace(
            rank, world_size, local_rank, local_world_size, node_rank, nodes, hostname, source
        )  # fmt: skip

    def _rank(self, world_size: int) -> int:
        known = self._known
        if "rank" in known:
            return known["rank"]
        node_rank, local_rank = known.get("node_rank", 0), known.get("local_rank", 0)
        if node_rank == 0 or world_size == 1:
            return local_rank
        size = known.get("local_world_size") or world_size // max(known.get("nodes", 0), 1)
        self._check("nodes" in known or "local_world_size" in known, "RANK is missing")
        return node_rank * size + local_rank

    def _local_world_size(self, rank: int, world_size: int) -> int:
        known = self._known
        if "local_world_size" in known:
            return known["local_world_size"]
        if "nodes" in known:
            nodes = max(known["nodes"], 1)
            self._check(
                world_size % nodes == 0, f"{nodes} nodes of different sizes: LOCAL_WORLD_SIZE is missing"
            )
            return world_size // nodes
        local_rank = known.get("local_rank", rank)
        if known.get("node_rank") and rank > local_rank:
            return (rank - local_rank) // known["node_rank"]
        # No source has nodes, so there is one.
        self._check(rank == local_rank, "LOCAL_WORLD_SIZE is missing, since not all ranks are on one node")
        return world_size

    def _node_rank(self, rank: int, local_world_size: int, nodes: int) -> int:
        known = self._known
        if "node_rank" in known:
            return known["node_rank"]
        if nodes == 1:
            return 0
        # MPI does not state it. MPI fills node after node, unless this rank shows otherwise.
        node_rank, local_rank = divmod(rank, max(local_world_size, 1))
        fits = local_rank == known.get("local_rank", local_rank)
        self._check(fits, "the ranks do not fill node after node, so this one's node is unknown")
        return node_rank

    def _check(self, holds: bool, fault: str) -> None:
        if not holds:
            raise IdentityError(f"{_listed(self._names)}: {fault}; {_REMEDY}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def run_id_from_environment() -> str:
    """Return the default name of a run: the scheduler's job, equal on all ranks, else the time."""
    named = [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")]
    for name in named:
        if name not in ("", "none"):
            return printable(name)  # Invalid UTF-8 appears in it as lone surrogates.
    return f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def role_of(roles: str | Mapping[int, str] | Sequence[str], rank: int) -> str | None:
    """Return a rank's role: the given one, or its entry among all ranks'.

    Raises:
        RecorderError: there is no entry for this rank.
    """
    if isinstance(roles, str):
        return roles
    if isinstance(roles, Mapping):
        return roles.get(rank)
    if rank >= len(roles):
        raise RecorderError(f"roles has {len(roles)} entries, none for rank {rank}")
    return roles[rank]
