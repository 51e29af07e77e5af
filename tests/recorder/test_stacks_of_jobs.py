"""Stacks of a real job in which one rank holds its interpreter lock and the others wait in a collective."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sfapp.cli.hang import hang
from sfapp.cli.stacks import stacks
from sfapp.packets.captures import captures
from tests.forked_ranks import forked

pytestmark = pytest.mark.torchrun

JOB = Path(__file__).parent / "stack_jobs.py"
HOLDER = 1


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The packets of a job that stands still, and is killed afterwards."""
    root = tmp_path_factory.mktemp("packets")
    with subprocess.Popen(
        forked(3, JOB, root, modules=("torch", "torch.distributed", "sfapp.recorder")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "200"},
    ) as job:
        try:
            deadline = time.monotonic() + 90
            while not (root / "held").exists():
                assert job.poll() is None, job.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield root
        finally:
            job.kill()


def test_the_command_shows_the_rank_that_holds_its_lock_and_the_ranks_that_wait(standing: Path) -> None:
    run = CliRunner().invoke(stacks, [str(standing), "--json", "--reason", "it stands still"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    first, second = found["stacks"][:2]
    assert (first["ranks"], first["signalled_ranks"]) == ([HOLDER], [HOLDER])
    assert [frame["function"] for frame in first["frames"][:3]] == ["hold_the_lock", "main", "<module>"]
    assert (second["ranks"], second["signalled_ranks"]) == ([0, 2], [])
    assert "wait_in_all_reduce" in [frame["function"] for frame in second["frames"]]
    assert found["missing"] == []
    assert found["headline"].startswith("Rank 1 in hold_the_lock (stack_jobs.py:")

    again = CliRunner().invoke(stacks, [str(standing / "job"), "--last", "--all-threads"])
    assert again.exit_code == 0, again.output
    assert "Rank 1 (read by signal: interpreter lock held, or too busy to answer)" in again.output
    assert "thread sfapp-captures" not in again.output
    (state,) = captures(standing, "job")
    assert (state.status, state.request.reason) == ("done", "it stands still")

    dumps = CliRunner().invoke(hang, [str(standing), "--json"])
    assert dumps.exit_code == 0, dumps.output
    assert json.loads(dumps.output)["ranks_with_dump"] == [0, 2]
