"""A small job, recorded window by window: what the app's tests look at."""

from __future__ import annotations

from pathlib import Path

from builders import BACKWARD, CALLBACKS, DATA, MS, ddp_job, window_of

from sfapp.model import Window
from sfapp.packets import packet_path, write_packet

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


def put(root: Path, window: Window) -> Path:
    """Write a window's packet where a recorder would."""
    path = packet_path(root, window.run_id, window.number)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_packet(window, path)
    return path
