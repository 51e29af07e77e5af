"""A run's problems and lost time in W&B, MLflow and TensorBoard, each written and read offline."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfapp.errors import WindowNotFoundError
from sfapp.model import stage_hash
from sfapp.model.stages import RESIDUAL
from sfapp.notebook.packets import open_packets
from sfapp.trackers import log_to_mlflow, log_to_tensorboard, log_to_wandb
from sfapp.trackers.run_log import run_log, tracked_stage_names
from tests.app.recorded_job import hostile_window, job_window, put
from tests.builders import CALLBACKS, MS
from tests.store.jobs import put as put_window
from tests.store.jobs import window

SAMPLE = Path(__file__).parents[2] / "sample_data" / "packets"
RUN = "gpt-small-ddp"
SLOW_WINDOW_ENDS = 159
"""Last step of window 3, in which the loader of rank 3 is late."""


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packets")
    shutil.copytree(SAMPLE / RUN, root / RUN)
    return root


class TestContent:
    def test_a_window_has_its_step_time_its_change_and_its_late_rank(self, packets: Path) -> None:
        found = run_log(packets)
        assert [window.step for window in found.windows] == [40 * window + 39 for window in range(16)]
        slow = next(window for window in found.windows if window.step == SLOW_WINDOW_ENDS).values
        assert slow["sfapp/step_time_ms"] == pytest.approx(167.1, abs=0.1)
        assert slow["sfapp/change_percent"] == pytest.approx(87, abs=1)
        assert (slow["sfapp/needs_attention"], slow["sfapp/late_rank"]) == (1.0, 3.0)
        healthy = found.windows[0].values
        assert healthy["sfapp/needs_attention"] == 0.0
        assert "sfapp/late_rank" not in healthy

    def test_the_change_is_that_of_the_verdict_and_no_measure_of_imbalance(self, packets: Path) -> None:
        with open_packets(packets) as found:
            rows = list(found.windows.sort("window").iter_rows(named=True))
        assert any(row["change"] < row["severity"] for row in rows)
        shown = [window.values["sfapp/change_percent"] for window in run_log(packets).windows]
        assert shown == pytest.approx([100 * row["change"] for row in rows])

    def test_the_problems_and_the_lost_time_are_those_of_all_surfaces(self, packets: Path) -> None:
        found = run_log(packets)
        assert found.summary["sfapp/problems"] == len(found.problems) == 9
        (late,) = (row for row in found.problems if row[0] == "Rank 3 (node-0) is late in data, every step")
        assert late[1].startswith("77.4 ms of 167.1 ms per step")
        # Of the 1.6 rank-minutes in data that `sfapp fleet` states for the whole sample.
        assert 60 * found.summary["sfapp/lost_rank_hours/data"] == pytest.approx(1.3, abs=0.2)

    def test_a_later_call_logs_new_windows_only(self, packets: Path) -> None:
        assert [window.step for window in run_log(packets, after_window=13).windows] == [599, 639]
        assert run_log(packets, after_window=15).last_window == 15

    def test_a_later_call_logs_the_windows_of_a_job_that_returned_to_a_checkpoint(
        self, tmp_path: Path
    ) -> None:
        for number, first_step in enumerate((0, 40, 80, 0, 40)):
            of_steps = range(first_step, first_step + 40)
            put_window(tmp_path, replace(job_window(number, {}), step_N=np.array(of_steps)))
        assert [each.window for each in run_log(tmp_path, after_window=2).windows] == [3, 4]

    def test_a_run_must_be_named_where_there_are_several(self) -> None:
        with pytest.raises(WindowNotFoundError, match="of 3 runs: name one"):
            run_log(SAMPLE)
        with pytest.raises(WindowNotFoundError, match="no run 'other'"):
            run_log(SAMPLE, "other")

    def test_names_from_packets_are_no_markup(self, tmp_path: Path) -> None:
        put(tmp_path, hostile_window())
        text = run_log(tmp_path).markdown()
        assert "<script" not in text
        assert "](javascript:" not in text


STAGES = (
    "..",
    "a/b",
    "attention[λ]",
    "attention[μ]",
    "a_name_that_is_longer_than_plots_have_room_for",
)
"""Names of stages that MLflow refuses in the name of a value."""


def put_stages(root: Path) -> None:
    """Write a run of these stages, with a window in which each is slow on a rank."""
    for number in range(3):
        window = job_window(number, {} if number else {(CALLBACKS, 3): 60 * MS})
        stages = (*STAGES, RESIDUAL)
        manifest = replace(window.manifest, stages=stages, stage_hash=stage_hash(stages))
        put(root, replace(window, manifest=manifest))


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, without any server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return tmp_path


def test_tensorboard_shows_values_over_the_training_step(packets: Path, offline: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed", exc_type=ImportError)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter("logs") as writer:
        assert log_to_tensorboard(writer, packets) == 15
    events = EventAccumulator("logs").Reload()
    times = {event.step: event.value for event in events.Scalars("sfapp/step_time_ms")}
    assert len(times) == 16
    assert times[SLOW_WINDOW_ENDS] == pytest.approx(167.1, abs=0.1)
    (text,) = events.Tensors("sfapp/problem_table/text_summary")
    assert b"Rank 3 (node-0) is late in data" in text.tensor_proto.string_val[0].replace(b"\\", b"")


def test_mlflow_has_metrics_over_the_training_step_and_the_problems(packets: Path, offline: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed", exc_type=ImportError)
    mlflow.set_tracking_uri((offline / "mlruns").as_uri())
    with mlflow.start_run() as active:
        assert log_to_mlflow(packets) == 15
    client = mlflow.MlflowClient()
    times = {
        each.step: each.value for each in client.get_metric_history(active.info.run_id, "sfapp/step_time_ms")
    }
    assert len(times) == 16
    assert times[SLOW_WINDOW_ENDS] == pytest.approx(167.1, abs=0.1)
    assert client.get_run(active.info.run_id).data.metrics["sfapp/problems"] == 9
    page = Path(client.download_artifacts(active.info.run_id, "sfapp/problems.md", str(offline)))
    assert "is late in data, every step" in page.read_text()


def test_mlflow_accepts_stages_of_any_name(tmp_path: Path, offline: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed", exc_type=ImportError)
    put_stages(tmp_path / "packets")
    mlflow.set_tracking_uri((offline / "mlruns").as_uri())
    with mlflow.start_run() as active:
        assert log_to_mlflow(tmp_path / "packets") == 2
    metrics = mlflow.MlflowClient().get_run(active.info.run_id).data.metrics
    lost = {name.rpartition("/")[2] for name in metrics if name.startswith("sfapp/lost_rank_hours/")}
    assert lost >= {"_", "a_b", "attention___", "attention___ 2", "a_name_that_is_longer_than__"}
    assert len(lost) == len(STAGES) + 1


def test_mlflow_accepts_windows_of_a_clock_that_was_not_set(tmp_path: Path, offline: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed", exc_type=ImportError)
    put_window(tmp_path, window("run", 0, started_at="1969-12-31T00:00:00Z", ended_at="1969-12-31T00:01:00Z"))
    mlflow.set_tracking_uri((offline / "mlruns").as_uri())
    with mlflow.start_run() as active:
        assert log_to_mlflow(tmp_path) == 0
    history = mlflow.MlflowClient().get_metric_history(active.info.run_id, "sfapp/step_time_ms")
    assert [(each.step, each.timestamp) for each in history] == [(11, 0)]


def test_wandb_has_values_a_table_and_a_summary(packets: Path, offline: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="W&B is not installed", exc_type=ImportError)
    run: Any = wandb.init(project="sfapp", dir=str(offline))
    assert log_to_wandb(run, packets) == 15
    assert run.summary["sfapp/problems"] == 9
    assert run.summary["sfapp/step_time_ms"] == pytest.approx(88.8, abs=2)
    run.finish()
    (table,) = offline.rglob("*.table.json")
    rows = json.loads(table.read_text())["data"]
    assert "Rank 3 (node-0) is late in data, every step" in [row[0] for row in rows]
    assert list(offline.rglob("*.wandb"))


def test_thousands_of_stages_without_a_latin_letter_are_named_within_seconds() -> None:
    began = time.monotonic()
    names = tracked_stage_names([chr(0x4E00 + index) for index in range(4_096)]).values()
    assert time.monotonic() - began < 5
    assert list(names) == ["_", *(f"_ {number}" for number in range(2, 4_097))]


def test_a_stage_of_spaces_has_a_name() -> None:
    assert list(tracked_stage_names([" ", "  ", ". ."]).values()) == ["_", "_ 2", "_ 3"]
