"""``/docs``: the OpenAPI document as our own page, because the usual one loads scripts from the internet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.responses import HTMLResponse

from sfapp.app.address import asset_url, rooted
from sfapp.views.html_text import html_text

RUN = "One run: its windows in order, their reference, and where effects began and ended"

EPISODES = (
    "`episodes`: neighbouring windows with the same finding that needs attention, the earliest first. `kind` "
    "(`rank` or `growth`), `stage`, `ranks`, `hostname`, `first_window`, `last_window`, `windows` (their "
    "number), `effect` (the largest, as a part of the step), `began` (first step with the effect) and "
    "`ended` (last step with it; null if the run's last window has it). Both have `step` (null if only "
    "the interval is known), `low` and `high` (95 %)."
)
"""Fields of the episodes of a run (``sfapp.model.onsets``)."""


def add(application: FastAPI) -> None:
    """Serve the page, in addition to ``/openapi.json``."""

    @application.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(_page(application.openapi()))


def _page(schema: Mapping[str, Any]) -> str:
    info = schema["info"]
    entries = "".join(_entries(schema["paths"]))
    home, data = rooted("/"), rooted("/openapi.json")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>API · sfapp</title>'
        '<meta name="viewport" content="width=device-width">'
        f'<link rel="stylesheet" href="{asset_url("docs.css")}">'
        f'<h1><a href="{home}">sfapp</a> · API</h1><p>{html_text(info["description"])} '
        f"Version {html_text(info['version'])}. "
        f'Machine-readable: <a href="{data}">openapi.json</a>.</p>'
        f"{entries}</html>"
    )


def _entries(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            shown = html_text(path)
            plain = "{" not in path
            link = f'<a href="{rooted(shown)}">{shown}</a>' if plain else shown
            yield f"<section><h2><b>{html_text(method.upper())}</b> <code>{link}</code></h2>"
            yield f"<p>{html_text(operation.get('summary', ''))}</p>"
            if operation.get("description"):
                yield f"<p>{html_text(operation['description'])}</p>"
            parameters = operation.get("parameters", [])
            if parameters:
                yield "<table><tr><th>parameter<th>in<th>default<th>meaning</tr>"
                yield from (_parameter(parameter) for parameter in parameters)
                yield "</table>"
            yield "</section>"


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter.get("schema", {})
    default = schema.get("default")
    cells = (
        parameter["name"],
        parameter["in"],
        "" if default is None else default,
        parameter.get("description") or schema.get("description", ""),
    )
    return f"<tr>{''.join(f'<td>{html_text(str(cell))}' for cell in cells)}</tr>"
