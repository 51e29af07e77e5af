"""Pages that no browser opens: asked for by crawlers, link previews and ``curl``, which open no websocket."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from nicegui import Client, core
from nicegui.testing import User

from sfapp.app import connection, routes
from sfapp.app.notifications import event_of
from sfapp.service.workspace import Workspace
from tests.app.recorded_job import RUN, SICK

PAGES = (SICK, f"/runs/{RUN}", *(path for page in routes.PAGES for path in page.paths if "{" not in path))


@pytest.fixture(autouse=True)
def no_page_waiting() -> None:
    """No pages of earlier tests, whose event loops have ended."""
    connection.waiting.clear()
    connection.left.clear()


def callbacks(workspace: Workspace) -> int:
    """How many functions of pages are called when the store or the incidents change."""
    events = event_of(workspace.changed), event_of(workspace.incident_service.changed)
    return sum(len(event.callbacks) for event in events)


async def load(user: User, *paths: str) -> None:
    for path in paths:
        assert (await user.http_client.get(path)).status_code == 200


async def remove_pages() -> None:
    """Have NiceGUI remove all pages, as it does within 70 seconds."""
    Client.prune_instances(client_age_threshold=0)
    await asyncio.sleep(0.5)


async def test_pages_removed_before_a_browser_connected_follow_nothing(
    user: User, workspace: Workspace
) -> None:
    # Given every page, asked for as crawlers do
    await load(user, *PAGES * 2)
    problem = (await user.http_client.get("/problems/" + workspace.problems()[0].id)).status_code
    assert problem == 200
    await remove_pages()
    # Then nothing of them is called any more
    assert callbacks(workspace) == 0
    assert not connection.waiting


async def test_pages_that_no_browser_opens_are_removed(
    user: User, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_S", 0.2)
    await load(user, "/", SICK, "/windows")
    assert Client.instances
    await asyncio.sleep(1)
    assert not Client.instances
    assert callbacks(workspace) == 0


async def test_so_many_pages_are_kept_for_browsers_and_no_more(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING", 4)
    await load(user, *("/glossary", "/") * 5)
    assert len(Client.instances) == 4


async def test_a_page_is_not_removed_while_it_is_built(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING", 1)
    answers = await asyncio.gather(*(user.http_client.get(path) for path in ("/live", SICK, "/") * 5))
    assert [answer.status_code for answer in answers] == [200] * 15
    assert len(Client.instances) == 1


async def test_300_pages_without_a_browser_leave_nothing_behind(user: User, workspace: Workspace) -> None:
    before = callbacks(workspace)
    for number in range(300):
        await load(user, PAGES[number % len(PAGES)])
    assert len(Client.instances) <= connection.MAX_WAITING
    await remove_pages()
    gc.collect()
    assert callbacks(workspace) == before
    assert not [each for each in gc.get_objects() if isinstance(each, Client)]


async def test_the_memory_of_a_removed_page_is_freed_without_a_collection(user: User) -> None:
    # Given every page was shown once, with what is kept for the next time
    await load(user, *PAGES)
    await remove_pages()
    gc.collect()
    gc.disable()
    try:
        for path in PAGES:
            # When one is shown and removed
            await load(user, path)
            (client,) = Client.instances.values()
            page, elements = weakref.ref(client), [weakref.ref(each) for each in client.elements.values()]
            del client
            await remove_pages()
            # Then it is freed, and its elements except a third: those that what built them still refers to
            assert page() is None, path
            assert sum(element() is not None for element in elements) <= len(elements) / 3, path
    finally:
        gc.enable()


async def test_a_page_with_a_browser_follows_until_it_is_closed(user: User, workspace: Workspace) -> None:
    await user.open(SICK)
    while callbacks(workspace) < 2:
        await asyncio.sleep(0.02)
    assert user.client is not None
    assert user.client.id not in connection.waiting
    user.client.delete()
    assert callbacks(workspace) == 0


async def test_a_page_that_two_documents_showed_is_removed_once(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    await load(user, "/glossary")
    (page,) = connection.waiting.values()
    monkeypatch.setattr(page.page, "resolve_reconnect_timeout", lambda: 0.1)
    # Given a page whose browser showed it in two documents, which a browser may do that goes back
    for document in ("one", "two"):
        await page.handle_handshake(f"test-{document}", "tab", None, document, None)
    # When both are closed, then it is removed, and without an error
    faults: list[Exception] = []
    monkeypatch.setattr(core.app, "handle_exception", faults.append)
    for document in ("one", "two"):
        page.handle_disconnect(f"test-{document}")
    await asyncio.sleep(0.5)
    assert page.id not in Client.instances
    assert not faults


async def test_so_many_pages_are_kept_for_browsers_that_may_come_back(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_LEFT", 3)
    # Given six pages with a browser each
    await load(user, *["/glossary"] * 6)
    pages = list(connection.waiting.values())
    for number, page in enumerate(pages):
        await page.handle_handshake(f"test-{number}", f"tab {number}", None, "document", None)
    # When five of them are left, and one of the last three returns
    for number, page in enumerate(pages[:5]):
        page.handle_disconnect(f"test-{number}")
    await pages[3].handle_handshake("test-again", "tab 3", None, "document", None)
    # Then those that were left first are removed
    assert list(Client.instances.values()) == pages[2:]
    assert list(connection.left.values()) == [pages[2], pages[4]]
