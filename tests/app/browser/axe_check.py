"""What axe-core finds on a page, in the light and in the dark theme."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from sfapp.views import palette

AXE = (Path(__file__).parent / "axe" / "axe-4.14.1.min.js").read_text(encoding="utf-8")

# What is on its way when a page, a tab or a dialog opens: fading colours, plots, and the names that client.js
# gives to tables that scroll. What does not come in time is missing, for axe to find.
_SETTLED = """async () => {
  const fits = (part) => part.scrollHeight <= part.clientHeight && part.scrollWidth <= part.clientWidth;
  const isDrawn = (plot) => !plot.checkVisibility() || plot.querySelector(".main-svg");
  const isSettled = () =>
    document.getAnimations().every((each) => !(each instanceof CSSTransition)) &&
    [...document.querySelectorAll(".plot")].every(isDrawn) &&
    [...document.querySelectorAll(".q-table__middle:not([tabindex])")].every(fits);
  const nextFrame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const end = performance.now() + 3000;
  await nextFrame();
  do await nextFrame(); while (!isSettled() && performance.now() < end);
}"""

# Rules of other impacts would not be reported; they take a quarter of the time.
_FINDINGS = """async ([part, rules]) => {
  const isGrave = (each) => ["serious", "critical"].includes(each.impact);
  const isUnusual = (tag) => ["experimental", "deprecated"].includes(tag);
  const isUsual = (rule) => rule.enabled && !rule.tags.some(isUnusual);
  const usual = axe._audit.rules.filter((rule) => isUsual(rule) && isGrave(rule)).map((rule) => rule.id);
  const options = {resultTypes: ["violations"], runOnly: {type: "rule", values: rules ?? usual}};
  const found = await axe.run(part ?? document, options);
  return found.violations.filter(isGrave)
    .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 160)}`));
}"""

COLOUR_RULES = ("color-contrast", "link-in-text-block")
"""The rules that look at colours, of those that are on by default."""

_IS_DARK = """(accent) => document.body.classList.contains("body--dark") &&
  getComputedStyle(document.body).getPropertyValue("--q-primary").trim() === accent"""


def serious_findings(page: Page, part: str | None = None, rules: Sequence[str] | None = None) -> list[str]:
    """Return the serious and critical findings on the page as it is.

    Args:
        part: a selector of what is looked at; the whole page if None.
        rules: those that are on by default if None.
    """
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE)
    page.evaluate(_SETTLED)
    found: Any = page.evaluate(_FINDINGS, [part, rules])
    return [str(each) for each in found]


def switch_to_dark(page: Page) -> None:
    """Let the system prefer the dark theme, which a page follows whatever dialog is open on it."""
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(_IS_DARK, arg=palette.theme(True).accent, polling=20)


@dataclass(frozen=True)
class View:
    """What can be opened on a page, such as a tab or a dialog.

    Attributes:
        opened: opens it, and closes it at the end of ``with``.
        part: a selector of what differs from the page without it.
        is_apart: whether nothing else on the page depends on it.
    """

    opened: Callable[[Page], AbstractContextManager[None]]
    part: str
    is_apart: bool = False


def as_it_is(_: Page) -> AbstractContextManager[None]:
    """Open nothing."""
    return nullcontext()


AS_IT_IS = View(as_it_is, "body")
"""The page itself."""


def findings_in_both_themes(page: Page, views: Mapping[str, View] | None = None) -> list[str]:
    """Return the findings in the views of a page in the light and in the dark theme, each with its place.

    Both themes have the same elements, names and roles; in the dark one, only colours are looked at.
    """
    shown = views or {"page": AS_IT_IS}
    found: list[str] = []
    for name, view in shown.items():
        with view.opened(page):
            part = view.part if view.is_apart else None
            found += [f"{name}, light: {each}" for each in serious_findings(page, part)]
    switch_to_dark(page)
    for name, view in shown.items():
        with view.opened(page):
            found += [f"{name}, dark: {each}" for each in serious_findings(page, view.part, COLOUR_RULES)]
    return found
