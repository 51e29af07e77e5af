"""How a job lies on its nodes: what ``sfapp run`` was told, and else what the scheduler says."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from sfapp.errors import RunError

LOOPBACK = "127.0.0.1"
MASTER_PORT = 29500
AGGREGATOR_OFFSET = 265
"""From the master's port to the aggregator's: 29765 where the master has torchrun's default."""

_SLURM_PORTS = 20_000, 8_000  # below those that systems hand out themselves, together with the offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """torchrun's options; None is left to torchrun.

    Attributes:
        nnodes: how many nodes, or ``MIN:MAX``.
        node_rank: which of them this is.
        master_addr, master_port: where they meet.
    """

    nproc_per_node: str | None = None
    nnodes: str | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None

    @property
    def nodes(self) -> int:
        """How many nodes at most."""
        most = (self.nnodes or "1").rpartition(":")[2]
        return int(most) if most.isdecimal() else 1

    def options(self) -> list[str]:
        """As arguments of torchrun; empty where it is not needed."""
        given = {
            "--nproc-per-node": self.nproc_per_node,
            "--nnodes": self.nnodes,
            "--node-rank": self.node_rank,
            "--master-addr": self.master_addr,
            "--master-port": self.master_port,
        }
        return [f"{option}={value}" for option, value in given.items() if value is not None]


def resolve(told: Layout, environ: Mapping[str, str]) -> Layout:
    """What was not told, from torchrun's own variables (``PET_NNODES``, …) and then from Slurm's, those of
    the step that ``srun`` made.

    Raises:
        RunError: there are several nodes, and it is not known which of them this is or where they meet; or
            Slurm started several processes a node, or says what cannot be read.
    """
    slurm = _of_slurm(environ)
    nnodes = told.nnodes or environ.get("PET_NNODES") or slurm.nnodes
    same = nnodes == slurm.nnodes
    layout = Layout(
        nproc_per_node=told.nproc_per_node or environ.get("PET_NPROC_PER_NODE"),
        nnodes=nnodes,
        node_rank=_first(
            told.node_rank, _number(environ, "PET_NODE_RANK"), slurm.node_rank if same else None
        ),
        master_addr=told.master_addr
        or environ.get("PET_MASTER_ADDR")
        or (environ.get("MASTER_ADDR") or slurm.master_addr if nnodes is not None else None),
        master_port=_first(
            told.master_port,
            _number(environ, "PET_MASTER_PORT"),
            _first(_number(environ, "MASTER_PORT"), slurm.master_port) if nnodes is not None else None,
        ),
    )
    if layout.nodes > 1 and not environ.get("PET_RDZV_ENDPOINT"):
        if layout.node_rank is None:
            raise RunError(
                f"which of the {layout.nodes} nodes is this? Say --node-rank K on each, or start "
                "`sfapp run` on each by srun, or set PET_NODE_RANK"
            )
        if layout.master_addr is None:
            raise RunError(
                f"where do the {layout.nodes} nodes meet? Say --master-addr HOST of node 0 on each"
            )
    return layout


@dataclass(frozen=True, slots=True)
class Home:
    """Where a job's aggregator is.

    Attributes:
        host: as the other nodes reach it.
        listen: the address that it listens on if it is on this node, else None.
    """

    host: str
    listen: str | None


def aggregator_home(layout: Layout, told: str | None, environ: Mapping[str, str]) -> Home:
    """Where a job's aggregator is: on the node that has the address told, or else on node 0.

    Args:
        told: its host, as the other nodes reach it.
    """
    meeting = environ.get("PET_RDZV_ENDPOINT", "").rpartition(":")[0].strip("[]")
    host = told or layout.master_addr or meeting or LOOPBACK
    own = _own_address(host)
    is_local = own is not None and ipaddress.ip_address(own.partition("%")[0]).is_loopback
    if layout.node_rank is not None and (told is None or (is_local and host in (own, "localhost"))):
        is_here = layout.node_rank == 0
    else:
        is_here = own is not None
    # A name may stand for 127.0.1.1 on the machine that it names; an address may be one that is forwarded.
    known = own if own is not None and (host in (own, "localhost") or not is_local) else "*"
    return Home(host, known if is_here else None)


def _own_address(host: str) -> str | None:
    """The address of this machine that a host stands for; None if it is another machine's, or unknown."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return str(address[0])
    return None


def step_name(environ: Mapping[str, str]) -> str | None:
    """What a scheduler calls this job, the same on all nodes: Slurm's ``JOB.STEP``."""
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    return f"{job}.{step}" if job and step else None


def first_host(nodes: str) -> str:
    """The first of a Slurm list of hosts: ``node[03-05,9],login`` is node03.

    Raises:
        RunError: it is of another form.
    """
    match = re.match(r"([A-Za-z0-9._-]+)(?:\[([0-9]+)[-,0-9]*\]([A-Za-z0-9._-]*))?(?=,|$)", nodes)
    if match is None:
        raise RunError(f"SLURM_STEP_NODELIST={nodes[:80]!r} cannot be read: say --master-addr")
    return match[1] + (match[2] or "") + (match[3] or "")


def _of_slurm(environ: Mapping[str, str]) -> Layout:
    nodes = _number(environ, "SLURM_STEP_NUM_NODES") or 1
    if nodes < 2:
        return Layout()
    tasks = _number(environ, "SLURM_STEP_NUM_TASKS") or nodes
    if tasks != nodes:
        raise RunError(
            f"srun has started {tasks} processes on {nodes} nodes: sfapp run starts the ranks itself, so "
            "start one of it a node (srun --ntasks-per-node=1), and say --nproc-per-node"
        )
    base, many = _SLURM_PORTS
    hosts = environ.get("SLURM_STEP_NODELIST", "")
    return Layout(
        nnodes=str(nodes),
        node_rank=_number(environ, "SLURM_NODEID"),
        master_addr=first_host(hosts) if hosts else None,
        master_port=base + (_number(environ, "SLURM_JOB_ID") or 0) % many,
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    try:
        return int(text) if text else None
    except ValueError:
        raise RunError(f"the environment says {name}={text[:80]!r}, which is not a number") from None
