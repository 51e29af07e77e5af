"""Who this process is in its job: where it stands among the ranks and nodes, worked out once.

What torch.distributed says counts before all else, where it is initialised; then torchrun's variables (and
those of launchers that set the same), Slurm's, MPI's. What the first of them leaves open is filled from the
next that agrees with it on rank and world size: under ``srun torchrun`` Slurm counts launchers, not ranks.
Where nobody says how the ranks are spread, they are on one node.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sfapp.errors import IdentityError, RecorderError
from sfapp.model.window import RankIdentity
from sfapp.recorder.transport.rank_group import distributed_rank, distributed_world_size

TORCH = "torch.distributed"

_FIELDS = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "nodes")

# Per launcher and field: the variables that say it, the first that is set counts. torchrun's come first; the
# others are Lightning's and Ray's (NODE_RANK), DeepSpeed's (LOCAL_SIZE, CROSS_*).
_LAUNCHERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "torchrun": (
        ("RANK",),
        ("WORLD_SIZE",),
        ("LOCAL_RANK",),
        ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"),
        ("GROUP_RANK", "NODE_RANK", "CROSS_RANK"),
        ("GROUP_WORLD_SIZE", "NNODES", "CROSS_SIZE"),
    ),
    # Those of the step: a batch script has SLURM_PROCID and SLURM_NTASKS too, and is one process.
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
_ENOUGH: Mapping[str, frozenset[str]] = {"torchrun": frozenset({"rank", "world_size", "local_rank"})}
"""A launcher is there once one of these is said; by others than torchrun, both rank and world size."""

_SLURM_TASKS = "SLURM_STEP_TASKS_PER_NODE"
_MOST_NODES = 2**20

HOW_TO_SAY = "start the ranks with torchrun, or pass identity="


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands in its job.

    Attributes:
        rank: among all ranks. local_rank: among those of its node. node_rank: its node among the nodes.
        world_size, local_world_size, nodes: how many of each there are; nodes may differ in size.
        hostname: of this machine, as it calls itself.
        source: who says so: ``torch.distributed``, ``torchrun``, ``Slurm``, …, or ``default``.
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
    def is_global_leader(self) -> bool:
        """Whether it is the one process of the job that does what is done once a job."""
        return self.rank == 0

    @property
    def is_node_leader(self) -> bool:
        """Whether it is the one process of its node that does what is done once a node."""
        return self.local_rank == 0

    def identity(self, role: str | None = None) -> RankIdentity:
        """What packets say of it, with its diagnosis role where one is declared."""
        return RankIdentity(self.rank, self.local_rank, self.node_rank, self.hostname, role)


def place_here() -> Place:
    """Where this process stands, from torch.distributed as it is now and the environment.

    Raises:
        IdentityError: see ``resolve_place``.
    """
    rank = distributed_rank()
    distributed = None if rank is None else (rank, distributed_world_size())
    return resolve_place(os.environ, distributed, socket.gethostname())


def identity_after_change(before: RankIdentity) -> RankIdentity:
    """Who this rank is once torch.distributed has other ranks, in the same process: its variables may still
    be those of the world that was, and then only its number is another."""
    try:
        return place_here().identity(before.role)
    except IdentityError:
        rank = distributed_rank()
        return before if rank is None else replace(before, rank=rank)


def resolve_place(environ: Mapping[str, str], distributed: tuple[int, int] | None, hostname: str) -> Place:
    """Where a process stands in its job, whole.

    Args:
        environ: its environment.
        distributed: rank and world size as torch.distributed says, None where it is not initialised.

    Raises:
        IdentityError: values are no numbers, contradict each other, or leave open on which node a rank is;
            the message names them.
    """
    said = list(_said(environ, distributed))
    if not said:
        return Place(0, 1, 0, 1, 0, 1, hostname)
    first, *others = said
    known = dict(first.values)
    names = list(first.names)
    launchers = []
    for other in others:
        if other.agrees(known):
            known = other.values | known
            names += other.names
        elif other.source == "torchrun":
            raise IdentityError(f"{_listed(first.names)} contradict {_listed(other.names)}: {HOW_TO_SAY}")
        else:
            launchers.append(other)
    is_open = not {"local_rank", "node_rank"} <= known.keys()
    for other in launchers:
        if is_open and other.values.get("nodes", 1) > 1 and known.get("world_size", 1) > 1:
            raise IdentityError(
                f"{_listed(other.names)} count something else than the ranks of {_listed(names)}, so that it "
                f"cannot be known which ranks are on which node: {HOW_TO_SAY}"
            )
    return _Layout(known, names).place(hostname, first.source)


@dataclass(frozen=True, slots=True)
class _Said:
    """What one source says: values by field, and as they are called there."""

    source: str
    values: dict[str, int]
    names: tuple[str, ...]

    def agrees(self, known: Mapping[str, int]) -> bool:
        """Whether it speaks of the same ranks."""
        both = self.values.keys() & known.keys() & {"rank", "world_size"}
        return all(self.values[field] == known[field] for field in both)


def _said(environ: Mapping[str, str], distributed: tuple[int, int] | None) -> Iterator[_Said]:
    if distributed is not None:
        rank, world_size = distributed
        yield _Said(
            TORCH, {"rank": rank, "world_size": world_size}, (f"{TORCH}'s rank {rank} of {world_size}",)
        )
    for launcher, variables in _LAUNCHERS.items():
        chosen = {
            field: name
            for field, candidates in zip(_FIELDS, variables, strict=True)
            for name in [next((name for name in candidates if name in environ), None)]
            if name is not None
        }
        enough = _ENOUGH.get(launcher)
        if not (chosen.keys() & enough if enough else {"rank", "world_size"} <= chosen.keys()):
            continue
        values = {field: _number(name, environ[name]) for field, name in chosen.items()}
        names = tuple(f"{name}={values[field]}" for field, name in chosen.items())
        if launcher == "Slurm" and _SLURM_TASKS in environ:
            sizes = tasks_per_node(environ[_SLURM_TASKS])
            if values.get("node_rank", 0) < len(sizes):
                values["local_world_size"] = sizes[values.get("node_rank", 0)]
                names += (f"{_SLURM_TASKS}={environ[_SLURM_TASKS]}",)
        yield _Said(launcher, values, names)


def _number(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise IdentityError(f"the environment says {name}={text!r}, which is not a number") from None
    if value < 0:
        raise IdentityError(f"the environment says {name}={text}, which must not be negative")
    return value


def tasks_per_node(text: str) -> tuple[int, ...]:
    """How many tasks each node has, from Slurm's short form: ``4(x2),3`` is 4, 4, 3.

    Raises:
        IdentityError: it is of another form.
    """
    sizes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,7})\))?", part.strip())
        times = int(match[2] or 1) if match else 0
        if match is None or len(sizes) + times > _MOST_NODES:
            raise IdentityError(f"the environment says {_SLURM_TASKS}={text[:80]!r}, not like 4(x2),3")
        sizes += [int(match[1])] * times
    return tuple(sizes)


class _Layout:
    """Where a rank stands, from what is known: the rest follows, or the contradiction is named."""

    def __init__(self, known: Mapping[str, int], names: Sequence[str]) -> None:
        self._known = known
        self._names = names

    def place(self, hostname: str, source: str) -> Place:
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
        return Place(
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
        # Nobody speaks of nodes: there is one.
        self._check(rank == local_rank, "LOCAL_WORLD_SIZE is missing, for not all ranks are on one node")
        return world_size

    def _node_rank(self, rank: int, local_world_size: int, nodes: int) -> int:
        known = self._known
        if "node_rank" in known:
            return known["node_rank"]
        if nodes == 1:
            return 0
        # MPI does not say: node after node is how it fills them, unless a rank shows that it did not.
        node_rank, local_rank = divmod(rank, max(local_world_size, 1))
        fits = local_rank == known.get("local_rank", local_rank)
        self._check(fits, "the ranks do not fill node after node, so that this one's node is not known")
        return node_rank

    def _check(self, holds: bool, fault: str) -> None:
        if not holds:
            raise IdentityError(f"{_listed(self._names)}: {fault}; {HOW_TO_SAY}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def run_id_from_environment() -> str:
    """The name of a run that was given none: the scheduler's, the same on all ranks, else the time."""
    named = [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")]
    for name in named:
        if name not in ("", "none"):
            return name
    return f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def role_of(roles: str | Mapping[int, str] | Sequence[str], rank: int) -> str | None:
    """A rank's role: the one given, or its entry among every rank's.

    Raises:
        RecorderError: the entries end before this rank.
    """
    if isinstance(roles, str):
        return roles
    if isinstance(roles, Mapping):
        return roles.get(rank)
    if rank >= len(roles):
        raise RecorderError(f"roles has {len(roles)} entries, none for rank {rank}")
    return roles[rank]
