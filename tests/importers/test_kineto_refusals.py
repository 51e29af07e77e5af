"""Kineto traces that are damaged, cut or hostile: what is refused and what is never kept."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sfapp.cli import cli
from sfapp.importers import write_imported
from sfapp.importers.kineto import event_reader as kineto_events
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER, RESIDUAL
from tests.importers.kineto_events import PLAIN_STEP, event, imported, of_rank, trace


class TestRefused:
    """A fault of a file is reported with its place; the other files are unaffected."""

    def refusal(self, folder: Path) -> Any:
        trace(folder / "good_rank0.json", PLAIN_STEP, **of_rank(0))
        found = imported(folder)
        assert len(found.windows) == 1
        assert found.windows[0].window.manifest.missing_ranks == (1,)
        (refused,) = found.refused
        return refused

    def test_a_packed_file_that_was_cut_off(self, tmp_path: Path) -> None:
        path = trace(tmp_path / "bad.json.gz", PLAIN_STEP * 500, **of_rank(1))
        path.write_bytes(path.read_bytes()[:-200])

        refused = self.refusal(tmp_path)

        assert "cut off" in refused.reason
        assert refused.path == str(path)
        assert refused.place.startswith("byte ")

    def test_text_that_was_cut_off(self, tmp_path: Path) -> None:
        path = trace(tmp_path / "bad.json", PLAIN_STEP, **of_rank(1))
        path.write_bytes(path.read_bytes()[:-40])

        refused = self.refusal(tmp_path)

        assert "cut off" in refused.reason
        assert refused.place.startswith("byte ")

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"PAR1....", "is not a trace"),
            (b"", "is not a trace"),
            (b'{"a": 1}', "is not a trace"),
            (b'{"traceEvents": []}', "no events"),
            (b'{"traceEvents": [1, 2]}', "Expected `object`"),
            (b'{"traceEvents": [{"ph": "X", "ts": "soon"}]}', "ts: Expected"),
            (b'{"traceEvents": [{"ph": "X"}]]}', "is not valid JSON"),
            (b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "a"}], oops', "is not valid JSON"),
            (b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "\xff"}]}', "is not valid JSON"),
            (b'{"traceEvents": [{"ph": "X", "args": ' + b'{"x": [' * 100_000, "is not valid JSON"),
            (b'{"traceEvents": [{"ph": "X", "ts": 1, "name": "a"}]}', "has no steps"),
            (b'{"a": ' + b'{"traceEvents": [1, ' * 100, "its first 16 keys 'traceEvents' are not its own"),
        ],
    )
    def test_what_is_no_trace(self, tmp_path: Path, content: bytes, reason: str) -> None:
        path = tmp_path / "bad.json"
        path.write_bytes(content)

        refused = self.refusal(tmp_path)

        assert reason in refused.reason
        assert refused.path == str(path)

    def test_a_negative_duration(self, tmp_path: Path) -> None:
        trace(tmp_path / "bad.json", [*PLAIN_STEP, event("back", 9, 8)], **of_rank(1))

        refused = self.refusal(tmp_path)

        assert refused.place == "event 6"
        assert "'back' has a negative duration" in refused.reason

    def test_a_bomb_is_given_up_within_bounds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kineto_events, "MAX_BETWEEN_CUTS", 2**20)
        monkeypatch.setattr(kineto_events, "CHUNK", 2**16)
        inside = b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * 2**22 + b'"}]}'
        (tmp_path / "bad.json.gz").write_bytes(gzip.compress(inside))

        assert "one event is longer than 1 MiB" in self.refusal(tmp_path).reason


def test_cuts_inside_strings_and_lists_do_not_mislead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may end anywhere: here after every few bytes of text that looks like the end of an event."""
    monkeypatch.setattr(kineto_events, "CHUNK", 64)
    nasty = [
        event('a"},{"b}, {', 0, 1, "cpu_op", args={"x": [{"y": [{}, {}]}, {"z": "}]},{"}]}) for _ in range(40)
    ]
    path = trace(tmp_path / "a.json", [*nasty, *PLAIN_STEP])

    whole = kineto_events.EventFile(path)
    names = [each.name for batch in whole.batches() for each in batch]

    assert names == ['a"},{"b}, {'] * 40 + [each["name"] for each in PLAIN_STEP]


def test_environment_variables_are_never_kept(tmp_path: Path) -> None:
    secret = {"environment": {"TOKEN": "hunter2"}, "host_name": "hunter2", "mast_job_environment": "hunter2"}
    path = trace(
        tmp_path / "a.json", [*PLAIN_STEP, event("x", 1, 2, "cpu_op", args={"TOKEN": "hunter2"})], **secret
    )

    write_imported(imported(path), tmp_path / "packets")

    for file in (tmp_path / "packets").rglob("*.parquet"):
        assert b"hunter2" not in file.read_bytes()


def test_the_command_lists_refused_files_and_exits_with_1(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    trace(traces / "rank0.json", PLAIN_STEP)
    (traces / "rank1.json").write_text("{")
    out = ["-o", str(tmp_path / "packets")]

    text = CliRunner().invoke(cli, ["import", "kineto", str(traces), *out])
    as_json = CliRunner().invoke(cli, ["import", "kineto", str(traces), "--json", *out])

    assert (text.exit_code, as_json.exit_code) == (1, 1)
    assert "1 packet written" in text.output
    assert "rank1.json: is not a trace" in text.output
    document = json.loads(as_json.stdout)
    assert document["refused"][0]["path"].endswith("rank1.json")
    assert document["windows"][0]["stages"] == [DATA, FORWARD, BACKWARD, OPTIMIZER, RESIDUAL]
    assert len(document["packets"]) == len(document["operators"]) == 1
