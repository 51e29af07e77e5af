"""The run in the address of a request."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from sfapp.views.address import run_from_segment


def run_of(request: HTTPConnection, suffix: str = "", after: int = 0) -> str:
    """Return the run id in the undecoded path ``/<page>/<run>…`` of a request.

    Once decoded, a slash in a run id looks like one between segments.

    Args:
        suffix: ending of the run's segment that is not part of it (``.json``).
        after: how many segments follow the run's.
    """
    path = request.scope["raw_path"].decode("latin-1").split("?")[0]
    segments = path.split("/")[2:]
    if after:
        segments = segments[:-after]
    return run_from_segment("/".join(segments).removesuffix(suffix))
