"""Windows of which not all rows are here: their stored verdict was made from all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sfapp.accounting import Comparison
from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.model import Window
from sfapp.model.diagnosis import Diagnosis
from sfapp.model.view import WindowKey
from sfapp.views import text as words

if TYPE_CHECKING:
    from sfapp.service.workspace import Workspace
    from sfapp.store import Store


def verdict_on_all_rows(workspace: Workspace, key: WindowKey) -> Diagnosis | None:
    """Return a window's stored verdict, under the default view, if its packets are thinned or not here; None
    if all of its rows are here.

    Raises:
        WindowNotFoundError: no such window.
    """
    source, store = workspace.source(key), workspace.store_of(key.run_id)
    if store.thinned_at(key.run_id, key.window) is None:
        try:
            workspace.window(source)
            return None
        except WindowNotFoundError:
            raise
        except StoreError:
            pass  # The packets are not here.
    return store.diagnosis(key.run_id, key.window)


def missing_rows_note(store: Store, window: Window) -> str:
    """Return which rows of a window that was read were thinned, and the verdict on all of them, in words;
    empty if all are here.

    Raises:
        WindowNotFoundError: it is gone.
    """
    at = store.thinned_at(window.run_id, window.number)
    if at is None:
        return ""
    return words.thinned_rows(at, len(window.step_N), store.diagnosis(window.run_id, window.number))


def of_kept_rows(found: Comparison, store_of: Callable[[str], Store]) -> Comparison:
    """Return a comparison of windows that were judged by their rows, with a caveat if some were thinned.

    Raises:
        WindowNotFoundError: one of them is gone.
    """
    keys = ((side.run_id, one.window) for side in found.sides for one in side.windows)
    if any(store_of(run_id).thinned_at(run_id, number) is not None for run_id, number in keys):
        return found.of_kept_rows()
    return found
