"""The frame round every page (head, header, keys, light and dark), and the small parts of pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote

from fastapi import Request
from nicegui import events, ui
from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.address import example_page, term_page
from sfapp.app.workspace import Status, Workspace
from sfapp.assets import PLOTLY, assets
from sfapp.incidents import MAX_NAME
from sfapp.model.examples import EXAMPLES, Example
from sfapp.views import format, palette
from sfapp.views.worked_examples import LESSONS

DARK_COOKIE = "sfapp-dark"
"""What was chosen here, ``1`` or ``0``; not there before anything was."""

SYSTEM_COOKIE = "sfapp-system"
"""What the system preferred when a page was last opened, ``dark`` or ``light``."""

SEEN_COOKIE = "sfapp-seen"
READ_COOKIE = "sfapp-read"
NAME_COOKIE = "sfapp-name"
"""Under which name this browser writes notes: what somebody chose to be called, no proof of who they are."""

KEYS = (
    ("/", "search windows"),
    ("j  k", "next and previous window (also ↓ ↑)"),
    ("[  ]", "previous and next step (also ← →)"),
    ("1 … 9", "tab of that node, counted from the first"),
    ("o", "overview"),
    ("u", "undo the last change of a control"),
    ("n", "write a note on what is looked at"),
    ("a", "add it to an incident"),
    ("z", "undo the last edit of a note or incident"),
    ("r", "make a report"),
    ("l", "jobs that run now"),
    ("i", "all incidents"),
    ("⇧↑  ⇧↓", "move the piece of an incident that has the focus"),
    ("d", "light or dark"),
    ("Esc", "leave a field or a dialog"),
    ("?", "this help"),
)


@dataclass(frozen=True, slots=True)
class Crumb:
    """One step of the way to a page; ``href`` is None for the page itself."""

    text: str
    href: str | None = None
    detail: str = ""


@cache
def asset_url(name: str) -> str:
    """The address of an asset; it changes with the content, so that it can be cached for ever."""
    digest = hashlib.sha256((assets() / name).read_bytes()).hexdigest()[:12]
    return f"/assets/{name}?v={digest}"


def is_dark(request: Request) -> bool:
    """Whether to draw in the dark theme: as chosen here, else as the system prefers."""
    chosen = request.cookies.get(DARK_COOKIE)
    return request.cookies.get(SYSTEM_COOKIE) == "dark" if chosen is None else chosen == "1"


def author_of(request: Request) -> str:
    """The name chosen in this browser for what is written here; empty before anything was."""
    name = unquote(request.cookies.get(NAME_COOKIE, ""), errors="replace")
    return " ".join(name.split())[:MAX_NAME]


def label_text(content: str, tag: str = "div", classes: str = "") -> TextElement:
    """Plain text in a tag of its meaning; never markup."""
    element = TextElement(tag=tag, text=content)
    return element.classes(classes) if classes else element


def box(classes: str = "", tag: str = "div") -> ui.element:
    """A plain container."""
    element = ui.element(tag)
    return element.classes(classes) if classes else element


def link(content: str, href: str, classes: str = "", shortcut: str = "", label: str = "") -> TextElement:
    """A link as a plain anchor, with its keys and its spoken name."""
    element = label_text(content, "a", classes)
    element.props["href"] = href
    return with_keys(element, shortcut, label)  # type: ignore[return-value]


def term(content: str, kind: str, name: str, classes: str = "") -> TextElement:
    """A word of a verdict, leading to the glossary in a tab of its own: the view stays as it is."""
    element = link(content, term_page(kind, name), f"term-link {classes}".strip())
    element.props["target"] = "_blank"
    element.props["rel"] = "noopener"
    return element


def with_keys(element: ui.element, shortcut: str = "", label: str = "") -> ui.element:
    """Give an element its keys (the script presses whatever carries them) and its spoken name."""
    if shortcut:
        element.props["aria-keyshortcuts"] = shortcut
    if label:
        element.props["aria-label"] = label
    return element


def chips(texts: Sequence[tuple[str, str, str]]) -> None:
    """Small labels: (text, kind, what it means)."""
    with box("chips", "ul"):
        for content, kind, meaning in texts:
            label_text(content, "li", f"chip chip-{kind}").props["title"] = meaning


def notices(messages: Sequence[str]) -> None:
    """What the page could not do as asked, on the page, until dismissed."""
    with box("notices"):
        for message in messages:
            with box("notice") as element:
                element.props["role"] = "status"
                label_text(message, "span")
                button = with_keys(label_text("×", "button", "plain"), label="dismiss")
                button.on("click", element.delete)


def first_time(request: Request, hint: str) -> None:
    """A hint for someone who has not been here before, until dismissed; the browser remembers."""
    if request.cookies.get(SEEN_COOKIE):
        return
    with box("notice notice-hint") as element:
        element.props["role"] = "note"
        label_text(hint, "span")
        button = with_keys(label_text("got it", "button", "plain"), label="dismiss this hint").mark("got-it")
        button.on("click", element.delete)
        button.on("click", js_handler="() => sfapp.rememberSeen()")


def example_links(but: Example | None = None) -> None:
    """A link to every built-in example, one perhaps left out."""
    with box("links", "ul"):
        for run_id, example in EXAMPLES.items():
            if example != but:
                with box("", "li"):
                    link(LESSONS[run_id].title, example_page(example)).mark(run_id)


def empty(title: str, what_next: str, command: str = "") -> None:
    """Nothing to show: say so, and what to do next."""
    with box("empty"):
        label_text(title, "h2")
        label_text(what_next, "p")
        if command:
            label_text(command, "pre")


# Only the browser knows what the system prefers. Where the server does not know yet, or not any more, the
# page is asked for again before any of it shows: plots are drawn by the server, in one theme or the other.
# Asked for once only: where cookies do not reach the server, the theme stays as it is.
_ASK_THE_SYSTEM = """<script>((drawn) => {
  const cookie = (name) => document.cookie.match(`(?:^|; )sfapp-${name}=([^;]*)`)?.[1];
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  if (cookie("dark") || drawn === system) return;
  document.cookie = `sfapp-system=${system}; path=/; max-age=31536000; samesite=strict`;
  if (cookie("system") !== system || performance.getEntriesByType("navigation")[0].type === "reload") return;
  document.documentElement.style.cssText = `color-scheme: ${system}; display: none`;
  location.reload();
})("%s")</script>"""

# NiceGUI gives the body its theme when the page is mounted, which is after its first frame.
_DARK_FROM_THE_START = """<script>new MutationObserver((_, observer) => {
  document.body?.classList.add("body--dark");
  if (document.body) observer.disconnect();
}).observe(document.documentElement, {childList: true})</script>"""


def _head(dark: bool) -> None:
    ui.add_head_html(_ASK_THE_SYSTEM % ("dark" if dark else "light"))
    if dark:
        ui.add_head_html(_DARK_FROM_THE_START)
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
    ui.add_head_html(
        f'<style>{rules}</style><link rel="stylesheet" href="{asset_url("style.css")}">'
        f'<script src="{asset_url("client.js")}" defer></script>'
        # Plots are drawn once the page is connected; their library is fetched meanwhile.
        f'<link rel="modulepreload" href="{asset_url("plotly.js")}">'
        f'<link rel="modulepreload" href="/assets/{PLOTLY}">'
    )


@dataclass(frozen=True, slots=True)
class PageFrame:
    """A page's frame: where its content goes, what stands beside its name, its light or dark switch."""

    main: ui.element
    beside: ui.element
    dark: ui.dark_mode


