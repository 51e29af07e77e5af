"""A small job, recorded window by window: what the app's tests look at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from sfapp.model import Window
from sfapp.packets import packet_path, write_packet
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, MS, ddp_job, window_of

HOSTILE = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
"""A name that means harm where it is taken for markup."""

Fault = dict[tuple[str, int | str], int]

RUN = "job"
FAULTS: tuple[Fault, ...] = (
    {},
    {},
    {(CALLBACKS, 3): 60 * MS},
    {(DATA, "random"): 60 * MS},
    {(BACKWARD, "all"): 40 * MS},
)
"""What ails each window: nothing, nothing, a callback on one rank, data on changing ranks, backward."""

SICK = f"/w/{RUN}/2"
"""Address of the window in which rank 3's callback is slow."""


def job_window(number: int, fault: Fault, run_id: str = RUN) -> Window:
    """One window of 8 ranks on 2 nodes; steps count on from window to window."""
    return window_of(
        ddp_job(seed=number, extra=fault),
        first_step=40 * number,
        run_id=run_id,
        window=number,
        started_at=f"2026-03-01T10:{number % 60:02d}:00Z",
        ended_at=f"2026-03-01T10:{number % 60:02d}:04Z",
    )


def recent_window(number: int, fault: Fault) -> Window:
    """The same window of a job that is recorded now: the next one is not overdue."""
    window = job_window(number, fault)
    began = datetime.now(UTC) + timedelta(minutes=number - 5)
    started_at, ended_at = (each.isoformat() for each in (began, began + timedelta(seconds=4)))
    return replace(window, manifest=replace(window.manifest, started_at=started_at, ended_at=ended_at))


def waiting_window(
    number: int, extra: dict[tuple[int, int], int], ranks: int = 8, run_id: str = "waiting"
) -> Window:
    """A window of ranks on nodes of 4 that meet at the end of backward, with their waits measured.

    Args:
        extra: ns added to a stage (0 data, 1 forward, 2 backward) on one rank.
    """
    own_SNR = np.random.default_rng(number).integers(19 * MS, 21 * MS, (3, 40, ranks))
    for (stage, rank), added in extra.items():
        own_SNR[stage, :, rank] += added
    arrived_NR = own_SNR.sum(axis=0)
    wait_NR = arrived_NR.max(axis=1, keepdims=True) - arrived_NR + MS
    duration_SNR = own_SNR.copy()
    duration_SNR[2] += wait_NR
    stages = (DATA, FORWARD, BACKWARD)
    window = window_of(duration_SNR, stages=stages, first_step=40 * number, run_id=run_id, window=number)
    return replace(window, waits={BACKWARD: wait_NR})


def hostile_window() -> Window:
    """A window whose run and hosts are named to do harm."""
    window = job_window(0, {}, run_id=f"run/{HOSTILE}")
    hosts = tuple(f"{HOSTILE}{host}" for host in window.ranks.hostname)
    return replace(window, ranks=replace(window.ranks, hostname=hosts))


def put(root: Path, window: Window) -> Path:
    """Write a window's packet where a recorder would."""
    path = packet_path(root, window.run_id, window.number)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_packet(window, path)
    return path


def put_now(root: Path) -> None:
    """A window that has just ended, in which rank 2 was late in data."""
    window = job_window(0, {(DATA, 2): 60 * MS})
    now = datetime.now(UTC).isoformat()
    put(root, replace(window, manifest=replace(window.manifest, started_at=now, ended_at=now)))
