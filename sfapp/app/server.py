"""Start the server: bind the port, open the store, build the app, serve until a signal."""

from __future__ import annotations

import asyncio
import re
import socket
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import nicegui
from fastapi import FastAPI
from nicegui import core, ui
from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import sfapp
from sfapp.app import api
from sfapp.app.address import set_root_path
from sfapp.app.browser_opening import open_in_browser
from sfapp.app.garbage import collect_regularly
from sfapp.app.listening import bind, check_paths, check_reach, check_token, serve_until_signal
from sfapp.app.page_messages import check_messages
from sfapp.app.page_sockets import bound_sockets
from sfapp.app.page_turns import PageTurns
from sfapp.app.pages import not_found
from sfapp.app.public_address import PublicAddress
from sfapp.app.routes import load_pages, register_pages
from sfapp.app.security import (
    WILDCARDS,
    SecurityMiddleware,
    allowed_hosts,
    is_loopback,
)
from sfapp.assets import assets
from sfapp.errors import ServeError
from sfapp.heap import bound_heaps, exempt_present_objects, return_freed_memory_regularly
from sfapp.service.workspace import Workspace
from sfapp.storage import StoragePath, local_paths
from sfapp.store import Store

if TYPE_CHECKING:
    from sfapp.app.otlp import OtlpExporter

LOAD_PAGES_S = 2.0
"""Seconds from the start until the modules of all pages are loaded; the first page comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of ``sfapp serve``; ``db`` is None for the store next to the packets.
    ``public_url`` is the address under which a reverse proxy serves the app, if one does, and ``otlp`` that
    of a collector to which metrics are sent every ``otlp_interval`` seconds. ``browser`` is a folder of this
    user only, if the page is to be opened in a browser."""

    paths: tuple[StoragePath, ...]
    host: str = "127.0.0.1"
    port: int = 8642
    db: Path | None = None
    memory: bool = False
    token: str | None = None
    public_url: str | None = None
    otlp: str | None = None
    otlp_interval: float = 60.0
    browser: Path | None = None

    @property
    def public(self) -> PublicAddress | None:
        """Address under which a reverse proxy serves the app.

        Raises:
            ServeError: ``public_url`` is not such an address.
        """
        return None if self.public_url is None else PublicAddress.parse(self.public_url)


def serve(
    options: ServeOptions, announce: Callable[[str], None], abandon: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGINT or SIGTERM, then stop; the store is closed on return.

    Args:
        options: checked here, the paths first.
        announce: called with the address once the server responds.
        abandon: called from another thread if stopping takes too long; it ends the process.

    Raises:
        ServeError: a path is missing, the address is taken or not this machine's, a token is missing.
        StoreBusyError: another process holds the store.
    """
    _check(options)
    bound_heaps()
    exporter = _exporter(options)
    listener = bind(options.host, options.port)
    port = listener.getsockname()[1]
    with listener, Store.open(options.paths, db=options.db, memory=options.memory) as store:
        workspace = Workspace(store, options.paths)
        address = _address(options, port)

        def ready() -> None:
            announce(address)
            loop = asyncio.get_running_loop()
            if options.browser is not None:
                loop.run_in_executor(None, open_in_browser, address, options.browser)
            loop.call_later(LOAD_PAGES_S, loop.run_in_executor, None, _load_what_stays)

        # NiceGUI searches all live objects for its server, which triggers torch's deprecation warnings.
        warnings.filterwarnings("ignore", category=FutureWarning, message=r".*torch\.distributed")
        application = build(workspace, on_ready=ready, public=options.public)
        if exporter is not None:
            exporter.start(application.state.metrics)

        def close() -> None:
            if exporter is not None:  # It reads the store.
                exporter.stop()
            store.close()

        serve_until_signal(secured(application, options, port), listener, close=close, abandon=abandon)
        workspace.close()


def build(
    workspace: Workspace,
    *,
    on_ready: Callable[[], None] | None = None,
    public: PublicAddress | None = None,
) -> FastAPI:
    """Build the application without access control: JSON, tables and metrics first, then the pages.

    Args:
        on_ready: called when the server starts to respond.
        public: where a reverse proxy serves it, if one does.
    """
    set_root_path("" if public is None else public.root)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        workspace.start()
        if on_ready is not None:
            asyncio.get_running_loop().call_soon(on_ready)
        async with _memory_kept_low():
            yield
        workspace.stop()

    application = FastAPI(
        title="sfapp",
        version=sfapp.__version__,
        description="Every page of sfapp as data: the same address with .json, the same query.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    application.mount("/assets", _Assets(directory=assets()), name="assets")
    # NiceGUI itself passes every 64 kB of its files through two layers of middleware.
    files = Path(nicegui.__file__).parent / "static"
    application.mount(f"/_nicegui/{nicegui.__version__}/static", _Assets(directory=files), name="static")
    application.state.metrics = api.build(application, workspace)
    register_pages(workspace)
    check_messages()
    bound_sockets()
    ui.run_with(
        application,
        root=not_found.root(workspace),
        title="sfapp",
        favicon=(assets() / "logo.svg").read_text(encoding="utf-8"),
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=30,
        show_welcome_message=False,
        tailwind=False,
        # Compressing megabytes of script costs more than sending them over the loopback or a rack.
        gzip_middleware_factory=None,
    )
    for route in application.router.routes:
        if isinstance(route, Mount):  # whose pattern otherwise ends at a line break in the name of a run
            route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
            if route.app is core.app:
                route.app = PageTurns(core.app)
    return application


@asynccontextmanager
async def _memory_kept_low() -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each()) for each in (return_freed_memory_regularly, collect_regularly)]
    yield
    for task in tasks:
        task.cancel()


def _load_what_stays() -> None:
    """Load the modules of all pages, and have no collection look at them again."""
    load_pages()
    exempt_present_objects()


def _exporter(options: ServeOptions) -> OtlpExporter | None:
    """Return what sends the metrics, if a collector is named; its packages are loaded only then."""
    if options.otlp is None:
        return None
    from sfapp.app.otlp import OtlpExporter

    return OtlpExporter(options.otlp, options.otlp_interval)


_CHUNK_BYTES = 1 << 20
"""Size of the parts in which a file is read, each by a thread, and sent."""


class _Assets(StaticFiles):
    """Static files that browsers cache indefinitely, because their addresses change with their content."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        if isinstance(response, FileResponse):
            response.chunk_size = _CHUNK_BYTES
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def secured(application: ASGIApp, options: ServeOptions, port: int) -> SecurityMiddleware:
    """Return the application behind its access control."""
    return SecurityMiddleware(
        application,
        hosts=allowed_hosts(options.host),
        any_address=options.host in WILDCARDS,
        token=options.token,
        cookie=f"sfapp-{port}",
        public=options.public,
    )


def _check(options: ServeOptions) -> None:
    check_paths(local_paths(options.paths))
    check_token(options.token)
    public = options.public
    if options.token is None and public is not None and not is_loopback(public.host):
        raise ServeError(
            f"--public-url {options.public_url} can be reached from other machines: protect it with "
            "--token-file FILE or SFAPP_TOKEN"
        )
    check_reach(options.host, options.port, options.token, f"--host {options.host}")


def _address(options: ServeOptions, port: int) -> str:
    host = socket.gethostname() if options.host in WILDCARDS else options.host.strip("[]")
    shown = f"[{host}]" if ":" in host else host
    query = f"?token={quote(options.token, safe='')}" if options.token else ""
    if options.public is not None:
        return f"{options.public.url}{query}"
    return f"http://{shown}:{port}/{query}"