@contextmanager
def frame(
    workspace: Workspace, request: Request, title: str, crumbs: Sequence[Crumb], *, searches: bool = False
) -> Iterator[PageFrame]:
    """The page round its content: skip link, header with the way here, live badge, keys; then ``main``.

    Args:
        searches: the page has a search field of its own; the others lead to it.
    """
    _head(is_dark(request))
    ui.page_title(f"{title} · sfapp")
    ui.colors(primary=palette.theme(is_dark(request)).accent)
    ui.on_exception(_tell)
    dark = ui.dark_mode(is_dark(request))

    def wear(event: events.GenericEventArguments) -> None:
        dark.value = event.args is True
        ui.colors(primary=palette.theme(dark.value).accent)

    ui.on("system_theme", wear)
    help_dialog = _help_dialog()
    link("skip to content", "#main", "skip")
    with box("top", "header"):
        with link("", "/", "brand", label="sfapp: all windows"):
            ui.element("img").props["src"] = asset_url("logo.svg")
            label_text("sfapp", "span")
        with box("crumbs", "nav") as way:
            way.props["aria-label"] = "where you are"
            for crumb in crumbs:
                if crumb.href is not None:
                    link(crumb.text, crumb.href)
                else:
                    label_text(crumb.text, "strong")
                if crumb.detail:
                    label_text(crumb.detail, "span", "detail")
        beside = box("beside")
        box("grow")
        link("live", "/live", "nav", "l")
        link("incidents", "/incidents", "nav", "i")
        live_badge(workspace)
        if not searches:
            link("/", "/#search", "key", "/", "search windows")
        with_keys(label_text("?", "button", "key"), "?", "keys and help").on("click", help_dialog.open)
        switch = with_keys(label_text("◐", "button", "key"), "d", "light or dark")
        switch.on("click", wear, js_handler="() => emit(sfapp.switchTheme())")
    # Quasar's page is the landmark ``main`` already.
    with box("page") as main:
        main.props["id"] = "main"
        yield PageFrame(main, beside, dark)


