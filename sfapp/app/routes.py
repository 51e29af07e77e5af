"""The table of pages, which the header, the help and the finder read.

A page's module is loaded when it is first shown: the server starts faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from fastapi import Request
from nicegui import app, ui
from nicegui.dependencies import register_importmap_override
from starlette.responses import Response

from sfapp.app.address import asset_url
from sfapp.app.element_signatures import keep_signatures
from sfapp.service.workspace import Workspace

Handler = Callable[..., Awaitable[Response | None]]
"""Draws a page; called with the request and the parameters in the path."""


@dataclass(frozen=True, slots=True)
class PageModule:
    """Module in ``sfapp.app.pages``.

    Its ``build(workspace)`` returns the handler of each of its paths.

    Attributes:
        title: its name in the finder, which offers its first path; empty for pages about one thing.
        header: its name in the header of every page; empty for pages that have no link there.
        key: keyboard shortcut of that link, which the help lists with the title.
        timeout_s: seconds until a request is answered with an error.
    """

    name: str
    paths: tuple[str, ...]
    title: str = ""
    header: str = ""
    key: str = ""
    timeout_s: float = 30.0

    def load(self) -> ModuleType:
        """Return the module."""
        return import_module(f"sfapp.app.pages.{self.name}")


PAGES = (
    PageModule("problems", ("/",), "All problems"),
    PageModule("problem", ("/problems/{problem_id}",)),
    PageModule("windows", ("/windows",), "All windows"),
    PageModule("window", ("/w/{run_id:run}/{number:window}",), timeout_s=60.0),
    PageModule("history", ("/runs/{run_id:run}",)),
    PageModule("fleet", ("/fleet",), "All runs and hosts", "Fleet", "f"),
    PageModule("live", ("/live", "/live/{run_id:run}"), "Running jobs", "Live", "l"),
    PageModule("incidents", ("/incidents",), "All incidents", "Incidents", "i"),
    PageModule("incident", ("/incident/{incident_id}",)),
    PageModule("compare", ("/compare",), "Compare windows or runs", timeout_s=60.0),
    PageModule("glossary", ("/glossary",), "Glossary"),
    PageModule("quarantine", ("/quarantine",), "Refused files"),
)


def load_pages() -> None:
    """Load the modules of all pages."""
    for module in PAGES:
        module.load()


def register_pages(workspace: Workspace) -> None:
    """Register every page with NiceGUI."""
    # A third of the size of NiceGUI's bundle, so pages load faster.
    register_importmap_override("nicegui-plotly", asset_url("plotly.js"))
    keep_signatures()
    for module in PAGES:
        _register(module, workspace)

    def show_failure(error: Exception) -> None:
        from sfapp.app.pages import not_found  # It reads this table.

        not_found.failed(workspace, error)

    app.on_page_exception(show_failure)


def _register(module: PageModule, workspace: Workspace) -> None:
    handlers: list[Handler] = []

    def load() -> None:
        handlers[:] = module.load().build(workspace)

    def page(number: int) -> Handler:
        async def show(request: Request) -> Response | None:
            if not handlers:
                await asyncio.to_thread(load)
            return await handlers[number](request, **request.path_params)

        return show

    for number, path in enumerate(module.paths):
        ui.page(path, response_timeout=module.timeout_s)(page(number))
