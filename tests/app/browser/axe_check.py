"""What axe-core finds on a page, in the light and in the dark theme."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

AXE = (Path(__file__).parent / "axe" / "axe-4.14.1.min.js").read_text(encoding="utf-8")

FINDINGS = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 160)}`));
}"""


def serious_findings(page: Page) -> list[str]:
    """Return the serious and critical findings on the page as it is."""
    page.evaluate(AXE)
    page.wait_for_timeout(400)  # tables get their names, and colours and dialogs fade
    found: Any = page.evaluate(FINDINGS)
    return [str(each) for each in found]


def switch_to_dark(page: Page) -> None:
    """Let the system prefer the dark theme, which a page follows whatever dialog is open on it."""
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))


def findings_in_both_themes(page: Page) -> list[str]:
    """Return the findings of a page in the light and in the dark theme, each with its theme."""
    light = [f"light: {each}" for each in serious_findings(page)]
    switch_to_dark(page)
    return [*light, *(f"dark: {each}" for each in serious_findings(page))]
