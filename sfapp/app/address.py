"""The app's addresses: run and window in them, the path of a reverse proxy before them, and assets."""

from __future__ import annotations

import hashlib
from functools import cache

import nicegui
from nicegui import ui
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import HTTPConnection

from sfapp.assets import assets
from sfapp.views.address import run_from_segment

_root = ""


def set_root_path(root: str) -> None:
    """Serve every address below this path from now on. The path is global to the process, as NiceGUI's pages
    are.

    Args:
        root: without a slash at its end; empty for the top.
    """
    global _root
    _root = root


def rooted(address: str) -> str:
    """Return an address of the app as browsers request it: below the root path."""
    return f"{_root}{address}" if address.startswith("/") else address


def asset_url(name: str) -> str:
    """Return the URL of an asset; it changes with the content, so browsers may cache it forever."""
    return rooted(f"/assets/{name}?v={_digest(name)}")


def component_url(kind: type[ui.element]) -> str:
    """Return the URL of the script of a NiceGUI element."""
    assert kind.component is not None
    return rooted(f"/_nicegui/{nicegui.__version__}/components/{kind.component.key}")


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((assets() / name).read_bytes()).hexdigest()[:12]


def run_of(request: HTTPConnection, suffix: str = "", after: int = 0) -> str:
    """Return the run id in the undecoded path ``/<page>/<run>…`` of a request.

    Once decoded, a slash in a run id looks like one between segments.

    Args:
        suffix: ending of the run's segment that is not part of it (``.json``).
        after: number of segments after the run's.
    """
    path = request.scope["raw_path"].decode("latin-1").split("?")[0]
    segments = path.removeprefix(request.scope.get("root_path", "")).split("/")[2:]
    if after:
        segments = segments[:-after]
    return run_from_segment("/".join(segments).removesuffix(suffix))


class RunConvertor(Convertor[str]):
    """Route converter of a run id, which may contain any character; Starlette's ``path`` ends at a line
    break."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class WindowConvertor(Convertor[int]):
    """Route converter of a window number, with at most as many digits as fit 64 bits: Python refuses to parse
    thousands."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("run", RunConvertor())
register_url_convertor("window", WindowConvertor())
