"""A run whose ranks reduced their windows: what its pages say, and what they say they cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nicegui.testing import User

from sfapp.model import NamedRank
from sfapp.model.view import TABS
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.recorded_job import FAULTS, RUN, job_window, put
from tests.app.simulation import simulated
from tests.builders import reduced


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reduced")
    for number, fault in enumerate(FAULTS[:3]):
        put(folder, reduced(job_window(number, fault)))
    return folder


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[Store]:
    with Store.open([root], memory=True) as store:
        store.ingest()
        yield store


@pytest.fixture
async def user(root: Path, store: Store) -> AsyncIterator[User]:
    async with simulated(Workspace(store, [root])) as user:
        yield user


async def test_a_reduced_window_still_has_a_likely_cause(user: User) -> None:
    await user.open(f"/w/{RUN}/2")
    await user.should_see("callbacks on rank 3")
    await user.should_see("needs all ranks' rows")
    await user.should_see("8 ranks on 2 nodes, rows of 6")


@pytest.mark.parametrize("tab", [*TABS, "node:0"])
async def test_every_tab_of_it_opens(user: User, tab: str) -> None:
    await user.open(f"/w/{RUN}/2?tab={tab}")
    await user.should_see("callbacks on rank 3")


async def test_it_is_listed_with_its_growth_as_severity(user: User, store: Store) -> None:
    (worst, *_) = store.windows().rows
    assert (worst["window"], worst["exposed_imbalance"]) == (2, None)
    assert worst["severity"] == pytest.approx(worst["change"])
    await user.open("/windows")
    await user.should_see("callbacks")


def sfapp(*arguments: str | Path) -> str:
    """What the command prints."""
    command = [sys.executable, "-c", "from sfapp.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_commands_read_it_like_any_other(root: Path) -> None:
    assert "callbacks on rank 3" in sfapp("analyze", root)
    assert "No verdict without a healthy window" in sfapp("analyze", root / RUN / "00000002.parquet")
    assert "all of it in callbacks" in sfapp("compare", root / RUN / "1", root / RUN / "2")


def test_hosts_of_leaders_without_rows_get_pseudonyms_too(root: Path, store: Store) -> None:
    window = store.window(RUN, 2)
    assert window.manifest.reduced is not None
    elsewhere = NamedRank(rank=7, local_rank=3, node_rank=1, hostname="secret-7")
    reduction = replace(window.manifest.reduced, named=(elsewhere,))
    window = replace(window, manifest=replace(window.manifest, reduced=reduction))
    assert "secret-7" in window.hostnames
    assert all(host.startswith("host-") for host in Pseudonyms.of([window]).window(window).hostnames)
