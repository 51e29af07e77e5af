"""What axe-core finds on a page, in the light and in the dark theme."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

AXE = (Path(__file__).parent / "axe" / "axe-4.14.1.min.js").read_text(encoding="utf-8")

FINDINGS = """async ([rules]) => {
  const fading = document.getAnimations().filter((each) => each instanceof CSSTransition);
  await Promise.allSettled(fading.map((each) => each.finished));
  const only = rules.length ? {runOnly: {type: "rule", values: rules}} : {};
  const found = await axe.run(document, {resultTypes: ["violations"], ...only});
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 160)}`));
}"""


COLOUR_RULES = ("color-contrast", "link-in-text-block")
"""The rules that look at colours, of those that are on by default."""


def serious_findings(page: Page, *rules: str) -> list[str]:
    """Return the serious and critical findings on the page as it is, by these rules or all."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE)
    page.wait_for_timeout(400)  # tables get their names, and dialogs open
    found: Any = page.evaluate(FINDINGS, [list(rules)])
    return [str(each) for each in found]


def switch_to_dark(page: Page) -> None:
    """Let the system prefer the dark theme, which a page follows whatever dialog is open on it."""
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))


def findings_in_both_themes(page: Page) -> list[str]:
    """Return the findings of a page in the light and in the dark theme, each with its theme.

    Both themes have the same elements, names and roles; in the dark one, only colours are looked at.
    """
    light = [f"light: {each}" for each in serious_findings(page)]
    switch_to_dark(page)
    return [*light, *(f"dark: {each}" for each in serious_findings(page, *COLOUR_RULES))]
