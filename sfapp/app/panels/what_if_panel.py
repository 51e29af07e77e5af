"""The what-if in the controls: choose the part to make typical, and see the predicted step time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from nicegui import background_tasks, events, ui

from sfapp.accounting import WhatIf
from sfapp.app.panels.choosers import MOST_LISTED, number_field, show_options
from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.theme import box, label_text, with_keys
from sfapp.errors import SfappError
from sfapp.model import Diagnosis, Fix, RankTable
from sfapp.service.judging import WindowSource
from sfapp.service.what_if import fix_of
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views.text import WhatIfText, fix_place, what_if_text

Change = Callable[[events.ValueChangeEventArguments[Any]], Any]

_EVERY_STAGE = ""
_EVERY_RANK = "all"

_HELP = "Predicts the step time if this part were as fast as on a typical rank."


_UNIT = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s)\b)")


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """Key of a prediction for one window, verdict and fix; equal keys have the same prediction."""

    source: WindowSource
    diagnosis: Diagnosis
    fix: Fix


def _offered(table: RankTable, fix: Fix, named: Sequence[int]) -> dict[str, str]:
    """Return the choices of ranks by the text of a fix's place; the current fix is always among them.

    Args:
        named: ranks in the list if it cannot hold all.
    """
    listed = [*(table.rank if len(table) <= MOST_LISTED else dict.fromkeys(named))]
    if fix.rank is not None and fix.rank not in listed:
        listed.insert(MOST_LISTED - 1, fix.rank)
    places = {rank: place for rank in listed if (place := table.place(rank)) is not None}
    offered = {_EVERY_RANK: "every rank"}
    for rank, place in islice(places.items(), MOST_LISTED):
        offered[str(rank)] = f"rank {rank} · {format.clip(table.hostname[place], 24)}"
    if len(table.node_hosts) > 1:
        for node, host in islice(table.node_hosts.items(), MOST_LISTED):
            offered[f"node:{node}"] = f"host {format.clip(host, 24)}"
    offered.setdefault(fix.place, fix_place(fix))
    return offered


class WhatIfPanel:
    """Two choosers, stage and ranks, and the predicted step. Starts with the likely cause of the verdict.

    A large window is replayed on a thread. The result is shown only if it belongs to the current choice.
    """

    def __init__(
        self, workspace: Workspace, model: TabViewModel, choose: Callable[[Fix | None], Any]
    ) -> None:
        """Build inside the current container; ``show`` fills it.

        Args:
            choose: called with the chosen fix; None for the likely cause.
        """
        self._workspace = workspace
        self._model = model
        self._choose = choose
        self._shown: PredictionRequest | None = None
        self._working = False
        with box("what-if", "section") as self._place:
            with box("what-if-head"):
                label_text("What if", "h2")
                self._reset = label_text("likely cause", "button", "plain gate-default").mark("what-if-reset")
                self._reset.on("click", lambda: self._choose(None))
                with_keys(self._reset, label="Reset the what-if to the likely cause")
            label_text(_HELP, "div", "hint")
            self._stage = self._select("stage", self._pick_stage)
            self._ranks = self._select("ranks", self._pick_ranks)
            self._number = number_field("another rank", "what-if: another rank", self._pick_number)
            self._number.mark("what-if-rank")
            with box("what-if-result") as result:
                result.props["role"] = "status"
                self._fix = label_text("", "div", "what-if-fix").mark("what-if-fix")
                self._change = label_text("", "div", "what-if-change").mark("what-if")
                self._worth = label_text("", "div", "what-if-worth").mark("what-if-worth")
                self._notes = label_text("", "div", "hint").mark("what-if-notes")

    def show(self, model: TabViewModel) -> None:
        """Show the choice of a view, and the prediction for it as soon as there is one."""
        self._model = model
        self._show_choice()
        asked = self._asked
        if asked == self._shown:
            return
        known: WhatIf | SfappError | None = self._workspace.known_what_if(model.judged, asked.fix)
        if known is None and not model.is_large:  # shorter than another update of the page
            known = self._predicted(asked)
        if known is not None:
            self._show_found(asked, known)
            return
        self._write(WhatIfText("Predicting…"))
        self._shown = None
        if not self._working:
            self._working = True
            background_tasks.create(self._predict(), context=self._place)

    @property
    def _asked(self) -> PredictionRequest:
        judged = self._model.judged
        fix = fix_of(judged.diagnosis, self._model.view.fix)
        return PredictionRequest(judged.source, judged.diagnosis, fix)

    async def _predict(self) -> None:
        """Predict for the current choice, or for one that has replaced it meanwhile."""
        try:
            while (asked := self._asked) != self._shown:
                found = await asyncio.to_thread(self._predicted, asked)
                if self._place.is_deleted:
                    return
                if asked == self._asked:
                    self._show_found(asked, found)
        finally:
            self._working = False

    def _predicted(self, asked: PredictionRequest) -> WhatIf | SfappError:
        try:
            return self._workspace.what_if(self._model.judged, asked.fix)
        except SfappError as error:  # The group lacks the chosen part.
            return error

    def _show_found(self, asked: PredictionRequest, found: WhatIf | SfappError) -> None:
        ranks = self._model.window.ranks
        if isinstance(found, WhatIf):
            self._write(what_if_text(found, asked.diagnosis, ranks))
        else:
            where = fix_place(asked.fix, ranks)
            self._write(WhatIfText(f"Nothing to predict for {where}", notes=(f"In this group: {found}.",)))
        self._shown = asked

    def _write(self, words: WhatIfText) -> None:
        self._fix.text = words.fix
        error = f" ({words.error})" if words.error else ""
        self._change.text = _unbroken(f"{words.change}{error}")
        self._worth.text = _unbroken(words.worth)
        self._notes.text = " ".join(words.notes)
        for element in (self._change, self._worth, self._notes):
            element.set_visibility(bool(element.text))

    # --- choosing -------------------------------------------------------------------------------------

    def _select(
        self, name: str, changed: Callable[[events.ValueChangeEventArguments[Any]], Any]
    ) -> ui.select:
        select = ui.select({}, on_change=changed).props("dense outlined options-dense")
        select.props["aria-label"] = f"what-if: {name}"
        return select.mark(f"what-if-{name}")

    def _show_choice(self) -> None:
        """Show the fix of the view in the choosers, which offer the parts of the judged group."""
        fix = self._asked.fix
        table = self._model.measures.window.ranks
        show_options(self._stage, self._stages(), fix.stage or _EVERY_STAGE)
        show_options(self._ranks, _offered(table, fix, self._named_ranks()), fix.place)
        self._number.set_visibility(len(table) > MOST_LISTED)
        self._number.value = None
        self._reset.props.set_bool("disabled", self._model.view.fix is None)

    def _stages(self) -> Mapping[str, str]:
        aim = self._model.diagnosis.aim
        names = format.short_stages(self._model.window.broad_stages)
        offered = dict(names)
        if aim is not None:
            offered[aim.stage] = f"{names[aim.stage]} (suspect)"
        return {**offered, _EVERY_STAGE: "every stage"}

    def _named_ranks(self) -> list[int]:
        """Return the ranks that a long list names: those of the verdict, then the highlighted ones."""
        diagnosis = self._model.diagnosis
        late = [rank for finding in diagnosis.findings for rank in finding.ranks]
        suspect = [] if diagnosis.aim is None or diagnosis.aim.rank is None else [diagnosis.aim.rank]
        return [*suspect, *late, *self._model.view.ranks]

    def _pick_stage(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value is not None:
            self._pick(replace(self._asked.fix, stage=event.value or None))

    def _pick_ranks(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value is not None:
            self._pick(replace(Fix.parse(f"@{event.value}"), stage=self._asked.fix.stage))

    def _pick_number(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value is not None:
            self._pick(Fix(self._asked.fix.stage, max(0, int(event.value))))

    def _pick(self, fix: Fix) -> None:
        """Choose a fix. The fix of the likely cause is not stored as a choice: it follows the verdict."""
        if fix != self._asked.fix:
            self._choose(None if fix == fix_of(self._model.diagnosis, None) else fix)


def _unbroken(text: str) -> str:
    """Return a text in which no line break separates a number from its unit, because the rail is narrow."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)
