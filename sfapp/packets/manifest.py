"""Encode, decode and check the manifest (packet.md, Manifest)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from sfapp.errors import PacketError, PacketVersionError
from sfapp.model import DIMENSIONS, FORMAT, LAG_BINS, Manifest, Reduction, broad_stage, stage_hash
from sfapp.model.host_evidence import MAX_ATTRIBUTE_LENGTH, MAX_ATTRIBUTES
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.model.parse import MOST_WINDOW, UNREADABLE_JSON
from sfapp.model.stages import MAX_NAME_LENGTH, MAX_STAGES
from sfapp.packets.faults import Faults
from sfapp.packets.packet_layout import (
    MAX_RANK_VALUE,
    MAX_VALUE,
    is_reserved,
)
from sfapp.packets.value_checks import is_unicode
from sfapp.terminal import first_line, quoted

MAX_DEPTH = 32
"""Largest depth of lists and objects in ``extra``: deeper ones can be read and not shown."""


class _FormatNumber(msgspec.Struct):
    """Format number, which manifests of every format have."""

    format: int


_HEAD = msgspec.json.Decoder(_FormatNumber)
_MANIFEST = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as JSON.

    Raises:
        PacketError: ``extra`` holds something that JSON cannot express, or a string is not valid Unicode.
    """
    try:
        return msgspec.json.encode(manifest)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PacketError(f"the manifest cannot be written as JSON: {first_line(str(error))}") from error


def decode_manifest(raw: bytes) -> Manifest:
    """Return a manifest from JSON. Unknown keys are ignored.

    Raises:
        PacketVersionError: the file is of a newer format.
        PacketError: not JSON, or a key is missing or of the wrong type.
    """
    try:
        written: int = _HEAD.decode(raw).format
        if written > FORMAT:
            raise PacketVersionError(
                f"packet format {written} is newer than format {FORMAT}, the newest this sfapp reads: "
                "install a newer sfapp"
            )
        if written < 1:
            raise PacketError(f"packet format {written} does not exist")
        return _MANIFEST.decode(raw)
    except msgspec.ValidationError as error:
        raise PacketError(f"the manifest is wrong: {first_line(str(error))}") from error
    except UNREADABLE_JSON as error:
        raise PacketError(f"the manifest is not readable JSON: {first_line(str(error))}") from error


def check_manifest(manifest: Manifest, faults: Faults) -> bool:
    """Report every fault in the manifest alone.

    Returns:
        Whether its stages can be looked up among the columns.
    """
    check_name("run_id", manifest.run_id, faults)
    for what, name in (("attempt", manifest.attempt), ("process", manifest.process)):
        if name is not None:
            check_name(what, name, faults)
    if not 0 <= manifest.window <= MOST_WINDOW:
        faults.add(f"window number {manifest.window} is outside 0…10^18−1")
    if not 1 <= manifest.world_size <= MAX_WORLD_SIZE:
        faults.add(f"world_size {manifest.world_size} is outside 1…{MAX_WORLD_SIZE:,}")
    if _is_deep(manifest.extra):
        faults.add(f"extra of the manifest is nested more than {MAX_DEPTH} deep")
    usable = _check_stages(manifest, faults)
    if len(manifest.stages) > MAX_STAGES:
        return False  # What follows takes time for each of them.
    _check_micro_steps(manifest, faults)
    missing = manifest.missing_ranks
    if len(set(missing)) != len(missing):
        faults.add("missing_ranks names a rank twice")
    for rank in missing:
        if not 0 <= rank < manifest.world_size:
            faults.add(f"missing rank {rank} is outside world_size {manifest.world_size}")
            break
    if manifest.reduced is not None:
        _check_reduction(manifest, manifest.reduced, faults)
    return usable


def check_layout(layout: Mapping[str, tuple[int, ...]], ranks: int, faults: Faults) -> None:
    """Report coordinates that cannot be those of the ranks with rows.

    Several ranks may have the same coordinates: expert parallelism uses ranks of other dimensions.

    Args:
        ranks: number of ranks with rows.
    """
    for name, coordinates in layout.items():
        if name not in DIMENSIONS:
            faults.add(f"layout has the dimension {quoted(name)}, which is none of {', '.join(DIMENSIONS)}")
        elif len(coordinates) != ranks:
            faults.add(f"layout has {len(coordinates):,} coordinates in {name} for {ranks:,} ranks with rows")
        elif coordinates and not 0 <= min(coordinates) <= max(coordinates) < MAX_WORLD_SIZE:
            faults.add(f"layout has a coordinate in {name} outside 0…{MAX_WORLD_SIZE - 1:,}")


def check_attributes(attributes: Mapping[str, tuple[str, ...]], ranks: int, faults: Faults) -> None:
    """Report attributes that cannot be those of the ranks with rows.

    Args:
        attributes: values by name: one for each rank, or a single one of all ranks.
        ranks: number of ranks with rows.
    """
    if len(attributes) > MAX_ATTRIBUTES:
        faults.add(f"attributes has {len(attributes):,} names, more than {MAX_ATTRIBUTES}")
        return
    for name, values in attributes.items():
        check_name("attribute", name, faults)
        if len(values) not in (1, ranks):
            faults.add(f"attributes has {len(values):,} values of {quoted(name)} for {ranks:,} ranks")
        elif any(len(value) > MAX_ATTRIBUTE_LENGTH or not is_unicode(value) for value in set(values)):
            faults.add(
                f"attributes has a value of {quoted(name)} that is not valid Unicode, or has more than "
                f"{MAX_ATTRIBUTE_LENGTH} characters"
            )


