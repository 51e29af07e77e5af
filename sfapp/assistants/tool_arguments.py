"""Arguments of the tools: their JSON schemas, and the check of what an assistant sends."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sfapp.errors import ParseError
from sfapp.model.fleet import RunState
from sfapp.model.search_words import MAX_SEARCH
from sfapp.model.trends import BY_DAY, MOST_FIELD
from sfapp.terminal import first_line

MOST_ROWS = 100
LONGEST_NAME = 4_000

_Limit = Annotated[int, Meta(ge=1, le=MOST_ROWS, description="maximum number of rows")]
_Offset = Annotated[int, Meta(ge=0, le=10**9, description="position of the first row")]
_Search = Annotated[
    str, Meta(max_length=MAX_SEARCH, description="only rows with all these words; all if empty")
]
_Run = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, description="run_id, as list_runs has it")]
_Window = Annotated[int, Meta(ge=0, lt=10**18, description="number of the window in its run")]
_Group = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_NAME,
        description="judge only these ranks: all, role:NAME or node:K",
    ),
]
_Side = Annotated[
    str, Meta(min_length=1, max_length=LONGEST_NAME, description="RUN/WINDOW, or RUN for all its windows")
]


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a tool; unknown ones are refused."""


class RunsArguments(ToolArguments, frozen=True):
    """Arguments of ``list_runs``."""

    text: _Search = ""
    state: Annotated[
        RunState | None,
        Meta(
            description="ongoing: the latest window needs attention or lacks data; past: an earlier one "
            "does; healthy: none does"
        ),
    ] = None
    limit: _Limit = 20
    offset: _Offset = 0


class WindowsArguments(ToolArguments, frozen=True):
    """Arguments of ``list_windows``."""

    run: _Run
    needs_attention: Annotated[
        bool | None,
        Meta(description="true: only windows that need attention or lack data; false: only the others"),
    ] = None
    order: Annotated[
        Literal["worst", "latest", "first"],
        Meta(description="worst: windows that lack data, then by severity"),
    ] = "worst"
    limit: _Limit = 20
    offset: _Offset = 0


class ProblemsArguments(ToolArguments, frozen=True):
    """Arguments of ``list_problems``."""

    run: _Run | None = None
    ongoing: Annotated[bool, Meta(description="only those that the latest window of their run has")] = False
    text: _Search = ""
    sort: Annotated[
        Literal["cost", "newest", "oldest", "run"],
        Meta(description="cost: standstills and missing data first, then by rank-hours lost"),
    ] = "cost"
    limit: _Limit = 20
    offset: _Offset = 0


class ProblemArguments(ToolArguments, frozen=True):
    """Arguments of ``get_problem``."""

    id: Annotated[str, Meta(min_length=1, max_length=64, description="id, as list_problems has it")]


class WindowArguments(ToolArguments, frozen=True):
    """Arguments of ``get_window``."""

    run: _Run
    window: _Window
    group: _Group = "all"
    fields: Annotated[
        list[Annotated[str, Meta(max_length=64)]],
        Meta(max_length=60, description="names of the fields to return instead of the most important ones"),
    ] = []


class CompareArguments(ToolArguments, frozen=True):
    """Arguments of ``compare``."""

    a: _Side
    b: _Side
    c: _Side | None = None
    group: _Group = "all"


class HangArguments(ToolArguments, frozen=True):
    """Arguments of ``analyze_hang``."""

    run: _Run | None = None
    dumps: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=LONGEST_NAME,
                description="folder of PyTorch Flight Recorder dumps, below a folder that the server was "
                "started with; relative paths begin there",
            ),
        ]
        | None
    ) = None


class FleetArguments(ToolArguments, frozen=True):
    """Arguments of ``fleet``."""

    text: _Search = ""
    by: Annotated[
        str,
        Meta(max_length=MOST_FIELD, description="field by which runs are compared, such as image"),
    ] = BY_DAY
    limit: _Limit = 20


def schema_of_arguments(arguments: type[ToolArguments]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    _, components = msgspec.json.schema_components([arguments])
    found: dict[str, Any] = dict(components[arguments.__name__])
    return {key: value for key, value in found.items() if key not in ("title", "description")}


def parse_arguments(arguments: type[ToolArguments], given: object) -> Any:
    """Return the arguments of a call.

    Raises:
        ParseError: one is unknown, missing, of another type or out of bounds; the message names it.
    """
    try:
        return msgspec.convert(given, arguments)
    except msgspec.ValidationError as error:
        known = ", ".join(arguments.__struct_fields__)
        raise ParseError(f"invalid arguments: {first_line(str(error), 400)} (arguments: {known})") from error
