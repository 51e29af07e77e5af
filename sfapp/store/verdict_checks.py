"""Check the values in a file of verdicts, which any program may have written.

Queries and pages read columns without looking at each value: one that no window can have would end them for
all windows, or an ingest for all packets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sfapp.errors import PacketError
from sfapp.model import Diagnosis, Reference
from sfapp.model.findings import StepNoise
from sfapp.model.labels import heaviest_label
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.model.parse import MOST_WINDOW, UNREADABLE_JSON
from sfapp.model.pipeline import PipelineStage, StagePast
from sfapp.store.schema import CONFLICTS, PACKETS, STAGES

MAX_TEXT = 2**17
"""Maximum number of bytes of a text beside the diagnosis; the fields of a job are the longest."""

MAX_INTEGER = 2**62
"""Largest absolute value of an integer beside the hash of the diagnosis."""

MAX_NUMBER = 1e40
"""Largest absolute value of a float: noise is in ns², and products of a few values must stay finite."""

_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Times of the years 1 to 9999, in µs since 1970: Python has no others."""

_NOISE_VALUES, _MOST_STEPS = 5, 2**53

_FOREIGN_NOISE = (
    f"len({{0}}) <> {_NOISE_VALUES} OR list_count({{0}}) < {_NOISE_VALUES} "
    f"OR {{0}}[1] NOT BETWEEN 1 AND {_MOST_STEPS} "
    f"OR list_min({{0}}[2:]) < 0 OR list_max({{0}}[2:]) > {MAX_NUMBER}"
)

FOREIGN_VALUES: Mapping[tuple[str, str], str] = {
    ("windows", "diagnosis"): "diagnosis IS NULL",
    ("windows", "step_mean_ns"): "step_mean_ns IS NULL",
    ("windows", "step_noise"): _FOREIGN_NOISE.format("step_noise"),
    ("run_references", "noise"): _FOREIGN_NOISE.format("noise"),
    ("windows", "aim_stage"): "aim_stage IS NULL AND (aim_rank IS NOT NULL OR aim_hostname IS NOT NULL)",
    ("packets", "path"): "path IS NULL",
}
"""Conditions in SQL, by table and column, for values of a store that no window can have."""

_BY_STAGE = (
    *("advances_ns", "typical_ns", "carry_over_advances_ns", "shares", "static_gain", "excess", "takeover"),
    *("carry_over_shares", "carry_over_excess", "delta_ns"),
)
"""Values of a diagnosis that have each of its stages, if they are known: neither None nor empty."""

_MOST_DIGITS = len(str(-MAX_INTEGER))
_LONG_NUMBER = r"(^|[:,\[\s-])\d\d+([eE]|\.\d+[eE]|\d{17})|\d[eE]\+?0*([4-9]\d|[1-9]\d\d)"
"""Beginning of a number that may be beyond the largest, in JSON, or its exponent, but not ``node145``: an
exponent follows a digit, and with more than one before it and the point, no encoder wrote it."""

_UNBOUNDED = frozenset({"diagnosis", "verdict_hash"})
_MAY_BE_NULL = frozenset({"part_rank", "hostnames", "layout", "verdicts"}) | {
    column.name
    for column in STAGES.columns
    if column.type == "DOUBLE" or column.name == "carry_over_advance_ns"
}
"""Nested columns that may be null; all others of ``packets``, ``stages`` and ``conflicts`` have values."""

_NEEDED = frozenset(
    name for table in (PACKETS, STAGES, CONFLICTS) for name in table.names if name not in _MAY_BE_NULL
)


def check_values(table: pa.Table) -> None:
    """Check every value of the rows.

    Raises:
        PacketError: one is none that a window can have; the message names its column.
    """
    for name in table.column_names:
        if name in _UNBOUNDED:
            continue
        values = table.column(name).combine_chunks()
        if name == "window" and not _within(values, 0, MOST_WINDOW):
            raise PacketError("is outside 0…10^18−1", column=name)
        for reason in _faults(values, nested=False):
            raise PacketError(reason, column=name)
    _check_fields(table.column("job_fields"))
    _check_aims(table)
    noises = pc.drop_null(table.column("step_noise")).to_pylist()
    if any(len(values) != _NOISE_VALUES for values in noises):
        raise PacketError(f"has not {_NOISE_VALUES} values", column="step_noise")
    if not all(map(is_noise, noises)):
        raise PacketError("is that of no steps", column="step_noise")


