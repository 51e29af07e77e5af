"""A parser that the fuzzer reads mutants with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sfapp.errors import SfappError


@dataclass(frozen=True)
class FuzzedParser:
    """A parser and what it may raise.

    Attributes:
        seeds: makes valid inputs.
        read: reads one input; may use the folder for a file.
        allowed: exceptions that a damaged input may raise.
        mutants: number of mutants in each run of the tests: so many take about half a second.
    """

    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Path], object]
    allowed: tuple[type[Exception], ...] = (SfappError,)
    mutants: int = 700


def read_file(reader: Callable[[Path], object], name: str, data: bytes, folder: Path) -> None:
    """Read one input from a file of this name."""
    path = folder / name
    path.write_bytes(data)
    reader(path)
