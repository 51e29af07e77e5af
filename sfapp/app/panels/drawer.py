"""The container of a window page's controls: a rail on wide screens, a drawer on narrow ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sfapp.app.theme import box, label_text, with_keys

_SWITCH = "() => sfapp.switchDrawer()"


@contextmanager
def controls_drawer() -> Iterator[None]:
    """Build the container of the controls; the content goes into the body of ``with``.

    Style sheets make it a rail or a drawer, by the width of the screen.
    """
    with box("rail", "aside") as rail:
        rail.props["aria-label"] = "controls"
        close = with_keys(label_text("×", "button", "plain drawer-close"), label="Close the controls")
        close.on("click", js_handler=_SWITCH)
        yield


def controls_switch() -> None:
    """Add the button that opens and closes the drawer; style sheets hide it if there is a rail."""
    button = with_keys(label_text("What if, thresholds", "button", "key drawer-switch"), "c")
    button.props["aria-expanded"] = "false"
    button.on("click", js_handler=_SWITCH).mark("drawer")
