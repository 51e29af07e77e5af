"""The frame of every page (head, header, keys, light and dark theme) and the elements that pages share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote

from fastapi import Request
from nicegui import events, ui
from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.address import asset_url, component_url, rooted
from sfapp.app.connection import expect_browser, when_connected
from sfapp.app.part import PART_TAGS, Part
from sfapp.app.routes import PAGES
from sfapp.app.store_status import is_idle, status_text
from sfapp.assets import PLOTLY
from sfapp.incidents import MAX_NAME
from sfapp.model.examples import EXAMPLES, Example
from sfapp.service.workspace import Workspace
from sfapp.views import palette
from sfapp.views.address import example_page, term_page
from sfapp.views.worked_examples import LESSONS

ElementT = TypeVar("ElementT", bound=ui.element)

DARK_COOKIE = "sfapp-dark"
"""Cookie of the chosen theme: ``1`` for dark, ``0`` for light; absent until one is chosen."""

SYSTEM_COOKIE = "sfapp-system"
"""Cookie of the theme the system preferred when a page was last opened: ``dark`` or ``light``."""

SEEN_COOKIE = "sfapp-seen"
"""Cookie that records that the welcome message was dismissed."""

READ_COOKIE = "sfapp-read"
"""Cookie of the plots whose tips were dismissed, separated by dots."""

NAME_COOKIE = "sfapp-name"
"""Cookie of the name under which this browser writes notes: freely chosen, not authenticated."""

KEYS = (
    ("/  ⌃K", "Search runs, windows, ranks, hosts and commands"),
    ("j  k", "Next, previous window (also ↓ ↑)"),
    ("[  ]", "Previous, next step (also ← →)"),
    ("1 … 9", "Tab of the first to ninth node"),
    ("o", "Overview"),
    ("u  ⌃Z", "Undo the last change of the view (also the browser's Back)"),
    ("c", "Open, close the controls on a narrow screen"),
    ("h", "Hide, show the healthy windows in the swim-lane"),
    ("n", "Write a note on this view"),
    ("a", "Add this view to an incident"),
    ("z", "Undo the last edit of a note or incident"),
    ("r", "Create a report"),
    *((page.key, page.title) for page in PAGES if page.key),
    ("⇧↑  ⇧↓", "Move the selected item of an incident"),
    ("d", "Switch between light and dark"),
    ("Esc", "Leave a field or a dialog"),
    ("?", "Show this help"),
)


@dataclass(frozen=True, slots=True)
class Crumb:
    """One breadcrumb; ``href`` is None for the page itself."""

    text: str
    href: str | None = None
    detail: str = ""


def is_dark(request: Request) -> bool:
    """Return whether to draw in the dark theme: as chosen in this browser, else as the system prefers."""
    chosen = request.cookies.get(DARK_COOKIE)
    return request.cookies.get(SYSTEM_COOKIE) == "dark" if chosen is None else chosen == "1"


def author_of(request: Request) -> str:
    """Return the name chosen in this browser for notes and incidents; empty until one is chosen."""
    name = unquote(request.cookies.get(NAME_COOKIE, ""), errors="replace")
    return " ".join(name.split())[:MAX_NAME]


_NO_WORD = re.compile(r"[^\w.]+|\.(?!\d)")


def label_text(content: str, tag: str = "div", classes: str = "") -> TextElement:
    """Add plain text in a tag that fits its meaning; it is never parsed as markup."""
    element = TextElement(tag=tag, text=content)
    return element.classes(classes) if classes else element


def box(classes: str = "", tag: str = "div") -> ui.element:
    """Add a plain container."""
    element = Part(tag) if tag in PART_TAGS else ui.element(tag)
    return element.classes(classes) if classes else element


def link(content: str, href: str, classes: str = "", shortcut: str = "", label: str = "") -> TextElement:
    """Add a link with its keyboard shortcuts and accessible name."""
    element = label_text(content, "a", classes)
    set_address(element, href)
    return with_keys(element, shortcut, label)


def set_address(element: ui.element, href: str) -> None:
    """Set the target of a link to an address of the app, or to another site."""
    element.props["href"] = rooted(href)


def term(content: str, kind: str, name: str, classes: str = "") -> TextElement:
    """Add a term of a verdict that opens its glossary entry in a new tab, so that the view stays open."""
    element = link(content, term_page(kind, name), f"term-link {classes}".strip())
    element.props["target"] = "_blank"
    element.props["rel"] = "noopener"
    return element


def with_keys(element: ElementT, shortcut: str = "", label: str = "") -> ElementT:
    """Set an element's keyboard shortcuts, which ``client.js`` handles, and its accessible name."""
    if shortcut:
        element.props["aria-keyshortcuts"] = shortcut
    if label:
        element.props["aria-label"] = _named(element.text if isinstance(element, TextElement) else "", label)
    return element


