"""Make data a few at a time, so that the event loop gets the interpreter in between.

Such answers are made on threads, of which the server has forty. While all of them compute, the event loop
waits for each in turn, and what clients that have left asked for is made all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import iscoroutinefunction

from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Scope

from sfapp.app.answers import json_answer
from sfapp.app.in_turn import HELD_S, WAIT_S, InTurn

_BUSY = json_answer({"error": "sfapp makes other answers; try again later"}, 503)


class DataTurns(InTurn):
    """Middleware around the data routes; those that run on the event loop take no turn.

    Args:
        app: the application inside.
        routes: the data routes.
        wait_s, held_s: as ``WAIT_S`` and ``HELD_S``.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        *,
        wait_s: float = WAIT_S,
        held_s: float = HELD_S,
    ) -> None:
        super().__init__(app, _BUSY, wait_s=wait_s, held_s=held_s)
        self._routes = [route for route in routes if isinstance(route, Route)]

    def takes_turn(self, scope: Scope) -> bool:
        """Return whether a thread makes the answer."""
        if scope["type"] != "http":
            return False
        for route in self._routes:
            if route.matches(scope)[0] is Match.FULL:
                return not iscoroutinefunction(route.endpoint)
        return False
