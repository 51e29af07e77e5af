"""What axe-core finds on the pages, in the light and in the dark theme."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

AXE = (Path(__file__).parent / "axe" / "axe-4.14.1.min.js").read_text(encoding="utf-8")

FINDINGS = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 160)}`));
}"""

SICK = "/w/gpt-small-ddp/10"

PAGES = {
    "/": ".timeline .main-svg",
    "/windows": ".timeline .main-svg",
    "/problems/90d5f3f39e3d17f3": ".problem-plot .main-svg",
    SICK: ".panels .main-svg",
    f"{SICK}?tab=ranks": ".panels .main-svg",
    f"{SICK}?tab=node:1": ".panels .main-svg",
    f"{SICK}?tab=stragglers": ".panels .main-svg, .panels .empty",
    f"{SICK}?tab=ambiguity": ".panels .main-svg",
    f"{SICK}?tab=notes": ".notes-list",
    f"{SICK}?tab=data": ".panels table",
    "/runs/gpt-small-ddp": ".history .main-svg",
    "/compare?a=gpt-small-ddp/9&b=gpt-small-ddp/10": ".grid .main-svg",
    "/incidents": ".toolbar",
    "/glossary": ".term",
    "/quarantine": ".page table",
    "/live": ".page .empty",
}
"""A selector of what stands on each page once it is drawn."""


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious_in_either_theme(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator(PAGES[path]).first).to_be_visible()
    page.evaluate(AXE)
    page.wait_for_timeout(300)  # what the page does to its tables once they are drawn
    light = page.evaluate(FINDINGS)
    page.keyboard.press("d")
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))
    page.wait_for_timeout(400)  # colours fade
    dark = page.evaluate(FINDINGS)
    assert light == []
    assert dark == []
