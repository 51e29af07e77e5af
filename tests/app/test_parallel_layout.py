"""The heat map over the parallel layout on the ranks tab of a window page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nicegui import ui
from nicegui.testing import User
from page_elements import chooser, href, plot
from recorded_job import put, waiting_window

from sfapp.model import Window
from sfapp.service.workspace import Workspace
from sfapp.store import Store

MS = 1_000_000
LAYOUT = {
    "dp": tuple(rank % 2 for rank in range(8)),
    "pp": tuple(rank // 4 for rank in range(8)),
    "tp": tuple(rank // 2 % 2 for rank in range(8)),
}


def window(number: int, run_id: str, layout: dict[str, tuple[int, ...]]) -> Window:
    """A window of 8 ranks whose last pipeline stage is late in forward."""
    found = waiting_window(number, {(1, rank): 20 * MS for rank in range(4, 8)}, run_id=run_id)
    # One rank a node, so that no node has the ranks of the stage
    nodes = replace(found.ranks, node_rank=tuple(range(8)), layout=layout)
    return replace(found, ranks=nodes)


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packets of a job whose coordinates are known along three dimensions, along two, and not at all."""
    root = tmp_path_factory.mktemp("layouts")
    put(root, window(0, "three", LAYOUT))
    put(root, window(0, "two", {name: LAYOUT[name] for name in ("dp", "pp")}))
    put(root, window(0, "none", {}))
    return root


@pytest.fixture(scope="module")
def store(packets: Path) -> Iterator[Store]:
    with Store.open([packets], memory=True) as store:
        store.ingest()
        yield store


@pytest.fixture
def workspace(packets: Path, store: Store) -> Workspace:
    """The app's gateway to this job, in the place of the recorded one."""
    return Workspace(store, [packets])


def titles(user: User) -> set[str]:
    """The titles of the plots on the page."""
    return {element.figure["layout"]["meta"]["title"] for element in user.find(kind=ui.plotly).elements}


async def test_the_pattern_of_late_ranks_is_named_above_the_heat_map(user: User) -> None:
    await user.open("/w/two/0?tab=ranks")
    await user.should_see("The last pipeline stage (pp 1, on node-1): ranks 4–7")
    await user.should_see("Parallel layout")  # the verdict, which names the pattern too, is there before
    heat = plot(user, "Parallel layout").figure["data"][0]
    assert heat["x"] == ["pp 0", "pp 1"]
    assert heat["y"] == ["dp 0", "dp 1"]
    assert all(fast.startswith(("−", "±")) and slow.startswith("+") for fast, slow in heat["text"])
    # There is one pair of dimensions, so nothing is to be chosen
    await user.should_not_see(marker="layout-axes")


async def test_rows_and_columns_are_chosen_and_part_of_the_link(user: User) -> None:
    await user.open("/w/three/0?tab=ranks")
    await user.should_see("Parallel layout")
    axes = chooser(user, "layout-axes")
    assert (axes.value, list(axes.options)) == ("dp,pp", ["dp,pp", "dp,tp", "pp,tp"])
    axes.value = "pp,tp"
    await user.should_see("pp by tp")
    assert plot(user, "Parallel layout").figure["data"][0]["y"] == ["pp 0", "pp 1"]
    assert "axes=pp,tp" in href(user, "json")
    axes.value = "dp,pp"
    assert "axes" not in href(user, "json")


async def test_a_link_to_rows_and_columns_that_the_window_lacks_is_reported(user: User) -> None:
    await user.open("/w/two/0?tab=ranks&axes=dp,tp")
    await user.should_see("This window has no coordinates in dp and tp; showing those it has.")
    await user.should_see("dp by pp")
    assert plot(user, "Parallel layout").figure["data"][0]["x"] == ["pp 0", "pp 1"]


async def test_a_link_to_unknown_dimensions_is_reported(user: User) -> None:
    await user.open("/w/two/0?tab=ranks&axes=dp,up")
    await user.should_see("axes must be two of dp, pp, tp, ep, cp")


async def test_a_window_without_coordinates_has_no_such_plot(user: User) -> None:
    await user.open("/w/none/0?tab=ranks")
    await user.should_see("Rank × step")
    await user.should_see("Changes of the slowest rank")
    assert "Parallel layout" not in titles(user)
