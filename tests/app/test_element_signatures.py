"""Elements are made without looking for the signatures of NiceGUI's methods again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from nicegui import ui
from nicegui.testing import User


async def test_an_element_is_made_without_looking_for_a_signature(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.open("/glossary")
    found: list[Callable[..., Any]] = []
    look = getattr(inspect, "_signature_from_function")  # noqa: B009  # no name of the stub

    def noting(cls: type, function: Callable[..., Any], **how: Any) -> Any:
        found.append(function)
        return look(cls, function, **how)

    monkeypatch.setattr(inspect, "_signature_from_function", noting)
    assert user.client is not None
    with user.client:
        label = ui.label("late")
        # Then it is followed as any other element is
        label.classes("number").props("title=rank").style("color: red")
    assert found == []
    assert label.classes == ["number"]
    assert label.props["title"] == "rank"
    assert label.style["color"] == "red"
