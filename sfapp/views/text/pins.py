"""Describe the pin of a note and the selection of a view."""

from __future__ import annotations

from datetime import UTC

from sfapp.model.incidents import Pin, Stamp
from sfapp.model.view import ViewState
from sfapp.views import format
from sfapp.views.text.plot_help import plot_title


def pinned(pin: Pin) -> str:
    """Return ``train-7 / 13 · step 161 · rank 3 · callbacks``."""
    window = f"{format.clip(pin.window.run_id)} / {pin.window.window}"
    return " · ".join([window, *pinned_within(pin)])


def pinned_within(pin: Pin) -> tuple[str, ...]:
    """Return the parts of its window to which a note is pinned; empty for the whole window."""
    found = []
    if pin.step is not None:
        found.append(f"step {pin.step}")
    if pin.rank is not None:
        found.append(f"rank {pin.rank}")
    if pin.stage is not None:
        found.append(format.clip(pin.stage))
    if pin.plot is not None:
        plot = plot_title(pin.plot)
        found.append(f"a part of the plot “{plot}”" if pin.region else f"the plot “{plot}”")
    return tuple(found)


def seen(view: ViewState) -> str:
    """Return the selection of a view: ``step 161 · ranks 3, 7``; empty without a selection."""
    found = []
    if view.step is not None:
        found.append(f"step {view.step}")
    if view.ranks:
        found.append(f"rank{'s' if len(view.ranks) > 1 else ''} {', '.join(map(str, view.ranks))}")
    if view.stage is not None:
        found.append(format.clip(view.stage))
    if view.cause is not None:
        found.append(f"cause {view.cause + 1}")
    if view.operator is not None:
        found.append(format.clip(view.operator))
    if view.axes is not None:
        found.append(" by ".join(view.axes))
    if view.zoom:
        found.append("zoomed")
    return " · ".join(found)


def signed(stamp: Stamp) -> str:
    """Return ``Ada, 2026-11-21 09:14 UTC``."""
    return f"{stamp.by}, {stamp.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
