"""``sfapp compare`` through the real command: naming sides, text, JSON, the regression gate, bad input."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sfapp.packets import packet_path, write_packet
from sfapp.packets.paths import thinned_path
from tests.builders import DATA, MS, ddp_job, window_of
from tests.commands import Finished, run_sfapp

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets"
ABA = tuple(f"gpt-small-ddp/{number}" for number in (12, 13, 14))


def sfapp(*arguments: str | Path, expect: int = 0, cwd: Path | None = None) -> Finished:
    finished = run_sfapp("compare", *arguments, cwd=cwd)
    assert finished.returncode == expect, finished.stderr
    return finished


def run_in_shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """As a CI job runs it; ``sfapp`` in it is the command."""
    program = f"{shlex.quote(sys.executable)} -c 'from sfapp.cli import main; main()'"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("sfapp", program, 1)],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


def put(root: Path, run_id: str, slow: tuple[int, ...], **manifest: str) -> Path:
    """A run of small windows, rank 3's data slow by so many ms in each."""
    for number, extra in enumerate(slow):
        durations = ddp_job(steps=12, seed=number, extra={(DATA, 3): extra * MS})
        path = packet_path(root, run_id, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_packet(window_of(durations, run_id=run_id, window=number, **manifest), path)
    return path.parent


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the later one slower, and a third whose id reads like a window of another."""
    root = tmp_path_factory.mktemp("packets")
    put(root, "before", (0, 0, 0))
    put(root, "after", (0, 60, 60))
    put(root, "before/7", (0,))
    return root


def test_a_run_of_which_windows_were_thinned_is_not_judged_without_a_word(tmp_path: Path) -> None:
    before, after = put(tmp_path, "before", (0, 0, 60)), put(tmp_path, "after", (0, 0))
    for number in (0, 1):
        path = packet_path(tmp_path, "before", number)
        path.rename(thinned_path(path))
    words = "2 windows thinned by sfapp compact, not compared"

    for sides in ((before, after), ("--packets", tmp_path, "before", "after")):
        compared = sfapp(*sides, "--json")
        assert f"{sides[-2]}: {words}" in compared.stderr
        assert json.loads(compared.stdout)["thinned"] == [2, 0]
        judged = sfapp(*sides, "--fail-over", "5%", expect=2)
        assert words in judged.stderr
        assert "--fail-over needs every packet of a run" in judged.stderr
    assert words not in sfapp(before / "2", after / "1", "--fail-over", "5%").stderr


def test_the_recorded_a_b_a_reads_as_it_was_recorded() -> None:
    printed = sfapp("--packets", SAMPLE, *ABA).stdout
    first = printed.splitlines()[1]
    assert "B is 78 ms per step slower than A, all of it in data" in first
    assert "C recovers 98 % of it" in first
    assert "In B rank 0 (node-0) is slowest in data in 40 of 40 steps; in A no rank is." in printed
    assert "+ gain depends on waits, + waits for other ranks, − stages or ranks tied" in printed


def test_stages_add_up_in_print_and_exactly_in_json() -> None:
    printed = sfapp("--packets", SAMPLE, *ABA).stdout
    table = [line.split() for line in printed.splitlines() if "→" in line and " % " in line]
    (total,) = (line.split() for line in printed.splitlines() if line.startswith("step time"))
    column = 4  # B − A

    def number(text: str) -> int:
        return round(float(text.replace("−", "-").replace("±", "")) * 100)

    assert sum(number(row[column]) for row in table) == number(total[column + 1])
    document = json.loads(sfapp("--packets", SAMPLE, *ABA, "--json").stdout)
    a, b = document["a"], document["b"]
    change = document["changes"]["a_to_b"]["carry_over"]
    exact = sum(b["advance_ns"]["carry_over"].values()) - sum(a["advance_ns"]["carry_over"].values())
    assert (a["steps"], b["steps"]) == (40, 40)
    assert change["step_time_ns"] == exact / 40
    assert document["recovery"] == pytest.approx(0.9835, abs=1e-4)
    assert document["sides"] == list(ABA)


@pytest.mark.parametrize(
    "sides",
    [
        ("after/0", "after/1"),
        ("after/00000000.parquet", "after/00000001.parquet"),
    ],
)
def test_a_window_is_a_file_or_a_number_in_a_folder(packets: Path, sides: tuple[str, str]) -> None:
    document = json.loads(sfapp(*sides, "--json", cwd=packets).stdout)
    assert (document["a"]["window"], document["b"]["window"]) == (0, 1)
    assert document["changes"]["a_to_b"]["carry_over"]["stages_ns"][DATA] > 50 * MS


def test_a_folder_is_a_whole_run_and_its_windows_spread(packets: Path) -> None:
    document = json.loads(sfapp("after/", packets / "after", "--json", cwd=packets).stdout)
    assert document["a"]["window"] is None
    assert [window["window"] for window in document["a"]["windows"]] == [0, 1, 2]
    assert document["caveats"] == ["same_windows"]
    spread = document["a"]["spread_ns"]
    assert spread["min"] < spread["median"] <= spread["max"]


def test_among_packets_sides_are_runs_and_windows(packets: Path) -> None:
    document = json.loads(sfapp("--packets", packets, "before", "after/2", "before/7/", "--json").stdout)
    assert (document["a"]["steps"], document["b"]["window"], document["c"]["run_id"]) == (36, 2, "before/7")


def test_the_severity_is_that_of_analyze_whatever_names_the_window(packets: Path) -> None:
    by_path = json.loads(sfapp("after/0", "after/2", "--json", cwd=packets).stdout)
    by_run = json.loads(sfapp("--packets", packets, "after/0", "after/2", "--json").stdout)
    assert by_path["b"]["severity"] == by_run["b"]["severity"]


def test_the_same_run_in_two_folders_is_distinguished(tmp_path: Path) -> None:
    put(tmp_path / "main", "train", (0, 0))
    put(tmp_path / "branch", "train", (60, 60))
    result = sfapp("main/train", "branch/train", "--fail-over", "5%", expect=1, cwd=tmp_path)
    assert "given as" in result.stdout
    assert "branch/train" in result.stdout


@pytest.mark.parametrize(
    ("sides", "limit", "code", "message"),
    [
        (("before", "after"), "5%", 1, "over the limit of +5 %"),
        (("before", "after"), "2.5 %", 1, "over the limit of +2.5 %"),
        (("before", "after"), "200%", 0, "within the limit of +200 %"),
        (("after", "before"), "0%", 0, "within the limit of +0 %"),
        (("before", "before"), "0%", 0, "within the limit of +0 %"),
    ],
)
def test_the_gate_fails_where_b_is_slower_by_more(
    packets: Path, sides: tuple[str, str], limit: str, code: int, message: str
) -> None:
    result = sfapp("--packets", packets, *sides, "--fail-over", limit, expect=code)
    assert message in result.stderr
    assert "B's step is" in result.stderr


def test_the_gate_lets_pass_what_the_gates_of_the_verdict_let_pass(packets: Path) -> None:
    sides = ("--packets", packets, "before", "after", "--fail-over", "2%")
    assert "over the limit" in sfapp(*sides, expect=1).stderr
    small = sfapp(*sides, "--min-effect", "0.5", expect=0)
    assert "below the smallest effect of 50.0 %, so it does not fail" in small.stderr


def test_a_ci_job_stops_at_a_regression(packets: Path) -> None:
    failed = run_in_shell("sfapp compare before after --fail-over 5% && echo merged", packets)
    assert failed.returncode == 1
    assert "merged" not in failed.stdout
    assert "over the limit" in failed.stderr


def test_a_reader_that_stops_early_causes_no_complaint(packets: Path) -> None:
    cut = run_in_shell("sfapp compare before after --json | head -c 1", packets)
    assert cut.stdout == "{"
    assert "Traceback" not in cut.stderr
    assert "Exception" not in cut.stderr


def test_gates_group_and_reference_are_those_of_analyze(packets: Path) -> None:
    options = ("--group", "node:0", "--tau-c", "0.5", "--reference", "before/1", "--frontier", "step")
    document = json.loads(sfapp("before", "after/1", *options, "--json", cwd=packets).stdout)
    assert document["a"]["ranks"] == [4]
    assert document["b"]["group"] == "node:0"
    assert document["frontier"] == "step"
    assert document["b"]["routing_set"][0] == DATA


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("before",), "give two sides, or three as A/B/A"),
        (("before", "nowhere"), "nowhere: no such file or folder"),
        (("before", "after/9"), "run 'after' has no window 9; it has 3, from 0 to 2"),
        (("before", "."), "holds 3 runs ('after', 'before', 'before/7')"),
        (("--packets", ".", "before", "x/1"), "no run 'x' among the packets"),
        (("--packets", ".", "before", "/"), "must be RUN or RUN/WINDOW"),
        (("before/0", "after/0", "--fail-over", "5"), "'5' is not a percentage such as 5%"),
        (("before/0", "after/0", "--tau-c", "2"), "tau_c must lie between 0 and 1"),
        (("before/0", "after/0", "--group", "role:pp"), "no window has a group 'role:pp'"),
    ],
)
def test_what_cannot_be_compared_is_explained_and_is_no_regression(
    packets: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in sfapp(*arguments, expect=2, cwd=packets).stderr


def test_other_stages_are_refused_with_what_differs(tmp_path: Path) -> None:
    put(tmp_path, "six", (0,))
    short = window_of(ddp_job(steps=12)[:5], run_id="five")
    path = packet_path(tmp_path, "five", 0)
    path.parent.mkdir(parents=True)
    write_packet(short, path)
    error = sfapp("six", "five", "--fail-over", "5%", expect=2, cwd=tmp_path).stderr
    assert "only the first has 'step.other_cpu_wall'" in error


def test_a_hostile_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    window = window_of(ddp_job(steps=12), run_id="\x1b[31mrun")
    for name in ("one", "two"):
        write_packet(window, tmp_path / f"{name}.parquet")
    printed = sfapp(tmp_path / "one.parquet", tmp_path / "two.parquet").stdout
    assert "\x1b" not in printed
    assert "\\x1b[31mrun" in printed