def _named(shown: str, label: str) -> str:
    """Return an accessible name that contains the visible words, as voice control needs it."""
    words, name = (" ".join(_NO_WORD.sub(" ", each).lower().split()) for each in (shown, label))
    return label if len(words) < 2 or words in name else f"{shown}: {label}"


def chips(texts: Sequence[tuple[str, str, str]]) -> None:
    """Add small labels: (text, kind, meaning)."""
    with box("chips", "ul"):
        for content, kind, meaning in texts:
            label_text(content, "li", f"chip chip-{kind}").props["title"] = meaning


def welcome(request: Request, message: str) -> None:
    """Add a message for first-time visitors; once dismissed, the browser remembers that."""
    if request.cookies.get(SEEN_COOKIE):
        return
    with box("notice notice-hint") as element:
        element.props["role"] = "note"
        label_text(message, "span")
        button = with_keys(label_text("Got it", "button", "plain"), label="Dismiss this message").mark(
            "got-it"
        )
        button.on("click", element.delete)
        button.on("click", js_handler="() => sfapp.rememberSeen()")


def example_links(except_for: Example | None = None) -> None:
    """Add a link to every built-in example but one."""
    with box("links", "ul"):
        for run_id, example in EXAMPLES.items():
            if example != except_for:
                with box("", "li"):
                    link(LESSONS[run_id].title, example_page(example)).mark(run_id)


def left_out(shown: int, number: int, what: str) -> TextElement:
    """Add a line for a list of which only a part is shown."""
    return label_text(f"{shown:,} of {number:,} {what} are shown; the export has all.", "p", "muted")


def empty(title: str, next_step: str, command: str = "") -> None:
    """Add an empty state: what is missing and what to do next."""
    with box("empty"):
        label_text(title, "h2")
        label_text(next_step, "p")
        if command:
            label_text(command, "pre")


# Only the browser knows which theme the system prefers, and the server draws the plots in one. On a first
# visit the script has the page follow the system from its first frame on and stores the preference;
# ``client.js`` then tells the server where it drew the other theme.
_SYSTEM_THEME_SCRIPT = """<script>((drawn) => {
  if (/(?:^|; )sfapp-dark=[^;]/.test(document.cookie)) return;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.cookie = `sfapp-system=${dark ? "dark" : "light"}; path=/; max-age=31536000; samesite=strict`;
  document.documentElement.dataset.drawn = drawn;
  if (dark === (drawn === "dark")) return;
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  new MutationObserver((_, observer) => {
    document.body?.classList.toggle("body--dark", dark);
    if (document.body) observer.disconnect();
  }).observe(document.documentElement, {childList: true});
})("%s")</script>"""

# NiceGUI sets the body's theme when the page is mounted, which is after the first frame was painted.
_DARK_BODY_SCRIPT = """<script>new MutationObserver((_, observer) => {
  document.body?.classList.add("body--dark");
  if (document.body) observer.disconnect();
}).observe(document.documentElement, {childList: true})</script>"""


