"""Names that frameworks mark: each counts for its stage, in the form in which it appears in a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfapp.importers import NO_MAPPING
from sfapp.importers.kineto.ranges import SPARSE_DIST, stage_of
from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER, RESIDUAL
from tests.importers.kineto_events import event, imported, notes_text, spent_ms, trace

LIGHTNING = "[pl][profile]"


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("## next_batch ##", DATA),
        ("## wait_for_batch 7 ##", DATA),
        ("## wait_for_batch ? ##", DATA),
        ("## start_sparse_data_dist 8 ##", SPARSE_DIST),
        ("## forward 12 ##", FORWARD),
        ("## backward 12 ##", BACKWARD),
        ("## emb_backward 12 ##", BACKWARD),
        ("## optimizer 11 ##", OPTIMIZER),
        ("## RecMetricModule:update ##", CALLBACKS),
        ("## wait_for_training_batch ##", DATA),
        ("## sdd_preprocess_splits ##", SPARSE_DIST),
        ("CustomFSDP.forward", FORWARD),
        ("train.next(data_iter)", DATA),
        ("MyAutoUnit.train.next(data_iter)", DATA),
        ("MyAutoUnit.train.move_data_to_device", DATA),
        ("step_12_0_forward", FORWARD),
        ("step_12_0_backward", BACKWARD),
        ("step_12_optimizer", OPTIMIZER),
        (f"{LIGHTNING}[_TrainingEpochLoop].train_dataloader_next", DATA),
        (f"{LIGHTNING}[Strategy]DDPStrategy.batch_to_device", DATA),
        (f"{LIGHTNING}[Callback]ModelCheckpoint{{'monitor': None}}.on_train_batch_end", CALLBACKS),
    ],
)
def test_a_name_counts_for_its_stage(name: str, stage: str) -> None:
    assert stage_of(name, NO_MAPPING) == stage


@pytest.mark.parametrize(
    "name",
    [
        "## forward pass ##",
        "## forward 12",
        "## all2all_data:kjt splits ##",
        "evaluate.next(data_iter)",
        "step_12",
        "step_12_grad_norm",
        f"{LIGHTNING}run_training_batch",
        f"{LIGHTNING}[_EvaluationLoop].val_next",
    ],
)
def test_a_name_that_encloses_several_stages_or_none_is_no_stage(name: str) -> None:
    assert stage_of(name, NO_MAPPING) is None


def test_metas_trainers_show_their_data_wait(tmp_path: Path) -> None:
    """In the order of HolisticTraceAnalysis' tests/data/trace_filter/sampled_rank-0.json.gz."""
    events = [
        event("ProfilerStep#551", 0, 607),
        event("## sdd_preprocess_splits ##", 2, 15),
        event("## all2all_data:kjt splits ##", 14, 15),
        event("## data_load ##", 15, 19),
        event("## forward ##", 20, 153),
        event("DistributedDataParallel.forward", 20, 153),
        event("## sdd_preprocess_tensors ##", 153, 155),
        event("## backward ##", 155, 390),
        event("## optimizer ##", 391, 595),
        event("Optimizer.step#Shampoo.step", 391, 582),
        event("## recmetrics_update ##", 595, 601),
        event("## sdd_wait_tensors ##", 601, 603),
    ]

    found = imported(trace(tmp_path / "a.json", events))

    assert spent_ms(found) == {
        DATA: [4], SPARSE_DIST: [17], FORWARD: [133], BACKWARD: [235], CALLBACKS: [6], OPTIMIZER: [204],
        RESIDUAL: [8],
    }  # fmt: skip
    assert "data wait" not in notes_text(found)


def test_forward_and_backward_in_an_optimizers_closure_are_not_optimizer_time(tmp_path: Path) -> None:
    """As Lightning's PyTorchProfiler marks automatic optimization; it ends a step after ``training_step``."""
    batch = [
        event(f"{LIGHTNING}[_TrainingEpochLoop].train_dataloader_next", 0, 20),
        event(f"{LIGHTNING}run_training_batch", 20, 100),
        event("Optimizer.step#AdamW.step", 22, 98),
        event(f"{LIGHTNING}[Strategy]DDPStrategy.training_step", 24, 50),
        event("DistributedDataParallel.forward", 25, 45),
        event(f"{LIGHTNING}[Strategy]DDPStrategy.backward", 52, 90),
    ]
    later = [each | {"ts": each["ts"] + 100_000} for each in batch]
    step = event("ProfilerStep#3", 50, 150)

    found = imported(trace(tmp_path / "a.json", [step, *batch, *later]))

    assert spent_ms(found) == {DATA: [20], FORWARD: [26], BACKWARD: [38], OPTIMIZER: [12], RESIDUAL: [4]}
