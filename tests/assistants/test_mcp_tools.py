"""The tools of ``sfapp mcp``, asked by a client of the mcp package: same numbers as elsewhere, refusals."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from sfapp.assistants import mcp_server
from sfapp.assistants.bounded_answer import ToolAnswer
from sfapp.assistants.tools import TOOLS
from sfapp.packets import read_window
from tests.app.live_job import LIVE, LiveJob, stand_still
from tests.assistants.conftest import Asking, Assistant
from tests.cli.test_hang_command import dump
from tests.commands import run_sfapp
from tests.store.jobs import put
from tests.store.jobs import window as recorded_window

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_data" / "packets"
RUN = "gpt-small-ddp"


def printed(*arguments: object) -> Any:
    finished = run_sfapp(*arguments, "--json")
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


async def test_answers_have_the_numbers_of_the_command_line(assistant: Assistant, tmp_path: Path) -> None:
    for number in range(5):
        shutil.copy(SAMPLE / RUN / f"{number:08d}.parquet", tmp_path)
    analyzed = printed("analyze", tmp_path)
    async with assistant(tmp_path) as asking:
        # Every problem, with its cost, as `sfapp analyze` prints it
        listed = (await asking.data("list_problems", limit=100))["problems"]
        problems = {one["id"]: one for one in analyzed["problems"]}
        assert {one["id"] for one in listed} == set(problems)
        assert all(one["cost"] == problems[one["id"]]["cost"] for one in listed)
        slow = next(one for one in listed if (one["run_id"], one["stage"]) == (RUN, "data.next_wait"))
        shown = await asking.data("get_problem", id=slow["id"])
        assert shown["problem"] == problems[slow["id"]]
        assert shown["title"] in slow["sentence"]
        assert shown["advice"].startswith("Capture")
        assert len(shown["evidence"]["sources"]) > 2
        # Every field of a window
        window = next(one for one in analyzed["windows"] if (one["run_id"], one["window"]) == (RUN, 3))
        names = [name for name in window if name != "reference"]
        found = await asking.data("get_window", run=RUN, window=3, fields=names)
        assert found["window"] == {name: window[name] for name in names}
        assert found["verdict"]["sentence"] == "data on rank 3 (node-0, local 3), every step"
        # The comparison, and the fleet
        compared = printed("compare", "--packets", tmp_path, f"{RUN}/1", f"{RUN}/3")
        del compared["sides"], compared["thinned"]  # Of what the command read.
        answer = await asking.data("compare", a=f"{RUN}/1", b=f"{RUN}/3")
        assert answer["comparison"] == compared
        fleet = printed("fleet", tmp_path)
        answer = await asking.data("fleet")
        assert {name: answer[name] for name in fleet} == fleet


async def test_lists_are_filtered_and_paged(assistant: Assistant) -> None:
    async with assistant(SAMPLE) as asking:
        runs = await asking.full("list_runs")
        rows = {run["run_id"]: run for run in runs["untrusted_data"]["runs"]}
        assert {name: (run["state"], run["windows"], run["problems"]) for name, run in rows.items()} == {
            "moe-two-roles": ("ongoing", 3, 1),
            "gpt-small-rank-lost": ("ongoing", 2, 1),
            RUN: ("past", 16, 9),
        }
        assert runs["notes"] == ["1 packet file refused; `sfapp validate` prints why"]
        past = await asking.data("list_runs", state="past", text="small")
        assert [run["run_id"] for run in past["runs"]] == [RUN]
        ongoing = (await asking.data("list_problems", ongoing=True))["problems"]
        assert {one["status"] for one in ongoing} == {"ongoing"}
        # Every window is on one page, and the answer says where the next one begins
        seen: list[int] = []
        while True:
            page = await asking.full("list_windows", run=RUN, order="first", limit=7, offset=len(seen))
            seen += [row["window"] for row in page["untrusted_data"]["windows"]]
            if "left_out" not in page:
                break
            assert page["left_out"] == [
                f"windows: {16 - len(seen)} more; the next page begins at offset {len(seen)}"
            ]
        assert seen == list(range(16))
        # Fields that are left out are named, so that they can be asked for
        window = await asking.full("get_window", run=RUN, window=3, group="node:1")
        assert window["untrusted_data"]["window"]["group"] == "node:1"
        assert "rivals" in window["left_out"][0]


async def test_a_thinned_window_has_the_verdict_on_all_its_rows(assistant: Assistant, tmp_path: Path) -> None:
    # Given a run of old windows
    for number in range(10):
        at = f"2026-01-01T00:0{number}:00Z"
        put(tmp_path, recorded_window("old", number, started_at=at, ended_at=at))
    asked = {"run": "old", "window": 0}
    async with assistant(tmp_path) as asking:
        whole = await asking.full("get_window", **asked)
    # When they are thinned
    run_sfapp("compact", tmp_path, "--older-than", 30, "--steps", 4)
    assert len(read_window(tmp_path / "old" / "00000000.thinned.parquet").step_N) == 4
    async with assistant(tmp_path) as asking:
        thinned = await asking.full("get_window", **asked)
        one_node = await asking.full("get_window", **asked, group="node:0")
    # Then the answer is the same, and says that rows are missing; another view is of the rows that are kept
    assert thinned.pop("notes") == [
        "Not all rows of this window are kept; this is the verdict that was made from all of them."
    ]
    assert thinned["untrusted_data"]["window"] == whole["untrusted_data"]["window"]
    assert thinned["untrusted_data"]["verdict"] == whole["untrusted_data"]["verdict"]
    assert one_node["untrusted_data"]["window"]["steps"] == 4
    assert "this verdict is on those that are" in one_node["notes"][0]


async def test_a_stalled_job_is_explained_from_dumps_and_from_its_standstill(
    assistant: Assistant, tmp_path: Path
) -> None:
    dumps, elsewhere = tmp_path / "given" / "dumps", tmp_path / "elsewhere"
    for folder in (dumps, elsewhere):
        folder.mkdir(parents=True)
        for rank in range(4):
            dump(folder, rank, 2 if rank == 2 else 3)
    LiveJob(tmp_path / "given").go()
    stand_still(tmp_path / "given", time.time() - 60)
    async with assistant(tmp_path / "given") as asking:
        expected = printed("hang", dumps)
        found = await asking.data("analyze_hang", dumps="dumps")
        assert {name: found[name] for name in expected} == expected
        assert found["suspects"][0]["rank"] == 2
        # Links that lead to each other are no dumps
        (dumps / "one").symlink_to("other")
        (dumps / "other").symlink_to("one")
        assert (await asking.data("analyze_hang", dumps="dumps"))["suspects"] == found["suspects"]
        standstill = (await asking.data("analyze_hang", run=LIVE))["newest"]
        assert standstill["holders"]
        assert standstill["action"]
        # Nothing outside of the given folder is read, and a refusal does not say whether it exists
        (dumps / "link").symlink_to(elsewhere)
        (tmp_path / "given" / "link").symlink_to(elsewhere)
        for text in (str(elsewhere), "../elsewhere", "link", "dumps", "/no/such", "no\0thing", "~"):
            message = await asking.error("analyze_hang", dumps=text)
            assert "is no file or folder below the folders that the server was started with" in message
        assert "name either" in await asking.error("analyze_hang", run=LIVE, dumps="dumps")


@pytest.fixture(scope="module")
def hostile_pickle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dump that would run a command when it is unpickled."""

    class Runs:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return print, ("pwned",)

    folder = tmp_path_factory.mktemp("hostile")
    (folder / "rank_0").write_bytes(pickle.dumps(Runs()))
    return folder


