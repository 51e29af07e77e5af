"""A live page that stays open while its job restarts on other nodes."""

from __future__ import annotations

from pathlib import Path

from nicegui import ui

from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.live_job import LIVE, LiveJob
from tests.app.simulation import simulated, until_read


def restart(root: Path, before: LiveJob, nodes: int) -> LiveJob:
    """Let the job go on for a second on so many nodes."""
    job = LiveJob(root, nodes=nodes)
    job.step = before.step
    job.go(1)
    return job


async def test_an_open_page_follows_a_restart_on_more_or_fewer_nodes(tmp_path: Path) -> None:
    job = LiveJob(tmp_path)
    job.go()
    with Store.open([tmp_path], memory=True) as store:
        workspace = Workspace(store, [tmp_path])
        async with simulated(workspace) as user:
            await until_read(workspace)
            await user.open(f"/live/{LIVE}?tab=node:1")
            await user.should_see("Live ranks of node 1")
            await user.should_see("8 ranks · 2 nodes")
            job = restart(tmp_path, job, nodes=3)
            await user.should_see("12 ranks · 3 nodes")
            user.find(kind=ui.tab, content="Node 2").click()
            await user.should_see("Live ranks of node 2")
            restart(tmp_path, job, nodes=2)
            await user.should_see("The run has no node 2; showing the overview.")
            await user.should_see("8 ranks · 2 nodes")
            await user.should_not_see(kind=ui.tab, content="Node 2")
            await user.should_see("Live skew")
