"""The report: one file that opens anywhere, says what the app says, and can be made again."""

from __future__ import annotations

import base64
import gzip
import re
import shlex
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser

from benchmarks.chromium import SHELL, chromium
from sfapp.packets import packet_path, write_packet
from sfapp.report.html import changes
from tests.builders import CALLBACKS, MS, ddp_job, window_of
from tests.commands import run_sfapp as run

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_data" / "packets"
HOSTILE = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(SHELL) as browser:
        yield browser


def opened(browser: Browser, path: Path, scheme: Any = "light") -> tuple[dict[str, Any], list[str]]:
    """What the page says of itself once drawn, and what it complained about or asked for."""
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    events: list[str] = []
    page.on("console", lambda message: events.append(message.text))
    page.on("pageerror", lambda error: events.append(str(error)))
    page.on("request", lambda request: events.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn]")
    seen = page.evaluate(
        """() => ({
          drawn: Number(document.documentElement.dataset.drawn),
          plots: document.querySelectorAll(".plot .main-svg").length,
          ink: document.querySelector(".js-plotly-plot").layout.font.color,
          text: document.body.innerText,
          pwned: window.pwned ?? null,
        })"""
    )
    context.close()
    assert events.pop(0) == path.as_uri()
    return seen, events


def test_a_report_opens_from_a_file_makes_no_request_and_follows_light_and_dark(
    browser: Browser, tmp_path: Path
) -> None:
    asked = ["--window", "gpt-small-ddp/10", "--window", "gpt-small-ddp/4", "--title", "Slow callback"]
    made = run("report", SAMPLE, *asked, "-o", "incident.html", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    light, events = opened(browser, tmp_path / "incident.html", "light")
    assert events == []
    assert light["drawn"] == 14
    assert light["plots"] >= 12
    for expected in ("Slow callback", "callbacks on rank 3", "data", "limitations", "sha256", "sfapp report"):
        assert expected in light["text"]
    dark, events = opened(browser, tmp_path / "incident.html", "dark")
    assert events == []
    assert light["ink"] != dark["ink"]


def test_the_printed_command_makes_the_same_report_again(tmp_path: Path) -> None:
    moved = ["--gamma-a", "0.6", "--frontier", "step", "--title", "It's slow", "--group", "node:0"]
    run("report", SAMPLE, *moved, "-o", "first.html", cwd=tmp_path)
    first = (tmp_path / "first.html").read_text(encoding="utf-8")
    (printed,) = re.findall(r"<p><code>(.*?)</code></p>", first)
    for entity, character in (("&#39;", "'"), ("&#34;", '"'), ("&amp;", "&")):
        printed = printed.replace(entity, character)
    again = shlex.split(printed)
    assert again[:2] == ["sfapp", "report"]
    (tmp_path / "first.html").unlink()
    assert run(*again[1:], cwd=tmp_path).returncode == 0
    assert (tmp_path / "first.html").read_text(encoding="utf-8") == first
    assert "γA 0.6 (default 0.4)" in first


def test_five_windows_of_64_ranks_stay_below_a_megabyte(browser: Browser, tmp_path: Path) -> None:
    for number in range(5):
        window = window_of(
            ddp_job(seed=number, ranks=64, steps=100, extra={(CALLBACKS, 3): 60 * MS}),
            first_step=100 * number,
            run_id="wide",
            window=number,
        )
        path = packet_path(tmp_path, "wide", number)
        path.parent.mkdir(exist_ok=True)
        write_packet(window, path)
    assert run("report", tmp_path, "-o", "wide.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "wide.html").stat().st_size <= 1_000_000
    seen, events = opened(browser, tmp_path / "wide.html")
    assert (seen["drawn"], events) == (35, [])


def test_a_redacted_report_holds_no_name_of_run_or_host(browser: Browser, tmp_path: Path) -> None:
    asked = ["--window", "gpt-small-ddp/10", "--redact", "--title", "gpt-small-ddp on node-0 is slow"]
    assert run("report", SAMPLE, *asked, "-o", "r.html", cwd=tmp_path).returncode == 0
    seen, _ = opened(browser, tmp_path / "r.html")
    plots = unpacked((tmp_path / "r.html").read_text(encoding="utf-8"), "plots")
    for name in ("gpt-small", "node-0", "node-1", "moe-two-roles"):
        assert name not in seen["text"]
        assert name not in plots
    assert "run-1 on host-1 is slow" in seen["text"]
    # And the command, given where the packets are, makes it again
    (printed,) = re.findall(r"sfapp report packets .*", seen["text"])
    again = [str(SAMPLE) if word == "packets" else word for word in shlex.split(printed)[1:]]
    first = (tmp_path / "r.html").read_bytes()
    assert run(*again, cwd=tmp_path).returncode == 0
    assert (tmp_path / "r.html").read_bytes() == first


def unpacked(page: str, name: str) -> str:
    (packed,) = re.findall(rf'id="{name}">(.*?)</script>', page)
    return gzip.decompress(base64.b64decode(packed)).decode()


def test_names_that_mean_harm_stay_text(browser: Browser, tmp_path: Path) -> None:
    run_id = f"run/{HOSTILE}"
    path = packet_path(tmp_path, run_id, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_packet(window_of(ddp_job(seed=0), run_id=run_id), path)
    assert run("report", tmp_path, "--title", HOSTILE, "-o", "r.html", cwd=tmp_path).returncode == 0
    seen, events = opened(browser, tmp_path / "r.html")
    assert seen["pwned"] is None
    assert events == []
    assert HOSTILE in seen["text"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--window", "gpt-small-ddp/99", "-o", "r.html"], "there is no window gpt-small-ddp/99"),
        (["--window", "nonsense", "-o", "r.html"], "must be RUN/WINDOW"),
    ],
)
def test_an_impossible_report_gives_the_reason(tmp_path: Path, arguments: list[str], expected: str) -> None:
    made = run("report", SAMPLE, *arguments, cwd=tmp_path)
    assert made.returncode == 2
    assert expected in made.stderr
    assert not list(tmp_path.iterdir())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("xyz"), JSON), st.dictionaries(st.sampled_from("xyz"), JSON))
def test_the_changes_between_two_themes_turn_one_into_the_other(light: Any, dark: Any) -> None:
    made = {"figure": deepcopy(light)}
    for path, *value in changes({"figure": light}, {"figure": dark}):
        *way, last = path
        holder: Any = made
        for key in way:
            holder = holder[key]
        if value:
            holder[last] = value[0]
        else:
            del holder[last]
    assert made == {"figure": dark}
