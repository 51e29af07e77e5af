"""A small recorded-looking job, the store over it, and the app over that."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

# NiceGUI takes its folder on import, and would otherwise make one in the current directory.
os.environ.setdefault("NICEGUI_STORAGE_PATH", tempfile.mkdtemp(prefix="sfapp-test-"))

from nicegui.testing import User

from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.recorded_job import FAULTS, RUN, job_window, put
from tests.app.simulation import simulated, until_read


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job's packets, and one file that is none. Not to be written to."""
    root = tmp_path_factory.mktemp("packets")
    for number, fault in enumerate(FAULTS):
        put(root, job_window(number, fault))
    (root / RUN / "00000099.parquet").write_bytes(b"this is no packet")
    return root


@pytest.fixture(scope="session")
def recorded_store(recorded: Path) -> Iterator[Store]:
    """The store over the job's packets, ingested once. Not to be changed."""
    with Store.open([recorded], memory=True) as store:
        store.ingest()
        yield store


@pytest.fixture
def workspace(recorded: Path, recorded_store: Store) -> Workspace:
    """The app's gateway to the recorded job."""
    return Workspace(recorded_store, [recorded])


@pytest.fixture
async def user(workspace: Workspace) -> AsyncIterator[User]:
    """Someone with the app open on the recorded job, once it is read: what is missing is early before."""
    async with simulated(workspace) as user:
        await until_read(workspace)
        yield user


@pytest.fixture
def packets(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the job's packets that a test may add to."""
    root = tmp_path / "packets"
    shutil.copytree(recorded, root)
    return root


@pytest.fixture
def own_workspace(packets: Path) -> Iterator[Workspace]:
    """A gateway to a store of the test's own, which is watched for new packets once a user is there."""
    with Store.open([packets], memory=True) as store:
        yield Workspace(store, [packets])


@pytest.fixture
async def watching_user(own_workspace: Workspace) -> AsyncIterator[User]:
    """Someone with the app open on packets that a test may add to."""
    async with simulated(own_workspace) as user:
        await until_read(own_workspace)
        yield user
