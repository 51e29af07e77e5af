"""A small job, recorded window by window: what the app's tests look at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sfapp.model import Window
from sfapp.packets import packet_path, write_packet
from tests.builders import BACKWARD, CALLBACKS, DATA, MS, ddp_job, window_of

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
