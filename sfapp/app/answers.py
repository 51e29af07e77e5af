"""Responses of the API: JSON, CSV files and archives, with their declarations for OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from sfapp.service.csv_table import csv_text

MAX_ROWS = 1000
"""Maximum number of rows of a list in one JSON response."""


def _declared(description: str) -> dict[str, Any]:
    message = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    return {"description": description, "content": {"application/json": {"schema": message}}}


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: _declared("The query has invalid values"),
    401: {"description": "The server requires a token", "content": {"text/html": {}}},
    404: _declared("The run, window, problem or incident does not exist"),
    429: {"description": "Too many wrong tokens from this address", "content": {"text/plain": {}}},
    503: _declared("The store has failed, or as many answers as are made at once are being made"),
}
"""Error responses of every data route, for the OpenAPI document."""

BUSY: dict[int | str, dict[str, Any]] = {
    503: _declared("As many such downloads as are allowed at once are being made"),
}
"""Error response of a download that waits for a turn."""


class CsvResponse(Response):
    """Response with a table as CSV."""

    media_type = "text/csv"


class ZipResponse(Response):
    """Response with an archive."""

    media_type = "application/zip"


def json_answer(document: Any, status: int = 200) -> Response:
    """Return plain data as JSON: times as RFC 3339, NaN as null."""
    return Response(msgspec.json.encode(document), status, media_type="application/json")


def csv_answer(rows: Sequence[Mapping[str, Any]], name: str) -> Response:
    """Return rows as a CSV file that a browser saves under this name."""
    return CsvResponse(csv_text(rows), headers=saved_as(f"{name}.csv"))


def saved_as(name: str) -> dict[str, str]:
    """Return the header that makes a browser save a file under this name, which must be trusted."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}
