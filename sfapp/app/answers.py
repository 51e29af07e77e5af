"""Answers of the JSON API: plain data as JSON, rows as a CSV file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from sfapp.service.csv_table import csv_text


def json_answer(document: Any, status: int = 200) -> Response:
    """Return plain data as JSON: times as RFC 3339; NaN is no JSON and becomes null."""
    return Response(msgspec.json.encode(document), status, media_type="application/json")


def csv_answer(rows: Sequence[Mapping[str, Any]], name: str) -> Response:
    """Return rows as a CSV file that a browser saves under this name."""
    disposition = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(csv_text(rows), media_type="text/csv; charset=utf-8", headers=disposition)
