"""Read files of rows in batches, as columns by meaning: CSV, Parquet and numbers nested in JSON.

Files are streamed, except JSON, whose size is bounded by ``MAX_JSON_BYTES``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sfapp.errors import TraceError
from sfapp.importers.mapping import UNITS, Mapping
from sfapp.importers.parquet_file import batches_of, open_parquet
from sfapp.importers.source_files import expand, most_values, open_source
from sfapp.model.parse import UNREADABLE_JSON, whole_number
from sfapp.terminal import first_line, quoted

WHOLE = ("step", "rank", "window", "micro_step", "local_rank", "node_rank")
TIMES = ("duration", "start", "end", "wall")
TEXTS = ("stage", "role", "hostname")
MEANINGS = (*WHOLE, *TIMES, *TEXTS)
"""Possible meanings of a column. ``wall`` is a rank's whole step; ``micro_step`` counts within a step."""

MAX_JSON_BYTES = 2**28
MAX_JSON_VALUES = 2**21
"""Largest number of values in JSON, and of lists and objects: an empty one has two bytes, and takes 64 of
memory."""

MAX_COLUMNS = 2**12
"""Largest number of columns of a CSV file: each takes memory, even if it is empty."""

_MAX_HEADER = 2**20
_BLOCK = 2**22
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBatch:
    """Some rows of a file.

    Attributes:
        columns: columns by meaning: int64 for ``WHOLE``, float64 for ``TIMES``, lists of text for ``TEXTS``.
        first_row: position of the first row in the file.
        rows: number of rows.
        names: name of each column in the file, by meaning.
    """

    columns: dict[str, Any]
    first_row: int
    rows: int
    names: dict[str, str]


def batches(path: Path, mapping: Mapping) -> Iterator[ColumnBatch]:
    """Yield the rows of one file; fields in the file's name are added to every row.

    Raises:
        TraceError: the file is not readable or a column has an invalid value; with the row.
    """
    in_name = fields_in_name(path, mapping)
    name = path.name.removesuffix(".gz")
    if name.endswith(".json"):
        source = _nested(path, mapping)
    elif name.endswith(".parquet"):
        source = _parquet(path, mapping)
    else:
        source = _csv(path, mapping)
    for batch in source:
        added = {
            meaning: np.full(batch.rows, int(value)) if meaning in WHOLE else [value] * batch.rows
            for meaning, value in in_name.items()
        }
        yield ColumnBatch(added | batch.columns, batch.first_row, batch.rows, batch.names)


def matches_file(path: Path, mapping: Mapping) -> bool:
    """Return whether the file's name matches the mapping's ``file``; true without such a setting."""
    return mapping.file is None or path_template(mapping.file).fullmatch(path.name) is not None


def fields_in_name(path: Path, mapping: Mapping) -> dict[str, str]:
    """Return the fields in the file's name, by the mapping's ``file``: ``"pp_rank_{rank}.json*"``.

    Raises:
        TraceError: a field should be a whole number and is not.
    """
    match = None if mapping.file is None else path_template(mapping.file).fullmatch(path.name)
    found = match.groupdict() if match else {}
    for meaning, value in found.items():
        if meaning in WHOLE and whole_number(value) is None:
            raise TraceError(
                f"the file's name has {quoted(value)} for {meaning}, which is not a whole number"
            )
    return found


@lru_cache(maxsize=64)
def path_template(text: str) -> re.Pattern[str]:
    """Compile a template: ``{meaning}`` matches a part without a slash, ``*`` matches anything.

    Raises:
        TraceError: a meaning is unknown or occurs twice.
    """
    pieces = _FIELD.split(text)
    pattern = ""
    for place, piece in enumerate(pieces):
        if place % 2:
            if piece not in MEANINGS or f"<{piece}>" in pattern:
                raise TraceError(f"{{{piece}}} in {text!r}: each of {', '.join(MEANINGS)} can be named once")
            pattern += f"(?P<{piece}>[^/]+?)"
        else:
            pattern += re.escape(piece).replace(r"\*", ".*")
    return re.compile(pattern, re.DOTALL)


@contextmanager
def _arrow_errors() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise TraceError(f"cannot be read: {first_line(str(error))}") from error


def _wanted(present: list[str], mapping: Mapping) -> dict[str, str]:
    """Return meaning → column for the columns that are present.

    Raises:
        TraceError: the mapping names an absent column or an unknown meaning, or two columns have one.
    """
    for meaning, column in mapping.columns.items():
        if meaning not in MEANINGS:
            raise TraceError(
                f"[columns] of the mapping: unknown meaning {meaning!r}; known: {', '.join(MEANINGS)}"
            )
        if column not in present:
            listed = ", ".join(quoted(each) for each in present[:20])
            raise TraceError(
                f"no column {column!r}, which the mapping takes as {meaning}; present columns: {listed}"
            )
    found: dict[str, str] = {}
    for meaning in MEANINGS:
        possible = _named(meaning, mapping)
        names = [name for name in present if name in possible]
        if len(names) > 1:
            listed = " and ".join(quoted(name) for name in names)
            raise TraceError(
                f"columns {listed} may each be {meaning}: remove one, or choose under [columns] of a mapping"
            )
        if names:
            found[meaning] = names[0]
    return found


def _named(meaning: str, mapping: Mapping) -> tuple[str, ...]:
    """Return the possible names of a column: from the mapping, or its meaning with a unit."""
    name = mapping.column(meaning)
    if meaning in mapping.columns or meaning not in TIMES:
        return (name,)
    return (name, *(f"{name}_{unit}" for unit in UNITS))


