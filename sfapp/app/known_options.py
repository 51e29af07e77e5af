"""Refuse options that a data route does not have: all windows would answer a misspelt filter."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute

from sfapp.errors import OptionError
from sfapp.views import format

_OF_THE_PAGE = {
    "/windows.json": ("axis",),
    "/windows.csv": ("axis",),
    "/problems.json": ("axis",),
    "/problems.csv": ("axis",),
    "/problems/{problem}.json": ("group",),
    "/incidents.json": ("sort",),
    "/live/{run}.json": ("tab",),
}
"""Options that only the page of the same address uses: its query is also that of its data."""

_TOKEN = "token"
"""Option of every address, which a server without a token ignores."""


def refuse_unknown_options(request: Request) -> None:
    """Refuse unknown and repeated options on behalf of routes that do not parse the query themselves.

    Raises:
        OptionError: the query has one; the message names those of the route.
    """
    route: APIRoute = request.scope["route"]
    if not route.include_in_schema or route.openapi_extra is not None:
        return
    known = _options(request.app, route.path_format)
    for name, _ in request.query_params.multi_items():
        if name not in (*known, *_OF_THE_PAGE.get(route.path_format, ()), _TOKEN):
            options = f"its options are {', '.join(known)}" if known else "it has none"
            raise OptionError(f"{format.clip(name)!r} is not an option of {route.path_format}: {options}")
        if len(request.query_params.getlist(name)) > 1:
            raise OptionError(f"the option {format.clip(name)!r} is given more than once")


def _options(application: FastAPI, path: str) -> list[str]:
    """Return the names of a route's options, as documented."""
    operation: dict[str, Any] = application.openapi()["paths"][path]["get"]
    return [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
