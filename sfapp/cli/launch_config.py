"""Resolve how a job is laid out on its nodes, from the options of ``sfapp run`` and the scheduler's
variables."""

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
"""Offset of the aggregator's port from the master's: 29765 for torchrun's default master port."""

# With the offset added, these stay below the ports that operating systems assign themselves.
_SLURM_FIRST_PORT, _SLURM_PORTS = 20_000, 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Launch options of torchrun; None leaves the choice to torchrun.

    Attributes:
        nproc_per_node: number of processes on this node, or ``gpu``, ``cpu``, ``auto``.
        nnodes: number of nodes, or ``MIN:MAX``.
        node_rank: rank of this node.
        master_addr, master_port: address of the rendezvous on node 0.
    """

    nproc_per_node: str | None = None
    nnodes: str | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None

    @property
    def nodes(self) -> int:
        """Return the largest number of nodes."""
        most = (self.nnodes or "1").rpartition(":")[2]
        return int(most) if most.isdecimal() else 1

    def options(self) -> list[str]:
        """Return the arguments of torchrun; empty if torchrun is not needed."""
        given = {
            "--nproc-per-node": self.nproc_per_node,
            "--nnodes": self.nnodes,
            "--node-rank": self.node_rank,
            "--master-addr": self.master_addr,
            "--master-port": self.master_port,
        }
        return [f"{option}={value}" for option, value in given.items() if value is not None]


@dataclass(frozen=True, slots=True)
class LivePorts:
    """Ports of the live services as given in the options.

    Attributes:
        aggregator: None for the default one. relay: None for a private socket. ui: None for no app.
    """

    aggregator: int | None
    relay: int | None
    ui: int | None


def resolve(options: Layout, environ: Mapping[str, str]) -> Layout:
    """Return the layout with missing options taken from the environment.

    Variables of torchrun (``PET_NNODES``, …) take precedence over those of the Slurm step.

    Raises:
        RunError: there are several nodes and this node's rank or the master's address is unknown; or Slurm
            started several processes per node, or a variable cannot be parsed.
    """
    slurm = _slurm_layout(environ)
    nnodes = options.nnodes or environ.get("PET_NNODES") or slurm.nnodes
    same = nnodes == slurm.nnodes
    layout = Layout(
        nproc_per_node=options.nproc_per_node or environ.get("PET_NPROC_PER_NODE"),
        nnodes=nnodes,
        node_rank=_first(
            options.node_rank, _number(environ, "PET_NODE_RANK"), slurm.node_rank if same else None
        ),
        master_addr=options.master_addr
        or environ.get("PET_MASTER_ADDR")
        or (environ.get("MASTER_ADDR") or slurm.master_addr if nnodes is not None else None),
        master_port=_first(
            options.master_port,
            _number(environ, "PET_MASTER_PORT"),
            _first(_number(environ, "MASTER_PORT"), slurm.master_port) if nnodes is not None else None,
        ),
    )
    if layout.nodes > 1 and not environ.get("PET_RDZV_ENDPOINT"):
        if layout.node_rank is None:
            raise RunError(
                f"the rank of this node among {layout.nodes} nodes is unknown: pass --node-rank K on each "
                "node, start `sfapp run` by srun, or set PET_NODE_RANK"
            )
        if layout.master_addr is None:
            raise RunError(
                f"the master of the {layout.nodes} nodes is unknown: pass --master-addr with the address of "
                "node 0 on each node"
            )
    return layout


@dataclass(frozen=True, slots=True)
class AggregatorAddress:
    """Address of a job's aggregator.

    Attributes:
        host: host name or address by which the other nodes reach it.
        listen: address that it listens on if it runs on this node, else None.
    """

    host: str
    listen: str | None


def aggregator_address(
    layout: Layout, requested: str | None, environ: Mapping[str, str]
) -> AggregatorAddress:
    """Return the address of a job's aggregator: the requested host, or else node 0.

    Args:
        requested: host name or address by which the other nodes reach it.
    """
    rendezvous = environ.get("PET_RDZV_ENDPOINT", "").rpartition(":")[0].strip("[]")
    host = requested or layout.master_addr or rendezvous or LOOPBACK
    own = _own_address(host)
    is_local = own is not None and ipaddress.ip_address(own.partition("%")[0]).is_loopback
    if layout.node_rank is not None and (requested is None or (is_local and host in (own, "localhost"))):
        is_here = layout.node_rank == 0
    else:
        is_here = own is not None
    # A machine may resolve its own name to 127.0.1.1, and an address may be a forwarded one: listen on all.
    address = own if own is not None and (host in (own, "localhost") or not is_local) else "*"
    return AggregatorAddress(host, address if is_here else None)


def _own_address(host: str) -> str | None:
    """Return the address of this machine that a host resolves to; None if it is another machine or
    unknown."""
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
    """Return the scheduler's name of this job, the same on all nodes: Slurm's ``JOB.STEP``."""
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    return f"{job}.{step}" if job and step else None


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm host list: node03 for ``node[03-05,9],login``.

    Raises:
        RunError: the list has another form.
    """
    match = re.match(r"([A-Za-z0-9._-]+)(?:\[([0-9]+)[-,0-9]*\]([A-Za-z0-9._-]*))?(?=,|$)", nodes)
    if match is None:
        raise RunError(f"SLURM_STEP_NODELIST={nodes[:80]!r} cannot be parsed: pass --master-addr")
    return match[1] + (match[2] or "") + (match[3] or "")


def _slurm_layout(environ: Mapping[str, str]) -> Layout:
    nodes = _number(environ, "SLURM_STEP_NUM_NODES") or 1
    if nodes < 2:
        return Layout()
    tasks = _number(environ, "SLURM_STEP_NUM_TASKS") or nodes
    if tasks != nodes:
        raise RunError(
            f"srun has started {tasks} processes on {nodes} nodes: sfapp run starts the ranks itself. Start "
            "one process per node (srun --ntasks-per-node=1) and pass --nproc-per-node"
        )
    hosts = environ.get("SLURM_STEP_NODELIST", "")
    return Layout(
        nnodes=str(nodes),
        node_rank=_number(environ, "SLURM_NODEID"),
        master_addr=first_host(hosts) if hosts else None,
        master_port=_SLURM_FIRST_PORT + (_number(environ, "SLURM_JOB_ID") or 0) % _SLURM_PORTS,
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    try:
        return int(text) if text else None
    except ValueError:
        raise RunError(f"environment variable {name}={text[:80]!r} is not a number") from None
