"""Markdown: texts of users and files appear literally in any viewer; drawings are stored next to it."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sfapp.report.markdown import shown, to_markdown
from sfapp.terminal import without_controls
from tests.report.report_cases import HARM, harmful, sick_window

GITHUB = MarkdownIt("commonmark", {"linkify": True, "html": True}).enable(
    ["table", "strikethrough", "linkify"]
)
"""Tables, struck-out text, HTML and addresses made links, as GitHub has them."""


PLAIN = {"h1", "h2", "h3", "p", "br", "strong", "blockquote", "img", "pre", "code"}
PLAIN |= {"table", "thead", "tbody", "tr", "th", "td"}


def seen(text: str) -> str:
    """What a reader of the Markdown sees, without the breaks of lines."""
    page = re.sub(r"<img[^>]*alt=\"([^\"]*)\"[^>]*>", r"\1", GITHUB.render(text))
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_it_contains_the_reports_text_and_its_drawings_are_next_to_it() -> None:
    text, drawings = to_markdown(sick_window(), "incident_files")
    for part in (
        "A slow callback",
        "Two lines of summary.",
        "It begins here. See the strip.",
        "callbacks on rank 3",
        "gain depends on waits",
        "all at their defaults",
        "Stage timing cannot identify",
        "sfapp report packets",
        "gone/1: gone",
    ):
        assert part in seen(text), part
    named = re.findall(r"\]\(<incident_files/([^>]*)>\)", text)
    assert named == list(drawings)
    assert len(named) == 7
    for svg in drawings.values():
        ElementTree.fromstring(svg)


def test_nothing_invites_to_click_or_drag_on_paper() -> None:
    text, _ = to_markdown(sick_window(), "x")
    assert not re.search(r"\b(click|drag)\b", seen(text), re.IGNORECASE)


def test_nobodys_words_are_markup() -> None:
    text, drawings = to_markdown(harmful(), "x_files")
    page = GITHUB.render(text)
    tags = set(re.findall(r"<(\w+)", page))
    assert tags <= PLAIN
    assert set(re.findall(r'src="([^"]*)"', page)) == {f"x_files/{name}" for name in drawings}
    assert "href" not in page
    assert seen(text).count(re.sub(r"\s+", " ", HARM)) >= 8


@given(st.text(max_size=60))
def test_any_text_reads_as_it_is(text: str) -> None:
    line = " ".join(without_controls(text).split()).strip()
    if line:
        assert (
            GITHUB.render(shown(line))
            == f"<p>{html.escape(line, quote=True).replace('&#x27;', chr(39))}</p>\n"
        )


MEANING = "# a;a #;- a;--;===;1. a;2) b;> q;a_b _c_ __d__;~~s~~;$x$;`c`;&lt|;www.a.de;HTTPS://a.de;a|b;\\;<b>"
MEANING += ";![a](b);*;:a:;+79 ms;ftp://x.y;a@b.de;***;_"


@pytest.mark.parametrize("text", MEANING.split(";"))
def test_what_means_something_in_markdown_reads_as_it_is(text: str) -> None:
    for around in ("{}", "# {}", "| h |\n| --- |\n| {} |", "> a\\\n> {}", "**{}**"):
        if around == "**{}**" and text in ("*", "\\"):
            continue
        page = GITHUB.render(around.format(shown(text)))
        assert text in html.unescape(re.sub(r"<[^>]+>", "", page)), around
        assert "href" not in page or "mailto" in page


def test_a_command_with_fences_stays_in_its_fence() -> None:
    text, _ = to_markdown(replace(sick_window(), command="sfapp ``` # <b> ````"), "x")
    assert '<code class="language-sh">sfapp ``` # &lt;b&gt; ````\n</code>' in GITHUB.render(text)


def test_a_folder_may_be_called_anything() -> None:
    text, drawings = to_markdown(sick_window(), "a <b> (c) ü_files")
    assert f'src="a%20%3Cb%3E%20%28c%29%20%C3%BC_files/{next(iter(drawings))}"' in GITHUB.render(text)
