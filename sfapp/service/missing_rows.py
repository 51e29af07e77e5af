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
