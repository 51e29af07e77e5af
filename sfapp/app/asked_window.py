"""Resolve the window and the view of a data request; unlike on a page, an invalid part is an error."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from fastapi import Request

from sfapp.errors import GateError, WindowNotFoundError
from sfapp.model.view import ViewState, WindowKey, parse_query
from sfapp.service.judging import JudgedWindow
from sfapp.service.missing_rows import verdict_on_all_rows
from sfapp.service.workspace import Workspace


def asked_view(request: Request, extra: Collection[str] = ()) -> ViewState:
    """Return the view of a query.

    Args:
        extra: what the query may hold that is no part of the view.

    Raises:
        GateError: the query has values that mean nothing.
    """
    asked = request.query_params.multi_items()
    view, notices = parse_query([(name, value) for name, value in asked if name not in extra])
    if notices:
        raise GateError(" ".join(notices))
    return view


def judge_asked(
    workspace: Workspace, request: Request, key: WindowKey, *, extra: Collection[str] = ()
) -> JudgedWindow:
    """Judge a window under the view of a query.

    Args:
        extra: what the query may hold that is no part of the view.

    Raises:
        WindowNotFoundError: no such window, or the query names what it does not have.
        GateError: the query has values that mean nothing.
    """
    view = asked_view(request, extra)
    source = workspace.source(key)
    _, notices = view.fitted(workspace.window(source))
    if notices:
        raise WindowNotFoundError(" ".join(notices))
    return workspace.judge(source, view)


def window_document(workspace: Workspace, request: Request, key: WindowKey) -> dict[str, Any]:
    """Return a window's diagnosis under the view of a query as plain data, with the effect of its fix.

    If not all rows are here, the default view is answered by the stored verdict, which was made from all of
    them.

    Raises:
        WindowNotFoundError: no such window, or the query names what it does not have.
        StoreError: its rows are not here, and the query needs them.
        GateError: the query has values that mean nothing.
    """
    view = asked_view(request)
    stored = verdict_on_all_rows(workspace, key) if view == ViewState() else None
    if stored is not None:
        return stored.document()
    judged = judge_asked(workspace, request, key)
    chosen = {} if view.fix is None else {"what_if": asdict(workspace.what_if(judged, view.fix))}
    return judged.diagnosis.document() | chosen
