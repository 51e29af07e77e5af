"""The stragglers tab: its operators are examined when it is first shown, and when the window changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from nicegui import background_tasks, ui

from sfapp.app.panels.capture_card import CaptureCard
from sfapp.app.panels.plot_card import Reactions
from sfapp.app.panels.tabs import Panel, items_of
from sfapp.app.panels.view_model import Key, TabViewModel
from sfapp.app.theme import box, empty, label_text, notices
from sfapp.errors import SfappError
from sfapp.model.view import STRAGGLERS, ViewState
from sfapp.operators import Agreement, Findings, agreement
from sfapp.service.workspace import Workspace
from sfapp.views.findings import Examined


class StragglersPanel:
    """A tab's content like ``Panel``, that says what is being done until there is something to draw."""

    def __init__(
        self, workspace: Workspace, scene: TabViewModel, reactions: Reactions, author: Callable[[], str]
    ) -> None:
        """Build inside the current container, and begin to examine.

        Args:
            author: under which name the page writes.
        """
        self._workspace = workspace
        self._reactions = reactions
        self._scene = scene
        self._examined = workspace.cached_findings(scene.judged)
        self._agreement: tuple[Key, Agreement | None] = ((), None)
        self._proposed: Key = ()
        self._working = False
        self._panel: Panel | None = None
        self._explained: Sequence[str] | None = None
        with box("stack") as self._place:
            with box("card progress", "section") as self._status:
                self._status.props["role"] = "status"
                ui.spinner(size="18px")
                self._said = label_text("", "span").mark("examining")
            self._captures = CaptureCard(workspace, scene.judged, author)
            self._content = box("stack")
        self._follow()

    def update(self, scene: TabViewModel, *, resting: bool = False) -> None:
        """Draw again what depends on something that changed; examine again where the window itself did."""
        self._scene = scene
        self._follow(resting)

    def _follow(self, resting: bool = False) -> None:
        is_old = self._examined is None or self._examined.key != self._scene.judged.examined_key
        self._status.set_visibility(is_old)
        if not is_old:
            self._show(resting)
        elif not self._working:
            self._working = True
            self._said.text = "Reading operator events"
            background_tasks.create(self._examine(), context=self._place)

    async def _examine(self) -> None:
        """Examine what is looked at, or what replaced it meanwhile."""
        loop = asyncio.get_running_loop()
        try:
            while self._examined is None or self._examined.key != self._scene.judged.examined_key:
                asked = self._workspace.examine(
                    self._scene.judged, lambda said: loop.call_soon_threadsafe(self._say, said)
                )
                self._examined = await asyncio.wrap_future(asked)
        except SfappError as error:  # the window has gone meanwhile
            self._examined = Examined(self._scene.judged.examined_key, None, (str(error),))
        finally:
            self._working = False
        if not self._place.is_deleted:
            self._follow()

    def _say(self, said: str) -> None:
        if not self._place.is_deleted:
            self._said.text = said

    def _show(self, resting: bool) -> None:
        examined = self._examined
        findings = None if examined is None else examined.findings
        self._propose(findings)
        if examined is None or findings is None:
            self._explain(() if examined is None else examined.notes)
            return
        self._explained = None
        scene = replace(
            self._scene,
            view=_fitted(self._scene.view, findings),
            examined=examined,
            agreement=self._agreed(examined),
        )
        if self._panel is not None:
            self._panel.update(scene, resting=resting)
            return
        self._content.clear()
        with self._content:
            self._panel = Panel(items_of(STRAGGLERS, None, False), scene, self._reactions)

    def _explain(self, told: Sequence[str]) -> None:
        """Why there is nothing to draw, and what would help."""
        if self._explained == told:
            return
        self._explained, self._panel = told, None
        self._content.clear()
        with self._content, box("card", "section"):
            notices(told)
            empty(
                "No operators to compare",
                "Bring a profiler's trace of the job: its packets then have operator events, and this tab "
                "says which operator held the ranks up.",
                "sfapp import kineto TRACES -o packets",
            )

    def _propose(self, findings: Findings | None) -> None:
        """Which ranks to capture: asked again only where the verdict aims elsewhere."""
        aim = self._scene.judged.examined_key, self._scene.aim_key
        if aim != self._proposed:
            self._proposed = aim
            self._captures.propose(self._scene.judged, findings)

    def _agreed(self, examined: Examined) -> Agreement | None:
        """What the verdict says of the findings; worked out again only where the verdict aims elsewhere."""
        scene = self._scene
        diagnosis = scene.diagnosis
        reason = None if diagnosis.aim is None else diagnosis.aim.rank_reason
        key = (examined.key, *scene.aim_key, reason)
        if self._agreement[0] != key and examined.findings is not None:
            self._agreement = key, agreement(diagnosis, examined.findings, scene.measures.window)
        return self._agreement[1]


def _fitted(view: ViewState, findings: Findings) -> ViewState:
    """A link may ask for a cause that there is not: the first is shown then."""
    has_it = view.cause is None or view.cause < len(findings.blame.causes)
    return view if has_it else replace(view, cause=None)
