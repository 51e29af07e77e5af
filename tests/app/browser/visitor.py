"""A visitor: a page of a browser that other visitors have used before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import BrowserContext, Page, Request


@contextmanager
def visitor(context: BrowserContext, url: str) -> Iterator[Page]:
    """Yield the page of a fresh visitor of a server.

    At the end it has written nothing to the console and asked nothing elsewhere, and its pages are closed.
    """
    complaints: list[str] = []

    def only_here(request: Request) -> None:
        if request.url.startswith(("http:", "https:")) and not request.url.startswith(url):
            complaints.append(f"asked for {request.url}")

    # Routes would say the same, but they turn off the cache.
    before = context.pages
    context.on("request", only_here)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_default_timeout(20_000)
    try:
        yield page
    finally:
        context.remove_listener("request", only_here)
        for each in context.pages:
            if each not in before:
                each.close()
        context.clear_cookies()  # nothing else is kept: a new tab has its own session storage
    assert complaints == [], complaints
