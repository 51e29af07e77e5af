"""``sfapp run`` over several nodes: two on this machine's loopback, and two network namespaces with cables to
pull."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import sfapp
from benchmarks.namespaces import MANAGE, Cluster, unavailable_reason
from sfapp.model import Window
from sfapp.packets import read_windows

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"
SFAPP = [sys.executable, "-c", "from sfapp.cli import main; main()"]
WINDOW = 20


def command(*options: str | int, steps: int, script: tuple[str | int, ...] = ()) -> list[str]:
    """``sfapp run`` of the example."""
    fixed = ["--run-id", "job", "--window-steps", str(WINDOW)]
    return [*SFAPP, "run", *fixed, *map(str, options), str(TRAIN), "--steps", str(steps), *map(str, script)]


def until(condition: Callable[[], Any], seconds: float = 90.0) -> Any:
    """The condition's value once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)
    return value


def windows(folder: Path) -> list[Window]:
    return [found.window for found in read_windows([folder / "packets"]).windows]


def packets(folder: Path) -> int:
    return len(list(folder.glob("packets/job/*.parquet")))


def whole(found: list[Window], ranks: int, steps: int) -> bool:
    """Whether every step of every rank is there, once."""
    assert [window.manifest.faults for window in found] == [()] * len(found)
    return [step for window in found for step in window.step_N.tolist()] == list(range(steps)) and all(
        window.ranks.rank == tuple(range(ranks)) for window in found
    )


def named(window: Window) -> int | None:
    """The rank that a window points at."""
    aim = sfapp.diagnose(window).aim
    return None if aim is None else aim.rank


def stderr_of(process: subprocess.Popen[str], seconds: float = 120.0) -> str:
    """Return a command's stderr once it has ended with exit code 0."""
    _, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    return errors


def answer(address: str) -> Any:
    """Return a page's JSON; None if there is none yet."""
    try:
        with urllib.request.urlopen(address, timeout=10) as page:
            return json.load(page)
    except urllib.error.HTTPError as error:
        error.close()
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ours(folder: Path) -> list[psutil.Process]:
    """Processes that work in a folder."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == str(folder) and process.pid != os.getpid():
            found.append(process)
    return found


def services(folder: Path, name: str) -> list[psutil.Process]:
    """Those of them that do one of sfapp's own works."""
    found = []
    for process in ours(folder):
        try:
            line = process.cmdline()
        except psutil.Error:  # it has ended meanwhile
            continue
        if "from sfapp.cli import main; main()" in line and name in line and "run" not in line:
            found.append(process)
    return found


