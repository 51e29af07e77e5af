"""A script that asks the app for data over HTTP."""

from __future__ import annotations

import httpx
from fastapi import FastAPI

from sfapp.app import api
from sfapp.service.workspace import Workspace


def client_of(workspace: Workspace) -> httpx.AsyncClient:
    """A client of every data route, without the pages."""
    application = FastAPI(title="sfapp", version="1", description="as data", docs_url=None, redoc_url=None)
    api.build(application, workspace)
    return httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://127.0.0.1")