INVALID = (
    ("list_runs", {"limit": 0}, r"`int` >= 1 - at `\$\.limit`"),
    ("list_runs", {"limit": 101}, r"`int` <= 100 - at `\$\.limit`"),
    ("list_runs", {"sort": "size"}, "unknown field `sort` .*arguments: text, state, limit, offset"),
    ("list_runs", {"state": "dead"}, r"Invalid enum value 'dead'"),
    ("list_problems", {"text": "x" * 201}, "length <= 200"),
    ("list_problems", {"run": "nowhere"}, "no run in the given folders is named 'nowhere'; list_runs"),
    ("get_problem", {}, "missing required field `id`"),
    ("get_problem", {"id": "none"}, "there is no problem 'none'"),
    ("get_window", {"run": RUN, "window": 99}, "it has 16, from 0 to 15"),
    ("get_window", {"run": RUN, "window": True}, "Expected `int`, got `bool`"),
    ("get_window", {"run": RUN, "window": 0, "group": "role:\x1b[2J"}, r"no group 'role:\\x1b\[2J'"),
    (
        "get_window",
        {"run": RUN, "window": 0, "fields": ["nothing"]},
        "no field 'nothing'; it has: advances_ns",
    ),
    ("get_window", {"run": "figure-1", "window": 0}, "no run in the given folders"),
    ("compare", {"a": "/", "b": RUN}, "a must be RUN or RUN/WINDOW, not '/'"),
    ("compare", {"a": RUN, "b": f"{RUN}/99"}, "it has 16, from 0 to 15"),
    ("analyze_hang", {"run": RUN}, "no standstill of this run"),
    ("analyze_hang", {"dumps": "rank_0"}, "no Flight Recorder dump"),
)