def start(
    folder: Path, arguments: list[str], stdout: int = subprocess.DEVNULL, **environment: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.torchrun
def test_srun_starts_it_on_two_nodes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """As ``srun --nodes 2 --ntasks-per-node 1 sfapp run --nproc-per-node 2 train.py``."""
    step = {
        "SLURM_JOB_ID": str(free_port()),  # the ports follow from it
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_LOCALID": "0",
    }
    slow = ("--slow-rank", 2, "--slow-from", 2 * WINDOW, "--slow-ms", 40)
    line = command("--nproc-per-node", 2, steps=5 * WINDOW, script=slow)
    second = start(tmp_path, line, **step, SLURM_NODEID="1", SLURM_PROCID="1")
    first = start(tmp_path, line, **step, SLURM_NODEID="0", SLURM_PROCID="0")
    (keys,) = until(lambda: list(tmp_path.glob("packets/.sfapp/*.keys")))
    assert keys.stat().st_mode & 0o777 == 0o600
    session = keys.read_text()
    assert "sfapp: 5 windows in packets/job" in stderr_of(first)
    stderr_of(second)
    found = windows(tmp_path)
    assert whole(found, ranks=4, steps=5 * WINDOW)
    assert found[0].ranks.node_rank == (0, 0, 1, 1)
    assert 2 in [named(window) for window in found[2:4]]
    # A node that starts again at once, while the other one waits for its ranks, reads the same keys.
    assert keys.read_text() == session
    assert not ours(tmp_path)


@pytest.mark.torchrun
def test_the_app_shows_one_node_live_and_a_killed_aggregator_is_started_again(tmp_path: Path) -> None:
    options = ("--ui", "--ui-port", 0, "--nproc-per-node", 2)
    process = start(tmp_path, command(*options, steps=25 * WINDOW))
    assert process.stderr is not None
    address = re.fullmatch(r"sfapp serve: sfapp is at (\S+/)\n", process.stderr.readline())
    assert address is not None
    until(lambda: packets(tmp_path))
    live = until(lambda: answer(address[1] + "live/job.json"))
    assert [rank["rank"] for rank in live["ranks"]] == [0, 1]
    (aggregator,) = services(tmp_path, "aggregate")
    aggregator.kill()
    (successor,) = until(lambda: [other for other in services(tmp_path, "aggregate") if other != aggregator])
    assert not [found for found in successor.net_connections() if found.status == psutil.CONN_LISTEN]
    errors = stderr_of(process)
    assert "sfapp aggregate: ended (-9), restarting" in errors
    assert whole(windows(tmp_path), ranks=2, steps=25 * WINDOW)
    assert not ours(tmp_path)


@pytest.mark.torchrun
def test_whatever_ends_it_nothing_goes_on_and_the_code_is_the_signals(tmp_path: Path) -> None:
    process = start(tmp_path, command("--live", steps=100_000))
    until(lambda: packets(tmp_path))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    until(lambda: not ours(tmp_path), 10)
    found = windows(tmp_path)
    assert [step for window in found for step in window.step_N.tolist()] == list(
        range(sum(len(window.step_N) for window in found))
    )


@pytest.mark.torchrun
def test_a_killed_command_takes_its_services_along(tmp_path: Path) -> None:
    process = start(tmp_path, command("--live", "--standstill-after", 7, steps=100_000))
    until(lambda: packets(tmp_path))
    (aggregator,) = services(tmp_path, "aggregate")
    assert aggregator.cmdline()[-2:] == ["--standstill-after", "7.0"]
    process.kill()
    until(lambda: not services(tmp_path, "aggregate"), 20)
    for left in ours(tmp_path):  # the training itself, as ever
        left.kill()
    process.communicate(timeout=10)


@pytest.mark.torchrun
def test_the_script_s_code_is_the_command_s(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text("import sys\nsys.exit(7)\n")
    process = start(tmp_path, [*SFAPP, "run", "--live", str(script)])
    process.communicate(timeout=60)
    assert process.returncode == 7
    assert not ours(tmp_path)


def test_a_taken_port_is_reported_before_training_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = command("--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1", steps=1)
        process = start(tmp_path, [*line[:4], "--aggregator-port", str(port), *line[4:]])
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"sfapp aggregate does not start: sfapp: cannot listen on tcp://127.0.0.1:{port}" in errors
    assert not ours(tmp_path)


# ---- nodes with cables --------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    reason = unavailable_reason()
    if reason:
        pytest.skip(reason)
    with Cluster(2) as nodes:
        yield nodes


@pytest.mark.torchrun
def test_a_fault_is_named_and_a_pulled_cable_costs_nothing(tmp_path: Path, cluster: Cluster) -> None:
    steps = 10 * WINDOW
    slow = ("--slow-rank", 3, "--slow-from", 3 * WINDOW, "--slow-ms", 60)
    options = ("--nnodes", 2, "--nproc-per-node", 2, "--aggregator-host", cluster.address(0, MANAGE))
    line = command(*options, steps=steps, script=slow)
    both = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    place = {"PET_MASTER_ADDR": cluster.address(0)}
    first, second = (
        cluster.start(node, line, environment={**place, "PET_NODE_RANK": str(node)}, **both)
        for node in (0, 1)
    )
    until(lambda: packets(tmp_path) >= 5, 120)
    assert 3 in [named(window) for window in windows(tmp_path)[3:5]]
    terminal = start(tmp_path, [*SFAPP, "top", "--once"], subprocess.PIPE, COLUMNS="140")

    cluster.plug(1, is_in=False)  # all of node 1's cables: training stands still
    time.sleep(3)
    cluster.plug_train(1, is_in=True)  # training goes on, and is not seen
    at_least = packets(tmp_path)
    time.sleep(4)
    cluster.plug(1, is_in=True)
    seen, _ = terminal.communicate(timeout=60)
    errors = stderr_of(first, 180)
    stderr_of(second, 60)
    assert "10 windows in packets/job" in errors, errors
    found = windows(tmp_path)
    assert at_least < len(found)
    assert seen.count("node-") in (2, 3)  # in the table of nodes, and where the newest verdict names a rank
    assert re.search(r"^node 1 +2. +3.$", seen, re.MULTILINE)
    assert whole(found, ranks=4, steps=steps)
    assert found[0].ranks.hostname == ("node-0",) * 2 + ("node-1",) * 2
    assert not ours(tmp_path)
