"""Map foreign names to stages, columns and roles by a TOML or JSON file that the user writes.

stages = ["data.next_wait", "data.h2d", "model.fwd_loss_cpu_wall"]   # order of stages
step = "train step *"          # the range that is one step, if the source has no steps
unit = "ms"                    # unit of columns that hold times

[ranges]                       # shell patterns; the first match counts; "" leaves a range out
"my forward*" = "model.fwd_loss_cpu_wall"

[columns]                      # meaning = name of the column
rank = "global_rank"

[roles]                        # ranks = role
"0-3,8" = "pp0"

file = "pp_rank_{rank}.json*"  # tables: fields in a file's name; other files of the folder are left out

[rows]                         # tables in JSON: the path of keys to numbers of a kind
start = "{step}/{stage}_start/{micro_step}"
"""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec

from sfapp.errors import ParseError, TraceError
from sfapp.files import read_regular
from sfapp.model.parse import parse_ranks
from sfapp.model.stages import (
    BACKWARD,
    CALLBACKS,
    DATA,
    FORWARD,
    MAX_NAME_LENGTH,
    OPTIMIZER,
    RESIDUAL,
    broad_stage,
    stage_category,
)

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds of each unit."""

_MAX_BYTES = 2**20
_MAX_RANKS = 2**20
_ORDER = ("between", "data", "forward", "backward", "callbacks", "optimizer", "other")
_CANONICAL = (DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Meaning of foreign names.

    Attributes:
        stages: the order of stages; unlisted stages follow in the order of training.
        step: shell pattern of the range that is one step; None uses the format's rule.
        unit: unit of columns that hold times, one of ``UNITS``; None uses the format's unit.
        ranges: shell pattern of a range's (or foreign stage's) name → stage; an empty stage leaves it out.
        columns: meaning → name of the column.
        roles: ranks (``"0-3,8"``) → role.
        file: fields in the name of a table's file (``"pp_rank_{rank}.json*"``); None for none.
        rows: for tables in JSON, ``duration``, ``start``, ``end`` or ``wall`` → path of such numbers.
    """

    stages: tuple[str, ...] = ()
    step: str | None = None
    unit: str | None = None
    ranges: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    file: str | None = None
    rows: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stage in (*self.stages, *self.ranges.values()):
            if len(stage) > MAX_NAME_LENGTH:
                raise TraceError(f"stage {stage[:40]!r}… has more than {MAX_NAME_LENGTH} characters")
        if self.unit is not None and self.unit not in UNITS:
            raise TraceError(f"unit must be one of {', '.join(UNITS)}, not {self.unit!r}")
        for text in self.roles:
            _ranks_of(text)

    def stage_of(self, name: str) -> str | None:
        """Return the stage of a range; empty if it is left out, None if no pattern matches."""
        for pattern, stage in self.ranges.items():
            if fits(name, pattern):
                return stage
        return None

    def is_step(self, name: str) -> bool:
        """Return whether a range of this name is one step."""
        return self.step is not None and fits(name, self.step)

    def column(self, needed: str) -> str:
        """Return the name of the column with this meaning, by default the meaning itself."""
        return self.columns.get(needed, needed)

    def role_of(self, rank: int) -> str | None:
        """Return the role of a rank, None if none is declared."""
        return next((role for text, role in self.roles.items() if rank in _ranks_of(text)), None)

    def ordered(self, stages: Iterable[str]) -> tuple[str, ...]:
        """Return these stages in order, each once, the residual last.

        Stages that ``stages`` lists come first, then the others in the order of training (between
        steps, data, forward, backward, callbacks, optimizer), a family's broad stage first.
        """
        listed = {stage: place for place, stage in enumerate(self.stages)}

        def place(stage: str) -> tuple[int, int, int]:
            if stage == RESIDUAL:
                return (2, 0, 0)
            if stage in listed:
                return (0, listed[stage], 0)
            return (1, _ORDER.index(stage_category(stage)), broad_stage(stage) not in _CANONICAL)

        return tuple(sorted(dict.fromkeys(stages), key=place))


NO_MAPPING = Mapping()
"""Empty mapping: each format's own names count."""


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern), re.DOTALL)


def fits(name: str, pattern: str) -> bool:
    """Return whether a case-sensitive shell pattern (``*``, ``?``, ``[…]``) matches a whole name."""
    return _pattern(pattern).match(name) is not None


@lru_cache(maxsize=256)
def _ranks_of(text: str) -> frozenset[int]:
    """Return the ranks of ``"0-3,8"``.

    Raises:
        TraceError: the text is not a list of ranks, or names more than 2^20.
    """
    try:
        return frozenset(parse_ranks(text, _MAX_RANKS))
    except ParseError as error:
        raise TraceError(f"ranks {error}, not {text[:80]!r}") from error


def read_mapping(path: Path) -> Mapping:
    """Read the mapping in a ``.toml`` or ``.json`` file.

    Raises:
        TraceError: the file cannot be read or contains an unknown setting.
    """
    try:
        text = read_regular(path, _MAX_BYTES).decode()
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        _refuse_unknown(content, Mapping.__slots__)
        return msgspec.convert(content, Mapping)
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", path=str(path)) from error
    except TraceError as error:
        raise TraceError(error.reason, path=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"is not a mapping: {error}", path=str(path)) from error


def _refuse_unknown(content: object, known: Sequence[str]) -> None:
    if not isinstance(content, dict):
        raise TraceError("a mapping must be a table of settings")
    for key in content:
        if key not in known:
            raise TraceError(f"unknown setting {key!r}; known settings: {', '.join(known)}")
