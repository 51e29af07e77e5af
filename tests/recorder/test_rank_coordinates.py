"""A rank's place in the parallel layout, found in a device mesh or in Megatron's groups."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from sfapp.errors import RecorderError
from sfapp.model import Accumulation, RankIdentity
from sfapp.packets import read_window
from sfapp.packets.window_rows import WindowSchema
from sfapp.recorder import Recorder
from sfapp.recorder.integrations.megatron import StragglerDetector, layout
from sfapp.recorder.rank_coordinates import coordinates_of
from tests.builders import DATA


@pytest.fixture
def eight_ranks() -> Iterator[None]:
    """This process as rank 5 of 8, whose messages go nowhere."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=8)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("eight_ranks")
def test_the_dimensions_of_a_mesh_are_known_by_their_names() -> None:
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    assert coordinates_of(mesh) == {"pp": 1, "dp": 0, "tp": 1}


@pytest.mark.usefixtures("eight_ranks")
def test_replicas_and_shards_are_data_parallel_together_and_other_names_are_left_out() -> None:
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp_replicate", "dp_shard", "mine"))
    assert coordinates_of(mesh) == {"dp": 2}


@pytest.mark.usefixtures("eight_ranks")
def test_a_mesh_without_known_names_or_without_this_rank_is_refused() -> None:
    with pytest.raises(RecorderError, match=r"known name \(its names: rows, columns\)"):
        coordinates_of(init_device_mesh("cpu", (4, 2), mesh_dim_names=("rows", "columns")))
    with pytest.raises(RecorderError, match=r"known name \(its names: none\)"):
        coordinates_of(init_device_mesh("cpu", (8,)))
    with pytest.raises(RecorderError, match="this rank is not in the device mesh"):
        coordinates_of(DeviceMesh("cpu", [0, 1, 2, 3], mesh_dim_names=("dp",)))


def megatron(is_ready: bool = True, **rank_in: int) -> ModuleType:
    """Megatron's module of its groups, as far as the recorder reads it, for a rank with these places."""
    state = ModuleType("megatron.core.parallel_state")
    vars(state).update({f"get_{name}_rank": lambda place=place: place for name, place in rank_in.items()})
    vars(state)["model_parallel_is_initialized"] = lambda: is_ready
    return state


def test_stimer_declares_the_place_in_megatron_s_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = megatron(data_parallel=3, pipeline_model_parallel=1, tensor_model_parallel=0)
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    assert layout() == {"dp": 3, "pp": 1, "tp": 0}
    with Recorder(tmp_path, run_id="run", window_steps=2) as perf:
        stimer = StragglerDetector(perf)
        with perf.step(), stimer(bdata=True):
            pass
    window = read_window(tmp_path)
    assert window.layout == {"dp": (3,), "pp": (1,), "tp": (0,)}
    assert window.manifest.faults == ()


def test_a_declared_layout_is_not_replaced_by_megatron_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", megatron(data_parallel=3))
    with Recorder(tmp_path, run_id="run", layout={"dp": 7}) as perf:
        StragglerDetector(perf)
        assert perf.coordinates == {"dp": 7}


def test_without_megatron_or_before_its_groups_exist_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert layout() == {}
    state = megatron(is_ready=False, data_parallel=3)
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    assert layout() == {}


def test_a_schema_gives_its_coordinates_to_the_rank_of_each_window() -> None:
    schema = WindowSchema.of((DATA,), Accumulation(), "dp", {"dp": 2})
    found = schema.identify(RankIdentity(5, 1, 1, "node-1"))
    assert found == RankIdentity(5, 1, 1, "node-1", "dp", {"dp": 2})
