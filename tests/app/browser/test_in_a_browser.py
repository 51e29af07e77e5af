"""What only a real browser shows: drawing, dragging, keys, addresses, colours, arrivals."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.app.recorded_job import job_window, put
from tests.app.served import served

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/10"
"""The recorded window with a host-only callback on rank 3."""

PATIENCE_MS = 20_000
"""For what is worked out when it is first looked at, on a busy machine."""


def figures_drawn(page: Page) -> None:
    expect(page.locator(".panels .main-svg").first).to_be_visible(timeout=PATIENCE_MS)


def drawn(page: Page, title: str) -> str:
    """The text in a plot, as it stands in the drawing."""
    card = page.locator(".figure", has=page.get_by_role("heading", name=title, exact=True))
    return " ".join(card.locator(".main-svg").all_text_contents())


def rows(page: Page) -> Locator:
    """The table's rows; the pinned column has a container of its own."""
    return page.locator(".ag-center-cols-container .ag-row")


def wait_until(page: Page, holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        page.wait_for_timeout(25)
    raise AssertionError("it did not happen within five seconds")


# test_accessibility.py looks at every other page and tab once it is drawn.
def test_pages_of_every_run_are_drawn(page: Page) -> None:
    page.goto("/windows")
    expect(page.locator(".timeline .main-svg").first).to_be_visible()
    expect(page.locator(".ag-row").first).to_be_visible()
    for path in ("/w/moe-two-roles/1", "/w/gpt-small-rank-lost/1"):
        page.goto(path)
        figures_drawn(page)
    page.goto("/quarantine")
    expect(page.get_by_text("00000015.parquet").first).to_be_visible()
    page.goto("/docs")
    expect(page.get_by_role("link", name="/windows.json", exact=True)).to_be_visible()


def test_the_verdict_names_stage_and_rank_and_dark_is_kept(page: Page) -> None:
    page.goto(SICK)
    expect(page.locator(".verdict .headline")).to_contain_text("callbacks on rank 3")
    page.get_by_role("tab", name="Nodes ▲").click()
    expect(page.get_by_role("tab", name="Node 0 ▲")).to_be_visible()
    # When dark is chosen
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("d")
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    # Then other pages are dark, too
    page.goto("/")
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))


def test_a_dragged_slider_changes_label_and_plot(page: Page) -> None:
    page.goto(f"{SICK}?tab=ambiguity&frontier=step")
    figures_drawn(page)
    expect(page.locator(".verdict .chips")).to_contain_text("stages or ranks tied")
    # When dominance is dragged to the right end
    track = page.get_by_role("slider", name="dominance")
    box = track.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], middle, steps=5)
    page.mouse.move(box["x"] + box["width"] + 20, middle, steps=5)
    page.mouse.up()
    # Then the label goes, the line in the plot stands elsewhere, and the address says so
    expect(page.locator(".verdict .chips")).not_to_contain_text("stages or ranks tied")
    expect(page.locator(".grounds-card")).to_contain_text("no stage label")
    wait_until(page, lambda: "γA 1.00" in drawn(page, "Ambiguity plane"))
    expect(page).to_have_url(re.compile(r"gamma_a=1"))


def test_thresholds_are_dragged_in_the_plots_themselves(page: Page) -> None:
    page.goto(f"{SICK}?tab=ambiguity")
    figures_drawn(page)
    card = page.locator(".figure", has=page.get_by_role("heading", name="Routing set", exact=True))
    card.scroll_into_view_if_needed()
    line = card.locator(".shapelayer path[data-index]").last
    box = line.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 40, steps=6)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"tau_c=0\.\d+"))
    # and dominance on the verdict map
    card = page.locator(".figure", has=page.get_by_role("heading", name="Verdict map", exact=True))
    card.scroll_into_view_if_needed()
    box = card.locator(".shapelayer path[data-index='0']").first.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 3
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=6)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"gamma_a=0\.\d+"))


def test_the_address_restores_the_view(page: Page) -> None:
    page.goto(f"{SICK}?tab=ambiguity&gamma_a=0.85&frontier=step&step=405")
    figures_drawn(page)
    expect(page.get_by_role("tab", name="Ambiguity")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("slider", name="dominance")).to_have_attribute("aria-valuenow", "0.85")
    expect(page.get_by_role("button", name="step-aligned")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_text("step 405", exact=True)).to_be_visible()
    # And a bad value is reported, not raised
    page.goto(f"{SICK}?gamma_a=loud")
    expect(page.get_by_text("gamma_a must be a number, not 'loud'; the default is used.")).to_be_visible()


