"""Write the operator events of a capture beside those of other captures of the same window."""

from __future__ import annotations

from pathlib import Path

from sfapp.errors import PacketError
from sfapp.model import Operators
from sfapp.packets.operators import read_operators, write_operators
from sfapp.packets.paths import operator_files_of, operators_path, part_rank_of


def write_captured(operators: Operators, root: Path, run_id: str, window: int, rank: int) -> Path:
    """Write the events of a capture of one rank, and return their file.

    A window of many or slow steps may be captured again: then the file has the first step in its name. A file
    with some of these steps is replaced: it is of this capture, which an aggregator did not acknowledge, or
    the job has run the steps again.

    Raises:
        PacketError: as ``write_operators``.
    """
    path = operators_path(root, run_id, window, rank)
    present = [Path(str(file)) for file in operator_files_of([path]) if part_rank_of(file) == rank]
    if path in present and operators.steps:
        further = path.with_name(path.name.replace(".", f".step{operators.steps[0]}.", 1))
        path = next((file for file in present if _shares_steps(file, operators)), further)
    write_operators(operators, run_id, window, path)
    return path


def _shares_steps(file: Path, operators: Operators) -> bool:
    """Return whether a file has some of the steps of these events, or cannot be read."""
    try:
        return not set(operators.steps).isdisjoint(read_operators(file).steps)
    except PacketError:
        return True
