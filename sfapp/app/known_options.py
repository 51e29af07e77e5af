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

TOKEN = "token"
"""Option of every address, which a server without a token ignores."""


def refuse_unknown_options(request: Request) -> None:
    """Refuse options that are given twice and, on behalf of routes that do not parse the query themselves,
    unknown ones.

    Raises:
        OptionError: the query has one; the message names those of the route.
    """
    route: APIRoute = request.scope["route"]
    if not route.include_in_schema:
        return
    known, given = _options(request.app, route.path_format), set[str]()
    for name, _ in request.query_params.multi_items():
        is_known = name in (*known, *_OF_THE_PAGE.get(route.path_format, ()), TOKEN)
        if not is_known and route.openapi_extra is None:
            options = f"its options are {', '.join(known)}" if known else "it has none"
            raise OptionError(f"{format.clip(name)!r} is not an option of {route.path_format}: {options}")
        if name in given:
            raise OptionError(f"the option {format.clip(name)!r} is given more than once")
        given.add(name)


def _options(application: FastAPI, path: str) -> list[str]:
    """Return the names of a route's options, as documented."""
    operation: dict[str, Any] = application.openapi()["paths"][path]["get"]
    return [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
