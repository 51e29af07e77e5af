"""What a note is pinned to and what a view picks out, in words."""

from __future__ import annotations

from datetime import UTC

from sfapp.model.incidents import Pin, Stamp
from sfapp.model.view import ViewState
from sfapp.views import format
from sfapp.views.text.plot_help import plot_title


def pinned(pin: Pin) -> str:
    """``train-7 / 13 · step 161 · rank 3 · callbacks``."""
    window = f"{format.clip(pin.window.run_id)} / {pin.window.window}"
    return " · ".join([window, *pinned_within(pin)])


def pinned_within(pin: Pin) -> tuple[str, ...]:
    """What of its window a note is pinned to, one entry a thing; empty for the window as a whole."""
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
    """What a view picks out of a window: ``step 161 · ranks 3, 7``; empty where nothing is."""
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
    if view.zoom:
        found.append("zoomed")
    return " · ".join(found)


def signed(stamp: Stamp) -> str:
    """``Ada, 2026-11-21 09:14 UTC``."""
    return f"{stamp.by}, {stamp.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
