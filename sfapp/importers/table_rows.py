"""Collect and check the rows of one run's tables: all rows of a file, or none."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.importers.column_reader import ColumnBatch, batches
from sfapp.importers.duration_table import nanoseconds
from sfapp.importers.mapping import UNITS, Mapping
from sfapp.importers.parquet_file import most_rows
from sfapp.model import RankIdentity
from sfapp.packets.packet_layout import MAX_RANK_VALUE, MAX_VALUE

Ints = npt.NDArray[np.int64]

MAX_ROWS = 2**25
"""Largest number of rows of one run: a gibibyte in memory."""

_ROW_BYTES = 2
"""Bytes of a file that a row takes at least, however well it is compressed."""

MAX_NAMES = 1024
"""Largest number of distinct stage names: with more, the wrong column was taken."""

_COLUMNS = ("window", "step", "rank", "name", "micro_step")


@dataclass(slots=True, eq=False)
class TableRows:
    """Rows of the files of one run, as lists of columns; ``name`` is an index into ``names``, and ``file``
    counts the files."""

    mapping: Mapping
    names: dict[str, int] = field(default_factory=dict)
    parts: list[dict[str, Ints]] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    rows: int = 0
    files: int = 0

    def take(self, path: Path) -> None:
        """Add the rows of a file: all of them, or none.

        Raises:
            TraceError: a value is invalid; with its row and column.
        """
        most = min(MAX_ROWS - self.rows, most_rows(path.stat().st_size, _ROW_BYTES))
        found, rows = [], 0
        for batch in batches(path, self.mapping):
            rows += batch.rows
            if rows > most:
                raise TraceError(
                    f"has more than {most:,} rows, the most for one run and for a file of its size: import "
                    "fewer steps at a time"
                )
            found.append(self._part(batch) | {"file": np.full(batch.rows, self.files)})
        self.parts += found
        self.rows += rows
        self.files += 1

    def _part(self, batch: ColumnBatch) -> dict[str, Ints]:
        columns, none = batch.columns, np.full(batch.rows, -1)
        for needed in ("step", "rank"):
            if needed not in columns:
                raise TraceError(
                    f"no column {needed!r}: name it under [columns] of a mapping file, or in its "
                    "setting 'file'"
                )
        part = {name: columns.get(name, none) for name in _COLUMNS}
        for name in ("rank", "step", "micro_step", "window"):
            self._check(part[name], name, batch, 0 if name in columns else -1)
        part |= {
            name: self._times(batch, name) for name in ("duration", "start", "end", "wall") if name in columns
        }
        if "duration" in part and (part["duration"] < 0).any():
            self._refuse(part["duration"] < 0, "duration", batch, "is negative")
        if ("start" in part) != ("end" in part):
            raise TraceError("rows have a start without an end, or an end without a start")
        if "start" in part and (part["end"] < part["start"]).any():
            self._refuse(part["end"] < part["start"], "end", batch, "is before its start")
        if ("start" in part or "duration" in part) and "stage" not in columns:
            raise TraceError("no column 'stage': name it under [columns] of a mapping file")
        if not {"start", "duration", "wall"} & part.keys():
            raise TraceError(
                "no column 'duration', nor 'start' and 'end': name them under [columns] of a mapping"
            )
        part["name"] = self._codes(columns["stage"]) if "stage" in columns else none
        self._identities(columns)
        return part

    def _codes(self, values: list[str]) -> Ints:
        codes = np.asarray([self.names.setdefault(value, len(self.names)) for value in values], np.int64)
        if len(self.names) > MAX_NAMES:
            raise TraceError(
                f"more than {MAX_NAMES:,} different stages, the first is {next(iter(self.names))!r}: "
                "check which column holds the stage"
            )
        return codes

    def _times(self, batch: ColumnBatch, meaning: str) -> Ints:
        values, column = batch.columns[meaning], batch.names.get(meaning, meaning)
        unit_ns = UNITS[self.mapping.unit or unit_of(column)]
        if meaning in ("duration", "wall"):
            try:
                return nanoseconds(values, unit_ns, f"column {column!r}")
            except TraceError as error:
                row = int((~(values >= 0) | (values * unit_ns > MAX_VALUE)).argmax()) + batch.first_row
                raise TraceError(error.reason, place=f"row {row}, column {column!r}") from error
        outside = ~(np.abs(values) * unit_ns <= MAX_VALUE)
        if outside.any():
            self._refuse(outside, meaning, batch, "is not a time")
        whole: Ints = np.rint(values * unit_ns).astype(np.int64)
        return whole

    def _check(self, values: Ints, name: str, batch: ColumnBatch, low: int) -> None:
        outside = (values < low) | (values > (MAX_RANK_VALUE if name != "step" else MAX_VALUE))
        if outside.any():
            self._refuse(outside, name, batch, "is out of range")

    def _refuse(self, bad: npt.NDArray[np.bool_], meaning: str, batch: ColumnBatch, what: str) -> None:
        place = int(bad.argmax())
        column = batch.names.get(meaning, meaning)
        raise TraceError(
            f"{batch.columns[meaning][place]} {what}",
            place=f"row {batch.first_row + place}, column {column!r}",
        )

    def _identities(self, columns: dict[str, Any]) -> None:
        ranks = columns["rank"].tolist()
        self.hosts.update(zip(ranks, columns.get("hostname", ()), strict=False))
        self.roles.update(zip(ranks, columns.get("role", ()), strict=False))
        if "local_rank" in columns and "node_rank" in columns:
            places = zip(columns["local_rank"].tolist(), columns["node_rank"].tolist(), strict=True)
            self.places.update(zip(ranks, places, strict=True))

    def column(self, name: str, having: str) -> Ints:
        """Return one column of all rows that have the column ``having``."""
        found = [part[name] for part in self.parts if having in part]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def in_several_files(self) -> int:
        """Return how many durations of a step, rank, stage and micro-step are in another file, too."""
        file, *cell = (self.column(name, "duration") for name in ("file", *_COLUMNS))
        if self.files < 2 or not len(file):
            return 0
        order = np.lexsort((file, *cell))
        repeats = np.diff(file[order]) != 0
        for values in cell:
            repeats &= np.diff(values[order]) == 0
        return int(repeats.sum())

    def identities(self, ranks: Ints) -> list[RankIdentity]:
        """Return the identities of these ranks."""
        return [
            RankIdentity(
                rank,
                *self.places.get(rank, (0, 0)),
                self.hosts.get(rank, ""),
                self.roles.get(rank, self.mapping.role_of(rank)),
            )
            for rank in ranks.tolist()
        ]


def unit_of(column: str) -> str:
    """Return the unit at the end of a column's name: ``duration_ms``.

    Raises:
        TraceError: the name does not end in a unit.
    """
    ending = column.rpartition("_")[2]
    if ending not in UNITS:
        raise TraceError(
            f'unknown unit of column {column!r}: set unit = "ms" (or s, us, ns) in a mapping file'
        )
    return ending
