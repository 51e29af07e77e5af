"""The server of the Model Context Protocol, and its transport over stdio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

import sfapp
from sfapp.assistants.bounded_answer import OUTPUT_SCHEMA
from sfapp.assistants.tool_arguments import schema_of_arguments
from sfapp.assistants.tools import INSTRUCTIONS, TOOLS
from sfapp.errors import SfappError
from sfapp.service.workspace import Workspace
from sfapp.terminal import printable, quoted

FIRST_INGEST_S = 20.0
"""Seconds for which a call waits until the packets have been read once. After that, the answer
notes that runs may be missing."""

MOST_AT_ONCE = 2
"""Maximum number of calls that are answered at once; others wait. Each may hold a window in memory."""

LONGEST_ERROR = 2_000

_POLL_S = 0.02
_logger = logging.getLogger(__name__)


def build_server(workspace: Workspace) -> Server[Any]:
    """Return the server; the workspace is kept up to date while it runs."""
    # Its threads are the bound: a call keeps its thread until it ends, also if its client has given up.
    threads = ThreadPoolExecutor(MOST_AT_ONCE, "sfapp-tools")

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[None]:
        workspace.start()
        try:
            yield
        finally:
            workspace.stop()

    async def list_tools(
        _: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_described_tools())

    async def call_tool(
        _: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool {quoted(params.name)}: {', '.join(TOOLS)}")
        notes = await _until_read(workspace)
        try:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(threads, tool.answer, workspace, params.arguments or {})
        except SfappError as error:
            return _failed(str(error))
        except Exception:
            _logger.exception("tool %s failed", tool.name)
            return _failed("sfapp failed to answer; its log has the reason")
        if notes:
            answer["notes"] = [*answer.get("notes", ()), *notes]
        text = types.TextContent(type="text", text=msgspec.json.encode(answer).decode())
        return types.CallToolResult(content=[text], structured_content=answer)

    return Server(
        "sfapp",
        version=sfapp.__version__,
        title="sfapp",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described_tools() -> list[types.Tool]:
    read_only = types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    return [
        types.Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=schema_of_arguments(tool.arguments),
            output_schema=dict(OUTPUT_SCHEMA),
            annotations=read_only,
        )
        for tool in TOOLS.values()
    ]


def _failed(message: str) -> types.CallToolResult:
    """Return an error for the assistant; names in it are escaped."""
    text = types.TextContent(type="text", text=f"Error: {printable(message, LONGEST_ERROR)}")
    return types.CallToolResult(content=[text], is_error=True)


async def _until_read(workspace: Workspace) -> list[str]:
    """Wait until the packets have been read once; return a note if they have not, or cannot be read."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FIRST_INGEST_S
    while workspace.status().kind == "reading" and loop.time() < deadline:
        await asyncio.sleep(_POLL_S)
    status = workspace.status()
    if status.kind == "reading":
        return [
            "The packets are still being read for the first time, so runs may be missing: ask again later."
        ]
    if status.kind == "failed":
        return ["New packets cannot be read at present, so the answer may be old."]
    return []


async def serve_stdio(workspace: Workspace) -> None:
    """Serve one client over stdin and stdout, until it closes stdin."""
    server = build_server(workspace)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