def test_keys_reach_windows_steps_nodes_and_help(page: Page) -> None:
    page.goto(SICK)
    figures_drawn(page)
    page.keyboard.press("2")
    expect(page.get_by_role("tab", name="Node 1")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("]")
    expect(page.get_by_text("step 400", exact=True)).to_be_visible()
    page.keyboard.press("[")
    page.keyboard.press("o")
    expect(page.get_by_role("tab", name="Overview")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next, previous window")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile(r"/w/gpt-small-ddp/11"))
    figures_drawn(page)
    page.keyboard.press("k")
    expect(page).to_have_url(re.compile(r"/w/gpt-small-ddp/10"))


def test_the_list_is_worked_by_keyboard_alone(page: Page) -> None:
    page.goto("/windows")
    expect(page.locator(".ag-row").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("moe")
    expect(rows(page)).to_have_count(3)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/w/moe-two-roles/\d"))


def test_a_new_packet_arrives_by_itself(page: Page, packets: Path) -> None:
    page.goto("/windows?run=arrivals")
    put(packets, job_window(0, {}, run_id="arrivals"))
    expect(page.get_by_role("heading", name="All healthy: 1 window")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    put(packets, job_window(1, {}, run_id="arrivals"))
    expect(page.get_by_text("window 1 of arrivals arrived")).to_be_visible()
    expect(rows(page)).to_have_count(2)


def test_zoom_survives_a_moved_gate(page: Page) -> None:
    page.goto(f"{SICK}?tab=ambiguity")
    figures_drawn(page)
    card = page.locator(".figure", has=page.get_by_role("heading", name="Ambiguity plane", exact=True))
    plot = card.locator(".js-plotly-plot")
    shown = "(plot) => plot._fullLayout.xaxis.range.map((value) => Number(value.toFixed(3)))"
    before = plot.evaluate(shown)
    # Given a part of the plane that was zoomed into
    card.scroll_into_view_if_needed()
    box = card.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.05 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    page.mouse.up()
    wait_until(page, lambda: plot.evaluate(shown) != before)
    zoomed = plot.evaluate(shown)
    # When a gate moves, the plane is drawn anew
    page.get_by_role("slider", name="candidate threshold").locator(".q-slider__track-container").focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"tau_c=0\.81"))
    page.get_by_role("slider", name="static gain").locator(".q-slider__track-container").focus()
    page.keyboard.press("ArrowRight")
    wait_until(page, lambda: "γG 0.11" in drawn(page, "Ambiguity plane"))
    # Then the same part is shown
    assert plot.evaluate(shown) == zoomed


def test_moved_thresholds_move_their_lines_and_draw_no_plot_anew(page: Page) -> None:
    page.goto(f"{SICK}?tab=ambiguity")
    figures_drawn(page)
    # Given plots that note when Plotly begins to draw them as a whole
    begun = page.evaluate_handle("() => []")
    for plot in page.locator(".panels .js-plotly-plot").all():
        plot.evaluate("(plot, begun) => plot.on('plotly_beforeplot', () => begun.push(plot.id))", begun)
    # When thresholds move, by a little, then their lines follow in the plots that show them
    for gate, line, titles in (
        ("candidate threshold", "τC 0.81", ("Routing set", "Routing set over τC")),
        ("dominance", "γA 0.41", ("Ambiguity plane", "Verdict map")),
    ):
        page.get_by_role("slider", name=gate).locator("[tabindex='0']").focus()
        page.keyboard.press("ArrowRight")
        for title in titles:
            wait_until(page, lambda line=line, title=title: line in drawn(page, title))
    assert begun.json_value() == []


def test_a_moved_threshold_renders_only_the_parts_that_show_it(page: Page) -> None:
    page.goto(f"{SICK}?tab=ambiguity")
    figures_drawn(page)
    # Given an element of the form for a note that counts how often it is rendered
    page.evaluate(
        """() => {
          const pins = Object.values(mounted_app.elements).find((each) => each.class?.includes("pins"));
          const element = Vue.toRaw(pins), tag = element.tag;
          window.rendered = 0;
          Object.defineProperty(element, "tag", {get: () => (window.rendered++, tag)});
        }"""
    )
    page.get_by_role("slider", name="candidate threshold").locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    wait_until(page, lambda: "τC 0.81" in drawn(page, "Routing set"))
    assert page.evaluate("window.rendered") == 0


def drag(page: Page, plot: Locator, begin: float, end: float) -> None:
    """Drag across a plot's own area, from one share of its width to another."""
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + (begin + end) / 2 * box["width"], middle, steps=4)
    page.mouse.move(box["x"] + end * box["width"], middle, steps=4)
    page.mouse.up()


def test_brushing_the_timeline_lists_those_windows(page: Page) -> None:
    page.goto("/windows")
    timeline = page.locator(".timeline .js-plotly-plot")
    expect(timeline.locator(".main-svg").first).to_be_visible()
    drag(page, timeline, 0.2, 0.5)
    expect(page.get_by_text(re.compile(r"^Windows .* to .* ✕$"))).to_be_visible()
    wait_until(page, lambda: "first=" in page.url and "last=" in page.url)
    # What is listed is what the address says, and a reload lists it again
    page.reload()
    expect(rows(page).first).to_be_visible()
    listed = page.evaluate(
        "async (query) => (await (await fetch('/index.json' + query)).json()).total",
        page.evaluate("location.search"),
    )
    assert 0 < listed < 21
    expect(rows(page)).to_have_count(listed)
    page.get_by_role("button", name="Show all windows").click()
    wait_until(page, lambda: "first=" not in page.url)


def test_a_zoom_survives_a_moved_gate_and_a_reload_and_ends_with_a_double_click(page: Page) -> None:
    title = "Exposed time per step"
    page.goto(f"{SICK}?tab=frontier")
    figures_drawn(page)
    plot = page.locator(".figure", has=page.get_by_role("heading", name=title, exact=True)).locator(
        ".js-plotly-plot"
    )

    def ends() -> list[float]:
        return [round(float(end), 6) for end in plot.evaluate("plot => plot._fullLayout.xaxis.range")]

    whole = ends()
    plot.scroll_into_view_if_needed()
    drag(page, plot, 0.3, 0.6)
    wait_until(page, lambda: "zoom=" in page.url)
    zoomed = ends()
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
    page.get_by_role("slider", name="candidate threshold").locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    wait_until(page, lambda: "tau_c=" in page.url)
    assert ends() == zoomed
    page.reload()
    figures_drawn(page)
    assert ends() == pytest.approx(zoomed, rel=1e-6)
    plot.locator(".nsewdrag").first.dblclick()
    wait_until(page, lambda: "zoom=" not in page.url)
    wait_until(page, lambda: ends() == pytest.approx(whole))


def test_a_window_that_a_job_has_still_to_write_opens_when_it_comes(
    context: BrowserContext, packets: Path
) -> None:
    page = context.new_page()  # whose console reports the status 404
    # Given a run with one window
    put(packets, job_window(0, {}, run_id="awaited"))
    wait_until(page, lambda: page.request.get("/w/awaited/0.json").status == 200)
    # and a user who opens the next window before it exists
    answer = page.goto("/w/awaited/1")
    assert answer is not None
    assert answer.status == 404
    expect(
        page.get_by_text(
            "Run 'awaited' has no window 1; it has only window 0. The page opens when it arrives"
        )
    ).to_be_visible()
    # When it is written, then the page opens
    put(packets, job_window(1, {}, run_id="awaited"))
    expect(page.get_by_role("tab", name="Overview")).to_be_visible(timeout=PATIENCE_MS)
    page.close()


def test_a_chooser_keeps_the_keyboards_focus_when_the_page_follows_it(page: Page) -> None:
    page.goto(f"{SICK}?tab=ranks")
    figures_drawn(page)
    slack = page.get_by_role("button", name="slack", exact=True)
    slack.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("quantity=slack"))
    expect(slack).to_have_attribute("aria-pressed", "true")
    expect(slack).to_be_focused()
    # And it shows what another part of the page asks for
    page.get_by_role("button", name="Undo").click()
    expect(slack).to_have_attribute("aria-pressed", "false")
    expect(page).not_to_have_url(re.compile("quantity="))


def test_a_page_asks_for_the_token_once_the_app_was_restarted(
    browser: Browser, packets: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    options = (packets, "--memory", "--token-file", token)
    with browser.new_context() as context:
        page = context.new_page()
        with served(*options, cwd=tmp_path) as server:
            page.goto(server.url)
            page.wait_for_function("window.did_handshake")
            address, port = page.url, server.port
        with served(*options, "--port", str(port), cwd=tmp_path):
            field = page.get_by_label("token")
            expect(field).to_be_visible()
            field.fill("0123456789abcdef")
            page.get_by_role("button", name="Open").click()
            expect(page.get_by_role("link", name="Incidents")).to_be_visible()
            assert page.url == address
