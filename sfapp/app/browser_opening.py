"""Open the app in the browser of the user who started it."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from sfapp.files import write_atomic
from sfapp.views.html_text import html_text

_PAGE = "open.html"


def open_in_browser(address: str, folder: Path) -> None:
    """Open an address; what cannot be opened can still be read where the server prints it.

    Programs get addresses as arguments, which all users of the machine can read in the list of processes:
    instead of one with a token, the browser is given a file that leads there.

    Args:
        folder: which no other user can open.
    """
    if "?" not in address:
        webbrowser.open(address)
        return
    page = folder / _PAGE
    try:
        write_atomic(page, leading_to(address).encode(), mode=0o600, sync=False)
    except OSError:
        return
    webbrowser.open(page.absolute().as_uri())


def leading_to(address: str) -> str:
    """Return a page that leads a browser to an address."""
    where = html_text(address)
    return (
        '<!doctype html><meta charset="utf-8"><title>sfapp</title>'
        f'<meta http-equiv="refresh" content="0; url={where}"><a href="{where}">Continue</a>\n'
    )