def shortened(attributes: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]] | None:
    """Return attributes as a manifest has them: a single value where all ranks have the same; None if there
    are none."""
    return {
        name: values[:1] if len(set(values)) == 1 else values for name, values in attributes.items()
    } or None


def check_name(what: str, name: str, faults: Faults) -> None:
    """Report a name that is empty, too long or not valid Unicode."""
    if not name:
        faults.add(f"{what} is empty")
    elif len(name) > MAX_NAME_LENGTH:
        faults.add(f"{what} {quoted(name)} has {len(name)} characters, more than {MAX_NAME_LENGTH}")
    elif not is_unicode(name):
        faults.add(f"{what} {quoted(name)} is not valid Unicode")


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for each in level for child in _children(each)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _check_stages(manifest: Manifest, faults: Faults) -> bool:
    stages = manifest.stages
    if len(stages) > MAX_STAGES:
        faults.add(f"{len(stages):,} stages, more than the {MAX_STAGES:,} that a packet may have")
        return False
    reserved = [stage for stage in stages if is_reserved(stage)]
    doubled = [(stage, count) for stage, count in Counter(stages).items() if count > 1]
    if not stages:
        faults.add("the stage list is empty")
    for stage in stages:
        check_name("stage", stage, faults)
    for stage in reserved:
        faults.add(f"stage {quoted(stage)} has the name of a column that is no stage")
    for stage, count in doubled:
        faults.add(f"stage {quoted(stage)} is listed {count} times")
    if all(map(is_unicode, stages)) and manifest.stage_hash != (expected := stage_hash(stages)):
        written = quoted(manifest.stage_hash[:12])
        faults.add(f"stage_hash {written}… is not that of the listed stages, {expected[:12]!r}…")
    return bool(stages) and not reserved and not doubled


def _check_micro_steps(manifest: Manifest, faults: Faults) -> None:
    """Check that a stage kept apart by micro-step has one of each, ``[0]`` to ``[factor − 1]``, and that some
    stage is kept apart if the manifest says so.
    """
    accumulation = manifest.accumulation
    factor = accumulation.factor
    if not 1 <= factor <= MAX_VALUE:
        faults.add(f"accumulation factor {factor} is outside 1…2^62")
        return
    micro_steps: defaultdict[str, list[str]] = defaultdict(list)
    for stage in manifest.stages:
        broad = broad_stage(stage)
        if broad != stage:
            micro_steps[broad].append(stage[len(broad) + 1 : -1])
    if accumulation.ordered and factor > 1 and manifest.stages and not micro_steps:
        faults.add(
            f"accumulation says that {factor} micro-steps are kept apart (ordered), but no stage is: "
            "name stages by micro-step, as in 'data.next_wait[0]'"
        )
    for broad, present in micro_steps.items():
        if len(present) != factor or set(present) != {str(index) for index in range(factor)}:
            faults.add(
                f"stage {quoted(broad)} has the micro-steps {quoted(', '.join(present))}, "
                f"but accumulation factor {factor} needs 0 to {factor - 1}"
            )


def _check_reduction(manifest: Manifest, reduction: Reduction, faults: Faults) -> None:
    """Report impossible values in the manifest's description of the reduction."""
    size = manifest.world_size
    if reduction.ranks + len(set(manifest.missing_ranks)) != size:
        faults.add(f"reduced.ranks {reduction.ranks} and missing_ranks do not make up world_size {size}")
    if not 1 <= reduction.nodes <= max(1, reduction.ranks):
        faults.add(f"reduced.nodes {reduction.nodes} is outside 1…{reduction.ranks}")
    for what in ("residual_ns", "wall_ns"):
        if not 0 <= getattr(reduction, what) <= MAX_VALUE:
            faults.add(f"reduced.{what} is outside 0…2^62")
    if not (math.isfinite(reduction.overlap_share) and reduction.overlap_share >= 0):
        faults.add("reduced.overlap_share is no share")
    for each in reduction.named:
        if not (0 <= each.rank < size and 0 <= each.local_rank <= MAX_RANK_VALUE):
            faults.add(f"reduced.named holds rank {each.rank}, outside world_size {size}")
        if not 0 <= each.node_rank <= MAX_RANK_VALUE:
            faults.add(f"reduced.named holds node {each.node_rank}")
        if len(each.hostname) > MAX_NAME_LENGTH or not is_unicode(each.hostname):
            faults.add(f"reduced.named holds a host {quoted(each.hostname)} that is no name")
    for stage in reduction.waits:
        if stage not in manifest.stages or reduction.waits.count(stage) > 1:
            faults.add(f"reduced.waits holds {quoted(stage)}, which is no stage, or holds it twice")
            break
    for stage, counts in reduction.lag_counts.items():
        if len(counts) != LAG_BINS or min(counts) < 0:
            faults.add(f"reduced.lag_counts of {quoted(stage)} are not {LAG_BINS} counts")
