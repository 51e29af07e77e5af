"""Name runs after the folders or files from which they are imported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path


def run_names(places: Sequence[Path]) -> list[str]:
    """Return one run name per place, all different.

    A name is the last part of the place, with as many folders before it as distinguish it from the other
    places that end in this part. A place that occurs twice gets a number.

    Args:
        places: absolute paths without links.
    """
    parts = [place.parts[1:] or ("run",) for place in places]
    ending: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for each in parts:
        ending[each[-1]].add(each)
    depths = {last: _depth(different) for last, different in ending.items()}
    taken: set[str] = set()
    return [free_name("/".join(each[-depths[each[-1]] :]), taken) for each in parts]


def named_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the folders of runs by the runs' names."""
    return dict(zip(run_names([each.resolve() for each in folders]), folders, strict=True))


def _depth(different: set[tuple[str, ...]]) -> int:
    """Return how many parts from the end distinguish these paths."""
    depth = 1
    while len({each[-depth:] for each in different}) < len(different):
        depth += 1
    return depth


def free_name(name: str, taken: set[str]) -> str:
    """Return the name, with a number from the second use on, and add it to ``taken``."""
    free = name
    number = 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free)
    return free