async def test_invalid_calls_are_refused_with_a_reason(assistant: Assistant, hostile_pickle: Path) -> None:
    async with assistant(SAMPLE, hostile_pickle) as asking:
        for tool, arguments, message in INVALID:
            assert re.search(message, await asking.error(tool, **arguments)), (tool, arguments)
        with pytest.raises(MCPError, match="no tool 'erase': list_problems"):
            await asking.client.call_tool("erase", {})


async def test_two_calls_are_answered_at_once_also_after_a_client_gave_up(
    assistant: Assistant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a tool that takes long, and counts the calls that it answers at the same time
    lock, finish, running, most = threading.Lock(), threading.Event(), 0, 0

    def answer(*_: object) -> ToolAnswer:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        finish.wait(20)
        with lock:
            running -= 1
        return ToolAnswer({})

    slow = replace(TOOLS["fleet"], run=answer)
    monkeypatch.setattr(mcp_server, "TOOLS", {**TOOLS, "fleet": slow})
    async with assistant(tmp_path) as asking:
        try:
            # When a client cancels each call soon, and sends the next one
            for _ in range(5):
                call = asyncio.create_task(asking.data("fleet"))
                await asyncio.sleep(0.2)
                call.cancel()
                await asyncio.wait([call])
            # Then those that it gave up still count
            assert most == 2
        finally:
            finish.set()
        assert await asking.data("fleet") == {}


async def test_every_tool_is_read_only_and_documented(assistant: Assistant, tmp_path: Path) -> None:
    documented = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "assistants.md").read_text(), re.MULTILINE)
    async with assistant(tmp_path) as asking:
        tools = (await asking.client.list_tools()).tools
        assert [tool.name for tool in tools] == list(TOOLS)
        assert documented == [*TOOLS, "untrusted_data", "left_out", "notes"]
        for tool in tools:
            assert tool.annotations is not None
            assert (tool.annotations.read_only_hint, tool.annotations.open_world_hint) == (True, False)
            assert tool.input_schema["additionalProperties"] is False
            assert all("description" in json.dumps(each) for each in tool.input_schema["properties"].values())
        assert "untrusted data" in (asking.client.instructions or "")
        # An empty folder has empty answers
        await _is_empty(asking)
    assert not list(tmp_path.iterdir())


async def _is_empty(asking: Asking) -> None:
    assert await asking.full("list_runs") == {"untrusted_data": {"runs": [], "total": 0, "offset": 0}}
    assert (await asking.data("list_problems"))["problems"] == []
    assert (await asking.data("fleet"))["runs"] == []
