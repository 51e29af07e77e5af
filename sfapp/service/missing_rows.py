"""Windows of which not all rows are here: their stored verdict was made from all."""

from __future__ import annotations

from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.model.diagnosis import Diagnosis
from sfapp.model.view import WindowKey
from sfapp.service.workspace import Workspace


def verdict_on_all_rows(workspace: Workspace, key: WindowKey) -> Diagnosis | None:
    """Return a window's stored verdict, under the default view, if its packets are thinned or not here; None
    if all of its rows are here.

    Raises:
        WindowNotFoundError: no such window.
    """
    store = workspace.store_of(key.run_id)
    try:
        workspace.window(workspace.source(key))
    except WindowNotFoundError:
        raise
    except StoreError:
        return store.diagnosis(key.run_id, key.window)
    is_thinned = store.thinned_at(key.run_id, key.window) is not None
    return store.diagnosis(key.run_id, key.window) if is_thinned else None
