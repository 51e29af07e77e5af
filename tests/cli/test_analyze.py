"""``sfapp analyze`` by its entry point: the golden windows, formats, options, bad input."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sfapp.model import RankTable, Window
from sfapp.packets import packet_path, write_packet
from tests.builders import DATA, MS, ddp_job, window_of
from tests.commands import Finished, run_sfapp

GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED: dict[str, dict[str, dict[str, Any]]] = json.loads((GOLDEN / "expected.json").read_text())


def sfapp(*arguments: str | Path, expect: int = 0) -> Finished:
    finished = run_sfapp(*arguments)
    assert finished.returncode == expect, finished.stderr
    return finished


def analyzed(*arguments: str | Path) -> dict[str, dict[str, Any]]:
    windows = json.loads(sfapp("analyze", *arguments, "--json").stdout)["windows"]
    return {window["run_id"]: window for window in windows}


@pytest.fixture(scope="module", params=["declared", "measured"])
def golden(request: pytest.FixtureRequest) -> tuple[str, dict[str, dict[str, Any]]]:
    # What is expected of the golden windows is the paper's: of the step-aligned frontier.
    options = ("--frontier", "step", "--model-fit", request.param)
    return request.param, analyzed(GOLDEN / "packets", *options)


def test_every_golden_window_comes_out_as_expected(golden: tuple[str, dict[str, dict[str, Any]]]) -> None:
    mode, found = golden
    assert set(found) == set(EXPECTED)
    for name, modes in EXPECTED.items():
        for key, value in modes[mode].items():
            compare(f"{name} {mode} {key}", key, found[name], value)


def compare(where: str, key: str, window: dict[str, Any], expected: Any) -> None:
    if key == "labels":
        assert {label["label"] for label in window["labels"]} == set(expected), where
    elif key == "reasons":
        reasons = {reason for label in window["labels"] for reason in label["reasons"]}
        assert reasons | set(window["reasons"]) >= set(expected), where
    elif key in ("wait_stages", "co_critical_stages", "routing_set"):
        assert set(window[key]) == set(expected), where
    elif key == "wait_fit":
        for stage, fit in expected.items():
            assert window[key][stage] == (fit if fit is None else pytest.approx(fit, abs=1e-9)), (
                where,
                stage,
            )
    elif isinstance(expected, float | dict):
        assert window[key] == pytest.approx(expected, abs=1e-9), where
    else:
        assert window[key] == expected, where


def test_the_preset_paper_takes_the_wait_model_from_the_packet() -> None:
    fit = analyzed(GOLDEN / "packets" / "fit", "--preset", "paper")["fit"]
    assert {label["label"] for label in fit["labels"]} == set(EXPECTED["fit"]["declared"]["labels"])
    assert fit["gates"]["model_fit"] == "declared"
    assert fit["frontier"] == "step"


def test_a_frontier_that_is_named_stands_against_the_preset_s() -> None:
    fit = analyzed(GOLDEN / "packets" / "fit", "--preset", "paper", "--frontier", "carry_over")["fit"]
    assert fit["frontier"] == "carry_over"
    assert analyzed(GOLDEN / "packets" / "fit")["fit"]["frontier"] == "carry_over"


@pytest.fixture
def packets(tmp_path: Path) -> Path:
    """One run of three windows, the last with a slow data loader on rank 3, and one broken file."""
    for number, slow in enumerate((0, 0, 120 * MS)):
        window = window_of(ddp_job(seed=number, extra={(DATA, 3): slow}), run_id="job", window=number)
        write(window, tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    return tmp_path


def write(window: Window, root: Path) -> Path:
    path = packet_path(root, window.run_id, window.number)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_packet(window, path)
    return path


def test_each_window_has_a_likely_cause_and_its_evidence(packets: Path) -> None:
    document = json.loads(sfapp("analyze", packets, "--json").stdout)
    slow = document["windows"][2]
    assert slow["aim"]["stage"] == DATA
    assert (slow["aim"]["rank"], slow["aim"]["hostname"], slow["aim"]["basis"]) == (3, "node-0", "delta")
    assert {"name", "stage", "agrees"} <= set(slow["aim"]["evidence"][0])
    assert slow["culprit"] == "chronic"
    assert slow["leader"] == {"rank": 3, "hostname": "node-0", "share": 1.0}
    assert slow["severity"] > 1
    # and the broken file is listed without disturbing the others
    assert [Path(refused["path"]).name for refused in document["quarantined"]] == ["broken.parquet"]


def test_strict_turns_a_quarantined_file_into_an_exit_code(packets: Path) -> None:
    sfapp("analyze", packets, "--strict", expect=1)


def test_the_table_reads_as_a_sentence_a_window(packets: Path) -> None:
    printed = sfapp("analyze", packets).stdout
    assert "run job: 8 ranks on 2 nodes" in printed
    assert "data on rank 3 (node-0), every step" in printed
    assert "1 file quarantined" in printed


def test_a_run_ends_with_how_many_windows_need_attention_and_how_many_chance_explains(packets: Path) -> None:
    windows = json.loads(sfapp("analyze", packets, "--json").stdout)["windows"]
    slow = sum(window["needs_attention"] for window in windows)
    line = (
        f"{slow} of {len(windows)} windows? needs? attention .by chance in a healthy run: at most 0.0\\d of"
    )
    assert slow
    assert re.search(f"^{line}", sfapp("analyze", packets).stdout, re.MULTILINE)


def test_csv_keeps_text_that_reads_like_a_formula_as_text(tmp_path: Path) -> None:
    # Given a run whose name a spreadsheet would compute
    write_packet(window_of(ddp_job(ranks=2, steps=4, seed=0), run_id="=1+1"), tmp_path / "00000000.parquet")
    # Then the table neutralises it, as the app's tables do
    rows = list(csv.DictReader(io.StringIO(sfapp("analyze", tmp_path, "--csv").stdout)))
    assert [row["run_id"] for row in rows] == ["'=1+1"]


def test_rows_hold_what_each_stage_would_have_shown() -> None:
    result = sfapp("analyze", "sample_data/packets", "--csv")
    healthy = next(
        row for row in csv.DictReader(io.StringIO(result.stdout)) if row["needs_attention"] == "False"
    )
    assert 0.0 < float(healthy["resolution.data.next_wait"]) < 1.0
    assert healthy["resolution.model.backward_cpu_wall"] == ""  # ranks wait there, so own time is not known


def test_csv_and_parquet_hold_the_same_rows(packets: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    printed = sfapp("analyze", packets, "--csv", "--parquet", target).stdout
    rows = list(csv.DictReader(io.StringIO(printed)))
    table = pq.read_table(target)
    assert [row["window"] for row in rows] == [str(window) for window in table["window"].to_pylist()]
    assert float(rows[2][f"share.{DATA}"]) == table[f"share.{DATA}"].to_pylist()[2]


def test_a_parquet_file_that_cannot_be_written_is_a_message(packets: Path, tmp_path: Path) -> None:
    target = tmp_path / "missing" / "rows.parquet"
    failed = sfapp("analyze", packets, "--parquet", target, expect=2)
    assert failed.stderr == f"sfapp: {target} cannot be written: No such file or directory\n"


def test_a_group_a_reference_and_gates_can_be_chosen(packets: Path) -> None:
    arguments = ("--group", "node:1", "--reference", "job/1", "--gamma-a", "0.9", "--baseline", "reference")
    slow = json.loads(sfapp("analyze", packets, "--json", *arguments).stdout)["windows"][2]
    assert (slow["group"], slow["ranks"], slow["baseline"]) == ("node:1", 4, "reference")
    assert (slow["reference"]["window"], slow["reference"]["group"]) == (1, "node:1")
    assert slow["gates"]["gamma_a"] == 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tau-c", "2"), "tau_c must lie between 0 and 1, not 2"),
        (("--group", "role:pp"), "no window has a group 'role:pp'; there are: all, node:0, node:1"),
        (("--reference", "job/77"), "the reference window job/77 is not among the packets given"),
        (("--reference", "seven"), "must be RUN/WINDOW"),
        (("--reference", "job/²"), "must be RUN/WINDOW"),
    ],
)
def test_a_wrong_option_is_explained(packets: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in sfapp("analyze", packets, *arguments, expect=2).stderr


def test_an_empty_folder_explains_what_a_packet_is(tmp_path: Path) -> None:
    assert (
        "sfapp.Recorder and `sfapp import` write them as .parquet files; verdicts of `sfapp ingest` are "
        "read by `sfapp serve` and `sfapp fleet`" in sfapp("analyze", tmp_path, expect=2).stderr
    )


def test_a_hostile_host_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    window = window_of(ddp_job(extra={(DATA, 3): 120 * MS}), run_id="\x1b[31mrun")
    hosts = tuple("\x1b]0;owned\x07<script>" for _ in window.ranks.hostname)
    ranks = window.ranks
    table = RankTable(ranks.rank, ranks.local_rank, ranks.node_rank, hosts, ranks.role)
    hostile = Window(window.manifest, window.duration_SNR, window.wall_NR, window.step_N, table)
    write_packet(hostile, tmp_path / "00000000.parquet")
    printed = sfapp("analyze", tmp_path).stdout
    assert "\x1b" not in printed
    assert "\\x1b]0;owned" in printed


def test_durations_too_large_to_add_up_are_quarantined_and_the_rest_analyzed(packets: Path) -> None:
    huge = np.full((6, 12, 2), 2**60, dtype=np.int64)
    path = write(window_of(huge, run_id="absurd", wall=huge[0]), packets)
    document = json.loads(sfapp("analyze", packets, "--json").stdout)
    assert {window["run_id"] for window in document["windows"]} == {"job"}
    reasons = {Path(refused["path"]): refused["reason"] for refused in document["quarantined"]}
    assert "more than the accounting can hold" in reasons[path]


def test_thresholds_are_left_out_of_the_help_and_listed_on_demand() -> None:
    assert "--gamma-a" not in sfapp("analyze", "--help").stdout
    printed = sfapp("analyze", "--help-gates").stdout
    assert "--gamma-a" in printed
    assert "candidate threshold" in printed


@pytest.mark.parametrize(
    ("fixed", "place"),
    [("", "data"), (f"{DATA}@3", "data"), ("@node:0", "every stage"), ("@all", "every stage")],
)
def test_a_what_if_without_a_replay_prints_the_range(packets: Path, fixed: str, place: str) -> None:
    option = f"--what-if={fixed}" if fixed else "--what-if"
    lines = sfapp("analyze", packets, option).stdout.splitlines()
    sentence = [line.strip() for line in lines if "No prediction" in line][-1]
    assert sentence.startswith(f"No prediction for {place}: the packet holds no waits within stages. A step ")
    assert re.search(r"would take [\d.]+–[\d.]+ ms instead of [\d.]+ ms\.$", sentence)


def test_a_what_if_of_a_node_that_is_not_there_is_refused(packets: Path) -> None:
    assert "no rows of node 9" in sfapp("analyze", packets, "--what-if", "@node:9", expect=2).stderr
