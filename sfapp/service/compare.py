"""Compare windows or whole runs of a workspace."""

from __future__ import annotations

from sfapp.accounting import Comparison, compare
from sfapp.errors import ComparisonError
from sfapp.model import Diagnosis
from sfapp.model.sides import CompareState, SideKey
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.missing_rows import of_kept_rows
from sfapp.service.workspace import Workspace
from sfapp.views import format

MAX_JUDGED = 400
"""Maximum number of windows of a run that are judged again for a view other than the default."""


def compare_sides(workspace: Workspace, state: CompareState) -> Comparison:
    """Compare the sides of a state. Blocking.

    Under the default view, stored diagnoses are used; under any other, each window is judged as on its page.

    Raises:
        WindowNotFoundError: no such run, window or group.
        ComparisonError: the sides cannot be compared, or a run is too long to be judged again.
        WindowError: the baseline is ``reference`` and a run has none.
    """
    a, b, *more = (_diagnoses(workspace, side, state.view) for side in state.sides)
    found = compare(a, b, *more)
    return found if state.view == ViewState() else of_kept_rows(found, workspace.store_of)


def _diagnoses(workspace: Workspace, side: SideKey, view: ViewState) -> Diagnosis | list[Diagnosis]:
    store = workspace.store_of(side.run_id)
    if side.window is not None:
        if view == ViewState():
            return store.diagnosis(side.run_id, side.window)
        return _judge(workspace, WindowKey(side.run_id, side.window), view)
    stored = store.diagnoses(side.run_id)
    if view == ViewState():
        return stored
    if len(stored) > MAX_JUDGED:
        raise ComparisonError(
            f"run {side.run_id!r} has {format.count(len(stored))} windows, too many to judge here under "
            "other thresholds or for another group: compare it under the defaults, compare single windows, "
            "or run sfapp compare on the command line"
        )
    return [_judge(workspace, WindowKey(side.run_id, found.window), view) for found in stored]


def _judge(workspace: Workspace, key: WindowKey, view: ViewState) -> Diagnosis:
    return workspace.judge(workspace.source(key), view).diagnosis
