"""Where other people's traces lie, for tests of importers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sfapp.accounting import diagnose
from sfapp.importers import (
    NO_MAPPING,
    ImportNote,
    ImportOptions,
    ImportResult,
    Mapping,
    read_mapping,
    read_traces,
    write_imported,
)
from sfapp.model import Diagnosis
from sfapp.packets import read_packet, validate_packet
from sfapp.packets.operators import read_operators

ROOT = Path(__file__).parents[2]
MAPPINGS = ROOT / "examples" / "mappings"


def real(name: str) -> Path:
    """A file or folder of the real traces; the test is skipped where they are not."""
    folder = Path(os.environ.get("SFAPP_TRACES", ROOT.parent / "shared" / "traces"))
    if not (folder / name).exists():
        pytest.skip(f"needs the real trace {name} under {folder} (set SFAPP_TRACES)")
    return folder / name


def example(name: str) -> Mapping:
    """One of the mappings that come with the examples."""
    return read_mapping(MAPPINGS / f"{name}.toml")


def imported(name: str, path: Path | Sequence[Path], mapping: Mapping = NO_MAPPING) -> ImportResult:
    """What came of these files."""
    return read_traces(name, [path] if isinstance(path, Path) else path, ImportOptions(mapping=mapping))


def notes_of(found: ImportResult) -> tuple[ImportNote, ...]:
    """Everything that was derived, guessed, missing or skipped, each once."""
    return tuple(dict.fromkeys([*found.notes, *(note for each in found.windows for note in each.notes)]))


def diagnosed(found: ImportResult, root: Path, group: str = "all") -> list[Diagnosis]:
    """The verdicts on the packets that an import leaves: all of them valid, read back from their files."""
    written = write_imported(found, root)
    assert not written.refused
    for path in written.packets:
        assert not validate_packet(path)
    for path in written.operators:
        assert len(read_operators(path))
    return [diagnose(read_packet(path).window, group=group) for path in written.packets]