def _head(dark: bool) -> None:
    ui.add_head_html(_SYSTEM_THEME_SCRIPT % ("dark" if dark else "light"))
    if dark:
        ui.add_head_html(_DARK_BODY_SCRIPT)
    colours_of = {"body": palette.theme(False), "body.body--dark": palette.theme(True)}
    variables = (
        "ink",
        "muted",
        "grid",
        "axis",
        "surface",
        "accent",
        "alarm",
        "warn",
        "good",
        "quiet",
        "rank",
    )
    rules = " ".join(
        f"{selector}{{{';'.join(f'--{name}:{getattr(colours, name)}' for name in variables)}}}"
        for selector, colours in colours_of.items()
    )
    plotly = rooted(f"/assets/{PLOTLY}")
    ui.add_head_html(
        f'<style>{rules}</style><link rel="stylesheet" href="{asset_url("style.css")}">'
        f'<link rel="stylesheet" href="{asset_url("frame.css")}">'
        f'<script src="{asset_url("client.js")}" defer></script>'
        f'<script src="{asset_url("finder.js")}" defer></script>'
        # Plots are drawn once the page is connected; what they need loads in the meantime.
        f'<link rel="modulepreload" href="{asset_url("plotly.js")}">'
        f'<link rel="modulepreload" href="{plotly}">'
        f'<link rel="modulepreload" href="{component_url(ui.plotly)}">'
    )


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The parts of a page's frame to be filled by the page.

    Attributes:
        main: holds the content.
        actions: holds links and buttons, in the header next to the breadcrumbs.
        dark: the theme.
        detail: of the last breadcrumb.
    """

    main: ui.element
    actions: ui.element
    dark: ui.dark_mode
    detail: TextElement


@contextmanager
def frame(
    workspace: Workspace,
    request: Request,
    title: str,
    crumbs: Sequence[Crumb],
    *,
    searches: bool = False,
    heading: str = "",
) -> Iterator[PageFrame]:
    """Build the header with breadcrumbs, live badge and keys; the content goes into the body of ``with``.

    Args:
        searches: the page has its own search field; on other pages, its key opens the finder.
        heading: for screen readers, on pages that show no heading of their own.
    """
    expect_browser()
    _head(is_dark(request))
    ui.page_title(f"{title} · sfapp")
    ui.colors(primary=palette.theme(is_dark(request)).accent)
    ui.on_exception(_notify_error)
    # Without a choice in this browser, the page follows the system's theme; an event tells the server where
    # it drew the plots in the other one.
    dark = ui.dark_mode(is_dark(request) if DARK_COOKIE in request.cookies else None)

    def apply_theme(event: events.GenericEventArguments) -> None:
        dark.value = event.args is True
        ui.colors(primary=palette.theme(dark.value).accent)

    ui.on("system_theme", apply_theme)
    help_dialog = _help_dialog()
    link("Skip to content", "#main", "skip")
    with box("top", "header"):
        _brand()
        detail = _breadcrumbs(crumbs)
        menu = with_keys(label_text("☰", "button", "key menu-switch"), label="Menu")
        menu.props["aria-expanded"] = "false"
        menu.on("click", js_handler="() => sfapp.switchMenu()")
        with box("top-menu"):
            actions = box("page-actions")
            box("grow")
            for page in PAGES:
                if page.header:
                    link(page.header, page.paths[0], "nav", page.key)
            live_badge(workspace)
            find = label_text("Find ⌃K", "button", "key find-switch")
            with_keys(
                find, "Control+k" if searches else "Control+k /", "runs, windows, ranks, hosts, commands"
            )
            find.on("click", js_handler="() => sfappFinder.open()")
            with_keys(label_text("?", "button", "key"), "?", "Keys and help").on("click", help_dialog.open)
            switch = with_keys(label_text("◐", "button", "key"), "d", "Switch between light and dark")
            switch.on("click", apply_theme, js_handler="() => emit(sfapp.switchTheme())")
    # Quasar's page is already the landmark ``main``.
    with box("page") as main:
        main.props["id"] = "main"
        if heading:
            label_text(heading, "h1", "visually-hidden")
        yield PageFrame(main, actions, dark, detail)


def _brand() -> None:
    with link("", "/", "brand", label="sfapp: all problems"):
        logo = ui.element("img")
        logo.props["src"] = asset_url("logo.svg")
        logo.props["alt"] = ""  # the word beside it says the same
        label_text("sfapp", "span")


def _breadcrumbs(crumbs: Sequence[Crumb]) -> TextElement:
    """Build the breadcrumbs and return the detail of the last one."""
    with box("crumbs", "nav") as breadcrumbs:
        breadcrumbs.props["aria-label"] = "Breadcrumbs"
        for crumb in crumbs:
            if crumb.href is not None:
                link(crumb.text, crumb.href).props["title"] = crumb.text
            else:
                label_text(crumb.text, "strong")
            detail = label_text(crumb.detail, "span", "detail")
            detail.set_visibility(bool(crumb.detail))
    return detail


def show_address(url: str, depth: int | None = None) -> None:
    """Show ``url`` as the page's address without loading it; quick changes are combined.

    Args:
        depth: changes of the view that can be undone. Each is an entry of the browser's history, so that Back
            undoes it; None if the page has no such changes.
    """
    ui.run_javascript(f"sfapp.showAddress({json.dumps(rooted(url))}, {json.dumps(depth)})")


def _notify_error(error: Exception) -> None:
    """Show an unexpected error on the page; the server's log has the traceback."""
    ui.notify(f"{type(error).__name__}: {error}", type="negative", timeout=0, close_button="Dismiss")


def live_badge(workspace: Workspace) -> None:
    """Add a badge with the state of the store and the age of the newest packet; it updates itself."""
    with box("live-state") as state:
        state.props["role"] = "status"
        badge = link("", "/", "live").mark("live")

    def refresh() -> None:
        status = workspace.status()
        shown = status_text(status)
        if badge.text != shown:
            badge.text = shown
            badge.classes(replace=f"live live-{'watching' if is_idle(status) else status.kind}")

    refresh()
    when_connected(lambda: ui.timer(1.0, refresh))


def _help_dialog() -> ui.dialog:
    with ui.dialog().props("aria-label='Keys and help'") as dialog, box("sheet"):
        label_text("Keys", "h2")
        with box("keys", "dl"):
            for keys, action in KEYS:
                with box("", "dt"):
                    for key in keys.split("  "):
                        label_text(key, "kbd")
                label_text(action, "dd")
        link("Glossary of labels, thresholds and reasons", "/glossary")
        show_tips = label_text("Show all tips again", "button", "plain").mark("show-tips")
        show_tips.on("click", js_handler="() => sfapp.showTips()")
        label_text("Worked examples", "h2")
        label_text("Small windows from the paper, with its numbers next to ours.", "p", "muted")
        example_links()
    return dialog
