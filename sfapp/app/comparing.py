"""The comparison that answers what ``/compare`` was asked for."""

from __future__ import annotations

from sfapp.accounting import Comparison, compare
from sfapp.app.workspace import Workspace
from sfapp.errors import ComparisonError
from sfapp.model import Diagnosis
from sfapp.model.sides import CompareState, SideKey
from sfapp.model.view import ViewState, WindowKey
from sfapp.views import format

MOST_JUDGED = 400
"""Windows of a run that are read again for another view of them; under the defaults none has to be."""


def compared(workspace: Workspace, state: CompareState) -> Comparison:
    """The comparison that was asked for. Blocking.

    Stored diagnoses serve under the defaults; another view of a window is judged as its page judges it.

    Raises:
        WindowNotFoundError: no such run, window or group.
        ComparisonError: the sides cannot be compared, or a run is too long to be judged again.
        WindowError: the baseline is ``reference`` and a run has none.
    """
    a, b, *more = (_diagnosed(workspace, side, state.view) for side in state.sides)
    return compare(a, b, *more)


def _diagnosed(workspace: Workspace, side: SideKey, view: ViewState) -> Diagnosis | list[Diagnosis]:
    store = workspace.store_of(side.run_id)
    if side.window is not None:
        if view == ViewState():
            return store.diagnosis(side.run_id, side.window)
        return _judged(workspace, WindowKey(side.run_id, side.window), view)
    stored = store.diagnoses(side.run_id)
    if view == ViewState():
        return stored
    if len(stored) > MOST_JUDGED:
        raise ComparisonError(
            f"run {side.run_id!r} has {format.count(len(stored))} windows, too many to read again for other "
            "gates or groups here: compare it under the defaults, compare single windows, or use "
            "sfapp compare on the command line"
        )
    return [_judged(workspace, WindowKey(side.run_id, found.window), view) for found in stored]


def _judged(workspace: Workspace, key: WindowKey, view: ViewState) -> Diagnosis:
    return workspace.judge(workspace.source(key), view).diagnosis
