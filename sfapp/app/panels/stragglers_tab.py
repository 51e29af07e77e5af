"""Show the stragglers tab; operators are examined when it is first shown and when the window changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from nicegui import background_tasks, ui

from sfapp.app.notices import notices
from sfapp.app.panels.capture_card import CaptureCard
from sfapp.app.panels.plot_card import Reactions
from sfapp.app.panels.tabs import Panel, compute_items, items_of
from sfapp.app.panels.view_model import Key, TabViewModel
from sfapp.app.theme import box, empty, label_text
from sfapp.errors import SfappError
from sfapp.model.view import STRAGGLERS, ViewState
from sfapp.operators import Agreement, Findings, agreement
from sfapp.service.workspace import Workspace
from sfapp.views.operator_findings import Examined


class StragglersPanel:
    """A tab's content like ``Panel``, with a progress message until the findings are there."""

    def __init__(
        self, workspace: Workspace, model: TabViewModel, reactions: Reactions, author: Callable[[], str]
    ) -> None:
        """Build inside the current container, and start to examine the operators.

        Args:
            author: returns the user's name for edits.
        """
        self._workspace = workspace
        self._reactions = reactions
        self._model = model
        self._examined = workspace.cached_findings(model.judged)
        self._agreement: tuple[Key, Agreement | None] = ((), None)
        self._proposed: Key = ()
        self._working = False
        self._panel: Panel | None = None
        self._explained: Sequence[str] | None = None
        with box("stack") as self._place:
            with box("card progress", "section") as self._status:
                self._status.props["role"] = "status"
                ui.spinner(size="18px")
                self._progress = label_text("", "span").mark("examining")
            self._captures = CaptureCard(workspace, model.judged, author)
            self._content = box("stack")
        self._follow()

    def update(self, model: TabViewModel, *, resting: bool = False) -> None:
        """Update the changed parts; examine the operators again if the window changed."""
        self._model = model
        self._follow(resting)

    def _follow(self, resting: bool = False) -> None:
        is_old = self._examined is None or self._examined.key != self._model.judged.examined_key
        self._status.set_visibility(is_old)
        if not is_old:
            self._show(resting)
        elif not self._working:
            self._working = True
            self._progress.text = "Reading operator events"
            background_tasks.create(self._examine(), context=self._place)

    async def _examine(self) -> None:
        """Examine the current window, or one that has replaced it meanwhile."""
        loop = asyncio.get_running_loop()
        try:
            while self._examined is None or self._examined.key != self._model.judged.examined_key:
                asked = self._workspace.examine(
                    self._model.judged,
                    lambda progress: loop.call_soon_threadsafe(self._show_progress, progress),
                )
                self._examined = await asyncio.wrap_future(asked)
        except SfappError as error:  # the window was removed meanwhile
            self._examined = Examined(self._model.judged.examined_key, None, (str(error),))
        finally:
            self._working = False
        if not self._place.is_deleted:
            self._follow()

    def _show_progress(self, progress: str) -> None:
        if not self._place.is_deleted:
            self._progress.text = progress

    def _show(self, resting: bool) -> None:
        examined = self._examined
        findings = None if examined is None else examined.findings
        self._propose(findings)
        if examined is None or findings is None:
            self._explain(() if examined is None else examined.notes)
            return
        self._explained = None
        model = replace(
            self._model,
            view=_fitted(self._model.view, findings),
            examined=examined,
            agreement=self._agreed(examined),
        )
        if model.is_large:
            background_tasks.create(self._compute_and_draw(model, resting), context=self._place)
        else:
            self._draw(model, resting)

    async def _compute_and_draw(self, model: TabViewModel, resting: bool) -> None:
        """Compute on a thread what a large window shows, then show it unless it is another one by then."""
        asked = self._model
        await asyncio.to_thread(compute_items, items_of(STRAGGLERS, None, False), model, True)
        if asked is self._model and not self._place.is_deleted:
            self._draw(model, resting)

    def _draw(self, model: TabViewModel, resting: bool) -> None:
        if self._panel is not None:
            self._panel.update(model, resting=resting)
            return
        self._content.clear()
        with self._content:
            self._panel = Panel(items_of(STRAGGLERS, None, False), model, self._reactions)

    def _explain(self, reasons: Sequence[str]) -> None:
        """Show why there is nothing to draw, and what to do about it."""
        if self._explained == reasons:
            return
        self._explained, self._panel = reasons, None
        self._content.clear()
        with self._content, box("card", "section"):
            notices(reasons)
            empty(
                "No operators to compare",
                "Import a profiler trace of the job: its packets then have operator events, and this tab "
                "shows which operator delays the ranks.",
                "sfapp import kineto TRACES -o packets",
            )

    def _propose(self, findings: Findings | None) -> None:
        """Propose ranks to capture, again only if the verdict names another suspect."""
        suspect = self._model.judged.examined_key, self._model.aim_key
        if suspect != self._proposed:
            self._proposed = suspect
            self._captures.propose(self._model.judged, findings)

    def _agreed(self, examined: Examined) -> Agreement | None:
        """Compare verdict and findings, again only if the verdict names another suspect."""
        model = self._model
        diagnosis = model.diagnosis
        reason = None if diagnosis.aim is None else diagnosis.aim.rank_reason
        key = (examined.key, *model.aim_key, reason)
        if self._agreement[0] != key and examined.findings is not None:
            self._agreement = key, agreement(diagnosis, examined.findings, model.measures.window)
        return self._agreement[1]


def _fitted(view: ViewState, findings: Findings) -> ViewState:
    """Return the view without a cause that the findings do not have; the first one is shown then."""
    has_it = view.cause is None or view.cause < len(findings.blame.causes)
    return view if has_it else replace(view, cause=None)