def show_address(url: str) -> None:
    """Make ``url`` the page's address without loading anything; quick changes are gathered."""
    ui.run_javascript(f"sfapp.address({json.dumps(url)})")


def _tell(error: Exception) -> None:
    """An error while the page was open, on the page; the server's log has the rest."""
    ui.notify(f"{type(error).__name__}: {error}", type="negative", timeout=0, close_button="dismiss")


def live_badge(workspace: Workspace) -> None:
    """Whether packets are being watched, and how old the newest is; kept up to date."""
    badge = link("", "/", "live")
    badge.props["role"] = "status"
    badge.mark("live")

    def refresh() -> None:
        status = workspace.status()
        words = _live_words(status)
        if badge.text != words:
            badge.text = words
            badge.classes(replace=f"live live-{status.kind}")

    refresh()
    ui.timer(1.0, refresh)


def _live_words(status: Status) -> str:
    newest = f"newest packet {format.age(status.age_seconds)}" if status.newest else "no packet yet"
    if status.kind == "reading":
        progress = status.progress
        done = f" {format.count(progress.done)} of {format.count(progress.total)}" if progress else ""
        return f"reading packets{done}"
    if status.kind == "failed":
        return f"not watching: {status.message}"
    return f"live, {newest}" if status.kind == "live" else f"reading was cancelled, {newest}"


def _help_dialog() -> ui.dialog:
    with ui.dialog() as dialog, box("sheet"):
        label_text("Keys", "h2")
        with box("keys", "dl"):
            for keys, what in KEYS:
                with box("", "dt"):
                    for key in keys.split("  "):
                        label_text(key, "kbd")
                label_text(what, "dd")
        link("glossary: what every label, gate and reason means", "/glossary")
        again = label_text("show the reading aids again", "button", "plain").mark("aids-again")
        again.on("click", js_handler="() => sfapp.showAids()")
        label_text("Examples", "h2")
        label_text("Small enough for a pencil, with the paper's own numbers beside.", "p", "muted")
        example_links()
    return dialog
