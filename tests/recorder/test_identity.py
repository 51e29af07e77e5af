"""Where a process stands in its job is worked out whole, whatever started it, or what is wrong is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.errors import IdentityError, RecorderError
from sfapp.model import RankIdentity
from sfapp.recorder.identity import RankPlace, resolve_place, tasks_per_node
from tests.recorder.clocked_recorder import Clock, only_window, recorder, train

Environment = dict[str, str]

EVEN = st.builds(lambda nodes, size: (size,) * nodes, st.integers(1, 6), st.integers(1, 9))
UNEVEN = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(tuple)
JOBS = st.one_of(EVEN, UNEVEN)
"""How many ranks each node has."""


def ranks_of(sizes: tuple[int, ...]) -> Iterator[RankPlace]:
    """Every rank of a job, node by node."""
    rank = 0
    for node, size in enumerate(sizes):
        for local in range(size):
            yield RankPlace(rank, sum(sizes), local, size, node, len(sizes), "host")
            rank += 1


def environment(**values: int | str) -> Environment:
    return {name: str(value) for name, value in values.items()}


def torchrun(place: RankPlace) -> Environment:
    return environment(
        RANK=place.rank,
        WORLD_SIZE=place.world_size,
        LOCAL_RANK=place.local_rank,
        LOCAL_WORLD_SIZE=place.local_world_size,
        GROUP_RANK=place.node_rank,
        GROUP_WORLD_SIZE=place.nodes,
    )


def short_form(sizes: tuple[int, ...]) -> str:
    """As Slurm writes it: 4(x2),3."""
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    return ",".join(f"{size}(x{times})" if times > 1 else str(size) for size, times in runs)


def slurm(place: RankPlace, sizes: tuple[int, ...]) -> Environment:
    return environment(
        SLURM_PROCID=place.rank,
        SLURM_STEP_NUM_TASKS=place.world_size,
        SLURM_LOCALID=place.local_rank,
        SLURM_NODEID=place.node_rank,
        SLURM_STEP_NUM_NODES=place.nodes,
        SLURM_STEP_TASKS_PER_NODE=short_form(sizes),
    )


def open_mpi(place: RankPlace) -> Environment:
    return environment(
        OMPI_COMM_WORLD_RANK=place.rank,
        OMPI_COMM_WORLD_SIZE=place.world_size,
        OMPI_COMM_WORLD_LOCAL_RANK=place.local_rank,
        OMPI_COMM_WORLD_LOCAL_SIZE=place.local_world_size,
    )


def hydra(place: RankPlace) -> Environment:
    return environment(
        PMI_RANK=place.rank,
        PMI_SIZE=place.world_size,
        MPI_LOCALRANKID=place.local_rank,
        MPI_LOCALNRANKS=place.local_world_size,
    )


def placed(environ: Mapping[str, str], distributed: tuple[int, int] | None = None) -> tuple[object, ...]:
    """Return everything but the source."""
    found = resolve_place(environ, distributed, "host")
    return (
        found.rank,
        found.world_size,
        found.local_rank,
        found.local_world_size,
        found.node_rank,
        found.nodes,
    )


def whole(place: RankPlace) -> tuple[object, ...]:
    return (
        place.rank,
        place.world_size,
        place.local_rank,
        place.local_world_size,
        place.node_rank,
        place.nodes,
    )


@given(sizes=JOBS, initialised=st.booleans())
def test_torchrun_s_ranks_are_placed_on_nodes_of_any_sizes(sizes: tuple[int, ...], initialised: bool) -> None:
    for place in ranks_of(sizes):
        distributed = (place.rank, place.world_size) if initialised else None
        assert placed(torchrun(place), distributed) == whole(place)


@given(sizes=JOBS, initialised=st.booleans())
def test_slurm_s_tasks_are_placed_on_nodes_of_any_sizes(sizes: tuple[int, ...], initialised: bool) -> None:
    for place in ranks_of(sizes):
        distributed = (place.rank, place.world_size) if initialised else None
        assert placed(slurm(place, sizes), distributed) == whole(place)


@given(sizes=EVEN, launcher=st.sampled_from([open_mpi, hydra]))
def test_mpi_s_processes_are_placed_node_by_node(
    sizes: tuple[int, ...], launcher: Callable[[RankPlace], Environment]
) -> None:
    for place in ranks_of(sizes):
        assert placed(launcher(place)) == whole(place)


def test_mpi_s_processes_that_go_round_the_nodes_are_refused_before_they_are_taken_for_others() -> None:
    nodes, size = 2, 4
    around = [RankPlace(rank, 8, rank // nodes, size, rank % nodes, nodes, "host") for rank in range(8)]
    with pytest.raises(IdentityError, match=r"OMPI_COMM_WORLD_LOCAL_RANK=0.*do not fill node after node"):
        [resolve_place(open_mpi(place), None, "host") for place in around]


@given(sizes=JOBS)
def test_torchrun_started_once_a_node_by_slurm_counts_ranks_not_launchers(sizes: tuple[int, ...]) -> None:
    for place in ranks_of(sizes):
        around = slurm(
            RankPlace(place.node_rank, place.nodes, 0, 1, place.node_rank, place.nodes, ""),
            (1,) * place.nodes,
        )
        assert placed(around | torchrun(place)) == whole(place)


@given(sizes=EVEN)
def test_ranks_exported_from_slurm_s_are_completed_by_slurm(sizes: tuple[int, ...]) -> None:
    for place in ranks_of(sizes):
        exported = environment(RANK=place.rank, WORLD_SIZE=place.world_size)
        assert placed(slurm(place, sizes) | exported) == whole(place)


@given(sizes=EVEN)
def test_leaders_are_one_a_node_and_one_a_job(sizes: tuple[int, ...]) -> None:
    found = [resolve_place(torchrun(place), None, "host") for place in ranks_of(sizes)]
    assert sum(place.rank == 0 for place in found) == 1
    leaders = [place.node_rank for place in found if place.is_node_leader]
    assert leaders == list(range(len(sizes)))


@given(
    sizes=JOBS.filter(lambda sizes: sum(sizes) > 1),
    name=st.sampled_from(["RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"]),
    data=st.data(),
)
def test_a_value_that_cannot_be_is_named_with_its_variable(
    sizes: tuple[int, ...], name: str, data: st.DataObject
) -> None:
    place = data.draw(st.sampled_from(list(ranks_of(sizes))))
    environ = torchrun(place)
    wrong = 0 if name == "WORLD_SIZE" else place.world_size + data.draw(st.integers(0, 99))
    environ[name] = str(wrong)
    with pytest.raises(IdentityError, match=f"{name}={wrong}\\b"):
        resolve_place(environ, None, "host")


def test_a_process_of_its_own_is_a_job_of_one() -> None:
    place = resolve_place({}, None, "here")
    assert place == RankPlace(0, 1, 0, 1, 0, 1, "here")
    assert place.is_node_leader
    assert place.source == "default"


def test_processes_that_were_spawned_on_one_machine_are_ranks_of_one_node() -> None:
    assert placed({}, (2, 4)) == (2, 4, 2, 4, 0, 1)


def test_a_spawning_process_in_a_slurm_step_of_one_task_is_one_node() -> None:
    around = slurm(RankPlace(0, 1, 0, 1, 0, 1, ""), (1,))
    assert placed(around, (2, 4)) == (2, 4, 2, 4, 0, 1)


def test_spawned_processes_on_several_nodes_have_unknown_places() -> None:
    around = slurm(RankPlace(1, 2, 0, 1, 1, 2, ""), (1, 1))
    with pytest.raises(IdentityError, match=r"SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=2.*rank 6 of 8.*torchrun"):
        resolve_place(around, (6, 8), "host")


def test_a_batch_script_is_one_process_whatever_slurm_would_start() -> None:
    assert placed(environment(SLURM_PROCID=0, SLURM_NTASKS=8, SLURM_NODEID=0)) == (0, 1, 0, 1, 0, 1)


def test_lightning_gives_no_rank_before_torch_does() -> None:
    environ = environment(WORLD_SIZE=4, NODE_RANK=0, LOCAL_RANK=3)
    assert placed(environ) == (3, 4, 3, 4, 0, 1)
    assert placed(environ | {"NODE_RANK": "1", "LOCAL_RANK": "1"}, (3, 4)) == (3, 4, 1, 2, 1, 2)


def test_torch_distributed_and_torchrun_must_agree() -> None:
    environ = torchrun(RankPlace(3, 8, 3, 4, 0, 2, ""))
    with pytest.raises(IdentityError, match=r"rank 2 of 8 contradict RANK=3, WORLD_SIZE=8"):
        resolve_place(environ, (2, 8), "host")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "three"}, "RANK='three' is not a number"),
        ({"RANK": "-1"}, "RANK=-1 must not be negative"),
        ({"RANK": "1"}, "RANK=1: rank 1 is not below the world size 1"),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, "LOCAL_WORLD_SIZE is missing"),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "8", "NODE_RANK": "1"}, "RANK is missing"),
        (
            {"RANK": "0", "WORLD_SIZE": "7", "NNODES": "2"},
            "2 nodes of different sizes: LOCAL_WORLD_SIZE is missing",
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_RANK": "3",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            },
            "OMPI_COMM_WORLD_RANK=1.*do not fill node after node",
        ),
    ],
)
def test_an_unknown_place_lists_what_is_missing(environ: Environment, message: str) -> None:
    with pytest.raises(IdentityError, match=message):
        resolve_place(environ, None, "host")


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=40).map(tuple))
def test_slurm_s_short_form_is_read_back(sizes: tuple[int, ...]) -> None:
    assert tasks_per_node(short_form(sizes)) == sizes


@pytest.mark.parametrize("text", ["", "4(x", "a", "4,,3", "4(x9999999),4(x9999999)"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(IdentityError, match="not of the form"):
        tasks_per_node(text)


NAMES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NNODES"),
    *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"),
)


@given(
    environ=st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 9).map(str)),
    distributed=st.none() | st.tuples(st.integers(0, 3), st.integers(4, 8)),
)
def test_a_place_is_possible_or_refused_whatever_the_environment(
    environ: Environment, distributed: tuple[int, int] | None
) -> None:
    try:
        place = resolve_place(environ, distributed, "host")
    except IdentityError:
        return
    assert 0 <= place.rank < place.world_size
    assert 0 <= place.local_rank < place.local_world_size <= place.world_size
    assert 0 <= place.node_rank < place.nodes <= place.world_size
    if distributed is not None:
        assert (place.rank, place.world_size) == distributed


def test_a_given_identity_is_recorded_where_the_environment_contradicts_itself_about_places(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": 1, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 3, "GROUP_WORLD_SIZE": 1}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(IdentityError, match="or pass identity="):
        recorder(tmp_path, clock)
    with recorder(tmp_path, clock, identity=RankIdentity(1, 0, 1, "node-1")) as perf:
        train(perf, clock)
    window = only_window(tmp_path)
    assert window.manifest.world_size == 4
    place = window.ranks.identity(0)
    assert (place.rank, place.node_rank) == (1, 1)


def test_an_identity_beyond_the_number_of_ranks_is_refused_before_it_loses_a_window(
    tmp_path: Path, clock: Clock
) -> None:
    with pytest.raises(RecorderError, match="rank 1, the environment 1 ranks: set WORLD_SIZE"):
        recorder(tmp_path, clock, identity=RankIdentity(1, 1, 0, "node-0"))
