"""What the finder finds for a few words."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from sfapp.service.workspace import Workspace
from tests.app.data_client import client_of

PAGE = "/w/job/2"


@pytest.fixture
async def client(workspace: Workspace) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(workspace) as client:
        yield client


async def found(client: httpx.AsyncClient, **asked: str) -> list[tuple[str, str, str]]:
    response = await client.get("/find.json", params=asked)
    assert response.status_code == 200
    return [(each["kind"], each["text"], each["href"]) for each in response.json()["found"]]


async def test_a_rank_of_the_open_window_is_found_and_the_view_is_kept(client: httpx.AsyncClient) -> None:
    first = (await found(client, text="rank 3", path=PAGE, view="gamma_a=0.5"))[0]
    assert first == ("rank", "rank 3", "/w/job/2?tab=ranks&gamma_a=0.5&ranks=3")


async def test_a_number_is_a_rank_and_a_window(client: httpx.AsyncClient) -> None:
    numbered = [each for each in await found(client, text="4", path=PAGE) if each[1].split()[-1] == "4"]
    assert ("rank", "rank 4", "/w/job/2?tab=ranks&ranks=4") in numbered
    assert ("window", "window 4", "/w/job/4") in numbered


async def test_a_host_leads_to_its_node(client: httpx.AsyncClient) -> None:
    assert ("host", "node-1", "/w/job/2?tab=node:1") in await found(client, text="node-1", path=PAGE)


async def test_runs_and_pages_are_found_on_every_page(client: httpx.AsyncClient) -> None:
    assert ("run", "job", "/runs/job") in await found(client, text="job", path="/glossary")
    assert ("page", "All incidents", "/incidents") in await found(client, text="incid")


@pytest.mark.parametrize("path", ["/w/job/77", "/w/none/1", "/w/%2F/1", "/x"])
async def test_a_page_without_a_window_finds_no_ranks(client: httpx.AsyncClient, path: str) -> None:
    assert not [each for each in await found(client, text="3", path=path) if each[0] in ("rank", "host")]
