"""Ask the ranks of a run for stacks, from outside the job (docs/stacks.md).

Finding the ranks reads at most two files, so that it is quick in a folder of many packets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sfapp.errors import CaptureError, SfappError
from sfapp.files import subfolders
from sfapp.model.capture import MAX_REASON, MAX_STACK_RANKS, CaptureRequest, RankCapture
from sfapp.packets.captures import read_rank, write_rank_capture
from sfapp.packets.newest_steps import FOLDER, NAME, read_newest_steps
from sfapp.packets.paths import folder_name
from sfapp.packets.read import read_packet
from sfapp.packets.stack_files import encode_stacks, write_file
from sfapp.packets.stack_signal import StackProcess, stack_processes, stacks_by_signal

OUTSIDE_SECONDS = 6.0
"""Seconds after which a process outside the job answers for the ranks of its machine that have not."""

_PACKET = re.compile(r"\d{8,}(\.[0-9a-f]{16})?(\.rank\d+)?\.parquet")
_MOST_FOLDERS = 10_000


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run's files are, and its number of ranks.

    Attributes:
        root: the folder that holds the run's folder.
    """

    root: Path
    run_id: str
    world_size: int

    @property
    def asked_ranks(self) -> tuple[int, ...]:
        """Return all ranks or, of a very large job, as many as one request may name, evenly spread."""
        stride = -(-self.world_size // MAX_STACK_RANKS)
        return tuple(range(0, self.world_size, stride))


def find_run(packets: Path, run_id: str | None = None) -> RunPlace:
    """Return a run below a packet folder, or in a run's own folder.

    Args:
        run_id: its name; the run that wrote last if not given.

    Raises:
        CaptureError: there is no such run.
    """
    packets = packets.absolute()
    for root, names in ((packets, _folders(packets, run_id)), (packets.parent, [packets.name])):
        for name in names:
            found = _run_in(root, name)
            if found is not None and run_id in (None, found.run_id):
                return found
    started = [*stack_processes(run_id, packets), *stack_processes(run_id, packets.parent)]
    for process in started:  # A run that has not written anything yet.
        if Path(process.root) == packets or folder_name(process.run_id) == packets.name:
            return RunPlace(Path(process.root), process.run_id, process.world_size)
    which = "no run" if run_id is None else f"no run {run_id!r}"
    raise CaptureError(f"{which} under {packets}: name the folder that its recorders or aggregator write to")


def _folders(root: Path, run_id: str | None) -> list[str]:
    """Return the names of the folders in which the run may be, the last changed one first."""
    if run_id is not None:
        return [folder_name(run_id)]
    found = [
        (max(_changed(each), _changed(each / FOLDER)), each.name)
        for each in subfolders(root)[:_MOST_FOLDERS]
        if not each.name.startswith(".")
    ]
    return [name for _, name in sorted(found, reverse=True)]


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _run_in(root: Path, name: str) -> RunPlace | None:
    """Return the run in a folder by its newest steps or its newest packet; None if neither is there."""
    try:
        live = read_newest_steps(root / name / FOLDER / NAME)
        if folder_name(live.run_id) == name:
            return RunPlace(root, live.run_id, live.world_size)
    except (SfappError, OSError):
        pass
    try:
        packets = [entry for entry in os.listdir(root / name) if _PACKET.fullmatch(entry)]
        manifest = read_packet(root / name / max(packets)).window.manifest
    except (OSError, ValueError, SfappError):
        return None
    # Requests are written to the folder of the run that the packet names: it may name any run.
    is_here = folder_name(manifest.run_id) == name
    return RunPlace(root, manifest.run_id, manifest.world_size) if is_here else None


def answer_from_outside(root: Path, request: CaptureRequest) -> None:
    """Answer for ranks on this machine that have not, by signal: their interpreter lock is held, or they are
    alone on their machine.

    Raises:
        PacketError: an answer cannot be written.
    """
    for process in _unanswered(root, request, stack_processes(request.run_id, root)):
        try:
            stacks = stacks_by_signal(process)
        except CaptureError as error:
            why = str(error)[:MAX_REASON]
            answer = RankCapture(rank=process.rank, status="refused", why=why)
        else:
            write_file(root, request, "stacks", process.rank, encode_stacks(stacks))
            answer = RankCapture(rank=process.rank, status="done")
        write_rank_capture(root, request, answer)


def _unanswered(
    root: Path, request: CaptureRequest, processes: Collection[StackProcess]
) -> Iterator[StackProcess]:
    for process in processes:
        if process.rank in request.ranks and read_rank(root, request, process.rank) is None:
            yield process
