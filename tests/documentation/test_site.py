"""The documentation site builds without a warning, needs no other server, and lists every page."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CONFIGURATION = "zensical.toml"

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser loads by itself, by element and attribute."""


class Elements(HTMLParser):
    """Collect the addresses that a browser loads with a page, and those that a visitor can follow."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag == "a" and (link := found.get("href")):
            self.links.append(link)
        if found.get("rel") in ("canonical", "next", "prev", "alternate"):
            return
        if tag in LOADED and (address := found.get(LOADED[tag])):
            self.loaded.append(address)


def navigation(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from navigation(value)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(navigation(tomllib.loads((ROOT / CONFIGURATION).read_text())["project"]["nav"]))
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))


def test_the_site_loads_nothing_from_another_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        outside = [url for url in Elements(page.read_text()).loaded if re.match(r"(https?:)?//", url)]
        assert outside == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"""(url\(|@import\s+)["']?(https?:)?//""", style.read_text()), style.name


def test_the_site_has_no_diagram_that_needs_a_script_from_another_server(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert 'class="mermaid"' not in page.read_text(), f"{page.name}: draw it in docs/drawings instead"


def test_the_reference_of_the_python_interface_has_every_public_name(site: Path) -> None:
    text = (site / "python.html").read_text()
    for name in ("Recorder", "open", "examples", "read_window", "diagnose", "Window", "Gates", "Diagnosis"):
        assert re.search(rf'id="sfapp\.\w+\.{name}"', text), name
