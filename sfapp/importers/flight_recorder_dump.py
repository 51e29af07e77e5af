"""Read one PyTorch Flight Recorder dump: pickle (plain data only) or JSON, by its first byte."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from sfapp.errors import TraceError
from sfapp.importers.safe_pickle import MAX_CONTAINERS, MAX_VALUES, plain_data, too_many
from sfapp.importers.source_files import expand, most_values
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.packets.packet_layout import MAX_RANK_VALUE
from sfapp.terminal import first_line

MAX_BYTES = 2**28
"""Largest dump: torch keeps 2,000 collectives of some hundred bytes by default."""

MOST_MEMBERS = 4 * MAX_WORLD_SIZE
"""Ranks in the lists of all groups of a dump, or of all dumps of a job. A job lists all its ranks once for
each of some dimensions."""

_RANK = re.compile(r"(?<!\d)(\d{1,9})(?:\.[A-Za-z]+)*\Z")

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
"""Number or time, ns, bounded so that the difference of any two fits 64 bits."""


class CollectiveEntry(msgspec.Struct, frozen=True):
    """One collective on one rank; times in ns since 1970, by the rank's host."""

    profiling_name: str
    collective_seq_id: Count
    time_created_ns: Count
    process_group: tuple[str, str]
    is_p2p: bool = False
    time_discovered_started_ns: Count | None = None
    time_discovered_completed_ns: Count | None = None
    input_sizes: list[list[Count]] = []
    thread_id: str | Count = ""


class ProcessGroup(msgspec.Struct, frozen=True):
    """A process group; ``ranks`` is the list of its global ranks as text."""

    desc: str = ""
    ranks: str = ""

    @property
    def most_members(self) -> int:
        """Return the largest number of ranks that the text can list; an eighth of its length if that is more,
        because the text is kept too."""
        return max(self.ranks.count(",") + 1, len(self.ranks) // 8)


class FlightRecorderDump(msgspec.Struct, frozen=True):
    """The dump of one rank."""

    version: str
    entries: list[CollectiveEntry]
    pg_config: dict[str, ProcessGroup] = {}


Dump = TypeVar("Dump", bound=FlightRecorderDump)


def rank_of(path: Path) -> int:
    """Return the rank at the end of a dump's name, as torch names it: ``nccl_trace_rank_3``.

    Raises:
        TraceError: the name does not end in a rank.
    """
    match = _RANK.search(path.name)
    if match is None or int(match[1]) > MAX_RANK_VALUE:
        raise TraceError("its name does not end in the rank: nccl_trace_rank_3, or dump_3.json")
    return int(match[1])


def read_dump(path: Path, kind: type[Dump]) -> Dump:
    """Read one file as ``FlightRecorderDump`` or a type with more of its fields.

    Raises:
        TraceError: it is neither JSON nor a pickle, would run code, or is not a dump; with the place.
    """
    data = expand(path, MAX_BYTES)
    try:
        if data.lstrip()[:1] == b"{":
            containers, values = most_values(data)
            if containers > MAX_CONTAINERS or values > MAX_VALUES:
                raise TraceError(too_many())
            dump = msgspec.json.decode(data, type=kind, strict=False)
        else:
            dump = msgspec.convert(plain_data(data), kind, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).rpartition(" - at `")
        raise TraceError(
            f"is not a Flight Recorder dump as written by torch 2.5 and later: {what or place}",
            place=place.rstrip("`") if what else None,
        ) from error
    except UNREADABLE_JSON as error:
        raise TraceError(f"is not valid JSON: {first_line(str(error))}") from error
    members = sum(group.most_members for group in dump.pg_config.values())
    if members > MOST_MEMBERS:
        raise TraceError(f"lists {members:,} ranks in its groups, more than {MOST_MEMBERS:,}")
    return dump
