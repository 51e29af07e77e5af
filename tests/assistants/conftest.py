"""A client of the mcp package, connected to the server in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types

from sfapp.assistants.mcp_server import build_server
from sfapp.service.workspace import Workspace
from sfapp.store import Store


@dataclass(frozen=True)
class Asking:
    """A connected assistant."""

    client: Client

    async def full(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return an answer, which must have the same content as text."""
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        assert isinstance(content, types.TextContent)
        assert not result.is_error, content.text
        found: dict[str, Any] = json.loads(content.text)
        assert result.structured_content == found
        return found

    async def data(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the data of an answer."""
        found: dict[str, Any] = (await self.full(tool, **arguments))["untrusted_data"]
        return found

    async def error(self, tool: str, **arguments: Any) -> str:
        """Return the message of a refused call."""
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        assert isinstance(content, types.TextContent)
        assert result.is_error
        assert result.structured_content is None
        return content.text


Assistant = Callable[..., AbstractAsyncContextManager[Asking]]


@pytest.fixture
def assistant() -> Assistant:
    """Connect an assistant to a server over some packets: ``async with assistant(folder) as asking``."""

    @asynccontextmanager
    async def connected(*paths: Path) -> AsyncIterator[Asking]:
        with Store.open(paths, memory=True) as store:
            workspace = Workspace(store, paths)
            async with Client(build_server(workspace)) as client:
                yield Asking(client)
            workspace.close()

    return connected
