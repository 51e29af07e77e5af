"""What ``sfapp run`` takes from a scheduler, and where it puts the aggregator."""

from __future__ import annotations

import pytest

from sfapp.cli.launch_config import (
    AggregatorAddress,
    Layout,
    aggregator_address,
    first_host,
    resolve,
    step_name,
)
from sfapp.errors import RunError

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "gpu[07-08,11]",
    "SLURM_NODEID": "2",
}


def test_one_node_needs_no_option_and_no_torchrun() -> None:
    assert resolve(Layout(), {"MASTER_ADDR": "somewhere", "MASTER_PORT": "1"}).options() == []


def test_the_layout_of_a_slurm_step_is_read_from_the_environment() -> None:
    layout = resolve(Layout(nproc_per_node="8"), SLURM)
    assert layout.options() == [
        "--nproc-per-node=8",
        "--nnodes=3",
        "--node-rank=2",
        "--master-addr=gpu07",
        "--master-port=24711",
    ]
    assert step_name(SLURM) == "4711.0"


def test_options_take_precedence_over_torchrun_and_torchrun_over_slurm() -> None:
    pet = {"PET_MASTER_ADDR": "there", "PET_MASTER_PORT": "5", "PET_NNODES": "3", "PET_NPROC_PER_NODE": "2"}
    layout = resolve(Layout(master_addr="here", node_rank=0), {**SLURM, **pet})
    assert (layout.master_addr, layout.master_port, layout.node_rank) == ("here", 5, 0)
    assert (layout.nodes, layout.nproc_per_node) == (3, "2")


def test_a_batch_script_without_srun_is_one_node() -> None:
    assert resolve(Layout(), {"SLURM_JOB_ID": "4711", "SLURM_NNODES": "3"}) == Layout()


@pytest.mark.parametrize(
    ("options", "environ", "message"),
    [
        (Layout(nnodes="2", master_addr="node0"), {}, "the rank of this node among 2 nodes is unknown"),
        (Layout(nnodes="2", node_rank=1), {}, "the master of the 2 nodes is unknown"),
        (Layout(nnodes="2", master_addr="node0"), SLURM, "the rank of this node among 2 nodes is unknown"),
        (Layout(), {**SLURM, "SLURM_STEP_NUM_TASKS": "24"}, "Start one process per node"),
        (Layout(), {**SLURM, "SLURM_STEP_NODELIST": "[1-2]"}, "cannot be parsed"),
        (Layout(), {**SLURM, "SLURM_NODEID": "two"}, "SLURM_NODEID='two' is not a number"),
    ],
)
def test_missing_and_contradictory_values_are_reported(
    options: Layout, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(RunError, match=message.replace("?", r"\?")):
        resolve(options, environ)


def test_nodes_with_another_rendezvous_are_left_to_torchrun() -> None:
    layout = resolve(Layout(nnodes="2:4"), {"PET_RDZV_ENDPOINT": "127.0.0.1:29400"})
    assert layout.options() == ["--nnodes=2:4"]
    assert layout.nodes == 4
    assert aggregator_address(layout, None, {"PET_RDZV_ENDPOINT": "127.0.0.1:29400"}).listen == "127.0.0.1"


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("gpu07", "gpu07"), ("a-b1,c2", "a-b1"), ("n[003,5-9]-ib,x", "n003-ib"), ("x[1-2],y", "x1")],
)
def test_the_first_of_slurms_hosts(nodes: str, host: str) -> None:
    assert first_host(nodes) == host


def node(rank: int) -> Layout:
    return Layout(nnodes="2", node_rank=rank, master_addr="127.0.0.1")


@pytest.mark.parametrize(
    ("layout", "options", "home"),
    [
        (node(0), None, AggregatorAddress("127.0.0.1", "127.0.0.1")),
        (node(1), None, AggregatorAddress("127.0.0.1", None)),
        (node(1), "127.0.0.1", AggregatorAddress("127.0.0.1", None)),  # every node has it: node 0's counts
        (node(0), "192.0.2.1", AggregatorAddress("192.0.2.1", None)),
        (
            node(1),
            "192.0.2.1",
            AggregatorAddress("192.0.2.1", None),
        ),  # on neither node: the user starts it there
        (Layout(nnodes="2", node_rank=0, master_addr="192.0.2.1"), None, AggregatorAddress("192.0.2.1", "*")),
    ],
)
def test_one_node_has_the_aggregator(layout: Layout, options: str | None, home: AggregatorAddress) -> None:
    assert aggregator_address(layout, options, {}) == home