def check_numbers(texts: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Check that valid JSON texts have no integer that cannot be encoded or stored again, and no float with
    which sums and products are not finite.

    Args:
        name: of the texts' column.

    Raises:
        PacketError: one has.
    """
    # Parsing all texts would take as long as everything else.
    candidates = pc.indices_nonzero(pc.match_substring_regex(texts, _LONG_NUMBER)).to_pylist()
    for row in candidates:
        integers, floats = list[str](), list[str]()
        try:
            json.loads(texts[row].as_py(), parse_int=integers.append, parse_float=floats.append)
        except (ValueError, RecursionError) as error:
            raise PacketError(f"cannot be read: {error}", row=row, column=name) from None
        if any(len(digits) > _MOST_DIGITS or abs(int(digits)) > MAX_INTEGER for digits in integers):
            raise PacketError("has an integer beyond ±2^62", row=row, column=name)
        if any(abs(float(digits)) > MAX_NUMBER for digits in floats):
            raise PacketError("has a number beyond ±10^40", row=row, column=name)


def check_diagnosis(diagnosis: Diagnosis) -> None:
    """Check that a diagnosis is of steps and ranks that a window can have, names its own stages only, has
    their values if it has any, and that other windows can be compared with it.

    Raises:
        ValueError: it is none that a window can have.
    """
    if not 1 <= diagnosis.steps <= _MOST_STEPS or diagnosis.ranks > MAX_WORLD_SIZE:
        raise ValueError("has no steps, or more steps or ranks than a window can have")
    stages = set(diagnosis.stages)
    for name in _BY_STAGE:
        values: Mapping[str, object] | None = getattr(diagnosis, name)
        # Of a reduced window many are empty, but not its changes: they are compared, or None.
        if values is not None and (values or name == "delta_ns") and values.keys() != stages:
            raise ValueError(f"lacks a stage in its {name}, or has another")
    aim = () if diagnosis.aim is None else (diagnosis.aim.stage,)
    named = {*aim, *(diagnosis.routing_set or ()), *(diagnosis.co_critical_stages or ())}
    if not named <= stages:
        raise ValueError("names a stage that it does not have")
    # A window below the floor has no shares, and nothing that depends on them.
    judged = () if diagnosis.shares is None else diagnosis.stages
    if tuple(culprit.stage for culprit in diagnosis.culprits) != tuple(judged):
        raise ValueError("has not one culprit for each of its stages")
    heaviest_label(label.label for label in diagnosis.labels)
    _check_noise(diagnosis.noise)
    _check_pipeline(() if diagnosis.pipeline is None else diagnosis.pipeline.stages)


def check_reference(reference: Reference) -> None:
    """Check that windows can be compared with a reference.

    Raises:
        ValueError: it or its noise is of no steps, or its frontiers have different stages.
    """
    if reference.steps < 1:
        raise ValueError("is a reference of no steps")
    carried = reference.carry_advance_ns
    if carried is not None and carried.keys() != reference.advance_ns.keys():
        raise ValueError("has other stages in its carry_advance_ns than in its advance_ns")
    _check_noise(reference.noise)
    _check_pipeline(reference.pipeline)


def _check_pipeline(stages: Sequence[PipelineStage | StagePast]) -> None:
    for one in stages:
        _check_noise(one.noise)


def _check_noise(noise: StepNoise | None) -> None:
    if noise is not None and not is_noise((noise.steps, noise.lag1, noise.lag2, noise.block1, noise.block2)):
        raise ValueError("has noise that no steps have")


def is_noise(values: Sequence[float]) -> bool:
    """Return whether the values of a column with noise are those of steps: their number, which is exact as a
    float, and mean squared differences."""
    return (
        len(values) == _NOISE_VALUES
        and 1 <= values[0] <= _MOST_STEPS
        and min(values[1:]) >= 0.0
        and max(values[1:]) <= MAX_NUMBER
    )


def _check_aims(table: pa.Table) -> None:
    """Check that a late rank and its host are named in some stage."""
    named = pc.or_(pc.is_valid(table.column("aim_rank")), pc.is_valid(table.column("aim_hostname")))
    if pc.any(pc.and_(named, pc.is_null(table.column("aim_stage"))), min_count=0).as_py():
        raise PacketError("is null beside a rank or host", column="aim_stage")


def _check_fields(texts: pa.Array | pa.ChunkedArray) -> None:
    for text in pc.unique(texts).drop_null().to_pylist():
        try:
            msgspec.json.decode(text, type=dict[str, str])
        except UNREADABLE_JSON as error:
            raise PacketError(f"cannot be read: {error}", column="job_fields") from None


def _faults(values: pa.Array, *, nested: bool) -> Iterator[str]:
    """Yield what is wrong with the values of a column, or of the lists in it."""
    kind = values.type
    if pa.types.is_map(kind):
        if any(len(dict(row)) < len(row) for row in values.to_pylist() if row):
            yield "has a key several times"
        yield from _faults(values.keys, nested=True)
        yield from _faults(values.items, nested=False)
    elif pa.types.is_list(kind):
        yield from _faults(values.flatten(), nested=True)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _faults(values.field(field.name), nested=field.name in _NEEDED)
    if nested and values.null_count:
        yield "has a list with a value that is null"
    elif pa.types.is_floating(kind) and not _all(pc.is_finite(values)):
        yield "is not finite"
    elif pa.types.is_floating(kind) and not _within(values, -MAX_NUMBER, MAX_NUMBER):
        yield "is beyond ±10^40"
    elif pa.types.is_timestamp(kind) and not _within(values.cast(pa.int64()), _FIRST_US, _LAST_US):
        yield "is not in the years 1 to 9999"
    elif pa.types.is_integer(kind) and not _within(values, -MAX_INTEGER, MAX_INTEGER):
        yield "is beyond ±2^62"
    elif pa.types.is_string(kind) and not _within(pc.binary_length(values), 0, MAX_TEXT):
        yield f"is longer than {MAX_TEXT:,} bytes"


def _within(values: pa.Array, least: float, most: float) -> bool:
    found = pc.min_max(values)
    smallest, largest = found["min"].as_py(), found["max"].as_py()
    return smallest is None or (smallest >= least and largest <= most)


def _all(values: pa.Array) -> bool:
    return bool(pc.all(values, min_count=0).as_py())