def _csv(path: Path, mapping: Mapping) -> Iterator[ColumnBatch]:
    types = {mapping.column(meaning): pa.int64() for meaning in WHOLE}
    types |= {name: pa.float64() for meaning in TIMES for name in _named(meaning, mapping)}
    types |= {mapping.column(meaning): pa.string() for meaning in TEXTS}
    first = 0
    with _arrow_errors(), open_source(path) as stream:
        _check_header(stream.read(_MAX_HEADER))
        stream.seek(0)
        reader = pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )
        wanted = _wanted(reader.schema.names, mapping)
        for batch in reader:
            yield _batch(batch, wanted, first)
            first += batch.num_rows


def _check_header(head: bytes) -> None:
    """Refuse a file whose first line has more columns than a table can have.

    Raises:
        TraceError: it has, or there is no whole line in the begin of the file.
    """
    lines = head.splitlines(keepends=True)
    header = next((line for line in lines if line.strip(b"\r\n")), b"")
    if header.count(b",") >= MAX_COLUMNS:
        raise TraceError(f"has more than {MAX_COLUMNS:,} columns")
    if len(head) == _MAX_HEADER and (not header or not header.endswith((b"\r", b"\n"))):
        raise TraceError(f"has no header in its first {_MAX_HEADER:,} bytes")


def _parquet(path: Path, mapping: Mapping) -> Iterator[ColumnBatch]:
    first = 0
    with _arrow_errors():
        file, _ = open_parquet(path, [mapping.column(meaning) for meaning in TEXTS])
        wanted = _wanted(file.schema_arrow.names, mapping)
        for batch in batches_of(file, list(wanted.values())):
            yield _batch(batch, wanted, first)
            first += batch.num_rows


def _batch(batch: Any, wanted: dict[str, str], first: int) -> ColumnBatch:
    columns: dict[str, Any] = {}
    for meaning, name in wanted.items():
        column = batch.column(name)
        if column.null_count:
            row = first + int(np.asarray(column.is_null()).argmax())
            raise TraceError(f"missing {meaning}", place=f"row {row}, column {name!r}")
        kind = pa.int64() if meaning in WHOLE else pa.float64() if meaning in TIMES else pa.string()
        try:
            if meaning in TEXTS:
                values = _texts(column)
            else:
                values = pc.cast(column, kind).to_numpy(zero_copy_only=False)
        except (pa.ArrowException, ValueError) as error:  # UnicodeError is a ValueError.
            reason = f"cannot be converted to {kind}: {first_line(str(error))}"
            raise TraceError(reason, place=f"column {name!r}") from error
        columns[meaning] = values
    return ColumnBatch(columns, first, batch.num_rows, wanted)


def _texts(column: Any) -> list[str]:
    """Return a column as texts; rows with equal ones share it."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    distinct = pc.cast(column.dictionary, pa.string()).to_pylist()
    return [distinct[code] for code in column.indices.to_pylist()]


def _nested(path: Path, mapping: Mapping) -> Iterator[ColumnBatch]:
    """Yield numbers nested in JSON; the mapping's ``rows`` give the paths of each kind."""
    if not mapping.rows:
        raise TraceError('JSON needs [rows] in the mapping, for example duration = "{step}/{stage}"')
    rules = {meaning: path_template(text) for meaning, text in mapping.rows.items()}
    for meaning in rules:
        if meaning not in TIMES:
            raise TraceError(f"[rows] of the mapping: unknown kind {meaning!r}; known: {', '.join(TIMES)}")
    data = expand(path, MAX_JSON_BYTES)
    if max(most_values(data)) > MAX_JSON_VALUES:
        raise TraceError(f"holds more than {MAX_JSON_VALUES:,} values: convert it to CSV or Parquet")
    try:
        document = msgspec.json.decode(data)
    except UNREADABLE_JSON as error:
        raise TraceError(f"is not valid JSON: {first_line(str(error))}") from error
    rows: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for place, value in _numbers(document, ""):
        for meaning, rule in rules.items():
            match = rule.fullmatch(place)
            if match is not None:
                rows.setdefault(tuple(sorted(match.groupdict().items())), {})[meaning] = value
    if not rows:
        raise TraceError(f"contains no number at the paths of [rows]: {', '.join(mapping.rows.values())}")
    kinds: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Any]] = {}
    for key, found in rows.items():
        kinds.setdefault((tuple(name for name, _ in key), tuple(sorted(found))), []).append((key, found))
    for (captured, measured), members in kinds.items():
        columns: dict[str, Any] = {}
        for place_, name in enumerate(captured):
            values = [key[place_][1] for key, _ in members]
            columns[name] = values if name in TEXTS else _whole(values, name)
        for name in measured:
            columns[name] = np.asarray([found[name] for _, found in members], np.float64)
        yield ColumnBatch(columns, 0, len(members), {name: name for name in columns})


def _whole(values: list[str], name: str) -> Any:
    numbers = [whole_number(value) for value in values]
    if None in numbers:
        wrong = values[numbers.index(None)]
        raise TraceError(f"{quoted(wrong)} is not a whole number, and [rows] takes it as {name}")
    return np.asarray(numbers, np.int64)


def _numbers(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """Yield every number with its path: keys and positions joined by slashes."""
    inside: Any
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    else:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield place, float(value)
        return
    for key, each in inside:
        yield from _numbers(each, f"{place}/{key}" if place else str(key))
