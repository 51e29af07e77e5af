"""The nearest change of verdict of each threshold, shown after a pause: each takes many judgements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from nicegui import background_tasks, ui

from sfapp.app.panels.view_model import TabViewModel

HINT_PAUSE = 0.04
"""Seconds without a change before each gate's nearest change of verdict is computed."""


class ChangeHints:
    """Follows the verdict of a page, and shows its nearest changes when it rests.

    Args:
        place: the element whose removal ends the page.
        model: returns what the page shows now.
        gates: returns the gates whose change is shown.
        compute: computes what else is drawn at rest, on a thread.
        show: shows the nearest changes of the present model.
    """

    def __init__(
        self,
        place: ui.element,
        *,
        model: Callable[[], TabViewModel],
        gates: Callable[[], tuple[str, ...]],
        compute: Callable[[TabViewModel], Coroutine[Any, Any, None]],
        show: Callable[[], None],
    ) -> None:
        self._place = place
        self._model = model
        self._gates = gates
        self._compute = compute
        self._show = show
        self._shown: tuple[object, ...] = ()
        self._due: asyncio.TimerHandle | None = None
        self._is_computing = False

    def show_soon(self) -> None:
        """Show them after a pause, once they were computed, unless they are shown."""
        if self._key() == self._shown:
            return
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(HINT_PAUSE, self._rest)

    def show_now(self) -> None:
        """Show them at once."""
        self._shown = self._key()
        self._show()

    def _rest(self) -> None:
        if self._place.is_deleted:  # The page was closed during the pause.
            return
        # Judgements of even a small window take tenths of a second together, during which a control may move.
        background_tasks.create(self._compute_and_show(), context=self._place)

    async def _compute_and_show(self) -> None:
        """Compute on a thread until that is what the page shows."""
        if self._is_computing:
            return
        self._is_computing = True
        try:
            while not self._place.is_deleted and (key := self._key()) != self._shown:
                model = self._model()
                await asyncio.to_thread(model.changes, self._gates())
                await self._compute(model)
                if key == self._key() and not self._place.is_deleted:
                    self.show_now()
        finally:
            self._is_computing = False

    def _key(self) -> tuple[object, ...]:
        """Return what the nearest changes, and what is drawn with them, depend on: all but the what-if."""
        model = self._model()
        return model.judged.source, model.diagnosis, replace(model.view, fix=None), model.dark, self._gates()
