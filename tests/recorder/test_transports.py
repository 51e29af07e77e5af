"""The table of transports, and what one needs: a module that implements ``TransportGroup``, and an entry."""

from __future__ import annotations

import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import sfapp.recorder.job_description
from sfapp.model import RankIdentity
from sfapp.packets import read_window, read_windows
from sfapp.recorder import Recorder
from sfapp.recorder.transport import rank_group
from sfapp.recorder.transport.rank_group import NOT_DISTRIBUTED
from sfapp.recorder.transport.transport_group import TransportGroup
from sfapp.recorder.transport.transports import TRANSPORTS
from tests.builders import BACKWARD, FORWARD, OTHER
from tests.recorder.thread_transport import transport_of

ROOT = Path(__file__).parents[2]
WORLD_SIZE, WINDOW = 3, 4


def recorder_of(root: Path, rank: int) -> Recorder:
    return Recorder(
        root,
        run_id=f"named-by-{rank}",
        identity=RankIdentity(rank, rank, 0, "localhost"),
        gather="threads",
        window_steps=WINDOW,
        stages=(FORWARD, BACKWARD),
        between=False,
        first_step=10 * rank,
        timeout=20.0,
    )


def train(root: Path, rank: int, steps: int = WINDOW) -> tuple[str, ...]:
    """Record steps on one rank; return the failures."""
    with recorder_of(root, rank) as perf:
        for _ in range(steps):
            perf.add_step(1_000, [{FORWARD: 100 + rank, BACKWARD: 200}])
    return perf.failures


def become_rank_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment that torchrun gives rank 1."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, str(WORLD_SIZE))


def train_all(root: Path) -> list[tuple[str, ...]]:
    """Record a window on all ranks, each in a thread; return their failures."""
    with ThreadPoolExecutor(WORLD_SIZE) as threads:
        return list(threads.map(partial(train, root), range(WORLD_SIZE)))


def test_one_module_and_one_entry_make_a_transport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSPORTS, "threads", transport_of(WORLD_SIZE))
    assert train_all(tmp_path) == [()] * WORLD_SIZE
    window = read_window(tmp_path)
    assert window.run_id == "named-by-0"
    assert (window.manifest.gather_ok, window.manifest.gather_error) == (True, None)
    assert (window.manifest.world_size, window.manifest.recorder.backend) == (WORLD_SIZE, "threads")
    assert window.ranks.rank == (0, 1, 2)
    assert window.stages == (FORWARD, BACKWARD, OTHER)
    assert window.step_N.tolist() == [20, 21, 22, 23]
    assert window.duration_SNR[:, 0].tolist() == [[100, 101, 102], [200, 200, 200], [700, 699, 698]]


def unreachable(timeout: float) -> TransportGroup:
    raise ConnectionError("the network is down")


def test_a_transport_that_needs_a_process_group_is_not_connected_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replace(transport_of(WORLD_SIZE), connect=unreachable, needs_process_group=True)
    monkeypatch.setitem(TRANSPORTS, "threads", entry)
    become_rank_1(monkeypatch)
    assert train(tmp_path, 1) == ()
    assert read_window(tmp_path).manifest.gather_error == NOT_DISTRIBUTED


def test_a_transport_that_cannot_connect_leaves_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replace(transport_of(WORLD_SIZE), connect=unreachable)
    monkeypatch.setitem(TRANSPORTS, "threads", entry)
    become_rank_1(monkeypatch)
    assert train(tmp_path, 1) == ()
    manifest = read_window(tmp_path).manifest
    assert manifest.world_size == WORLD_SIZE
    assert manifest.gather_error == "no group: ConnectionError: the network is down"


def test_ctrl_c_while_a_recorder_waits_for_another_rank_saves_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRANSPORTS, "threads", transport_of(2))
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(recorder_of, tmp_path, 1)
        perf = recorder_of(tmp_path, 0)
        for _ in range(WINDOW):
            perf.add_step(1_000, [{FORWARD: 100, BACKWARD: 200}])
        interrupt = threading.Timer(0.3, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            perf.close()
        late.result().close()
    (window,) = (item.window for item in read_windows([tmp_path]).windows)
    assert window.ranks.rank == (0,)
    assert len(window.step_N) == WINDOW


def test_the_documented_transports_are_those_of_the_table() -> None:
    page = (ROOT / "docs" / "recorder.md").read_text(encoding="utf-8")
    table = page.partition("| `gather=` |")[2].partition("\n\n")[0]
    assert re.findall(r'^\| `"(\w+)"`', table, re.MULTILINE) == list(TRANSPORTS)


def test_a_rank_of_torch_distributed_that_cannot_connect_leaves_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replace(transport_of(WORLD_SIZE), connect=unreachable, needs_process_group=True)
    monkeypatch.setitem(TRANSPORTS, "threads", entry)
    for module in (rank_group, sfapp.recorder.job_description):
        monkeypatch.setattr(module, "distributed_rank", lambda: 1)
    monkeypatch.setattr(rank_group, "distributed_world_size", lambda: WORLD_SIZE)
    train(tmp_path, 1)
    (path,) = tmp_path.rglob("*.parquet")
    assert path.name.endswith(".rank1.parquet")
    assert read_window(tmp_path).manifest.world_size == WORLD_SIZE
