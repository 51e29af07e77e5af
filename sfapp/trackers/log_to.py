"""Log to W&B, MLflow and TensorBoard, one line each. None of them is imported until it is used."""

from __future__ import annotations

import time
from os import PathLike
from typing import Any

from sfapp.storage import StoragePath
from sfapp.trackers.run_log import COLUMNS, PREFIX, RunLog, run_log

PacketFolder = str | PathLike[str] | StoragePath

_BATCH = 1_000
"""Number of metrics that MLflow accepts in one request."""


def log_to_wandb(
    run: Any, packets: PacketFolder, run_id: str | None = None, *, after_window: int | None = None
) -> int | None:
    """Log a run to W&B: values per window over the training step, a table of problems, and a summary.

    Args:
        run: the W&B run, such as ``wandb.run`` or what ``wandb.init()`` returned.
        packets, run_id, after_window: see ``run_log``.

    Returns:
        Number of the last window logged, for ``after_window`` of the next call; None without a new window.

    Raises:
        WindowNotFoundError, StoreError: see ``run_log``.
    """
    import wandb

    found = run_log(packets, run_id, after_window)
    run.define_metric(f"{PREFIX}step")
    run.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")
    for window in found.windows:
        run.log({f"{PREFIX}step": window.step, **window.values})
    rows = [list(row) for row in found.problems]
    run.log({f"{PREFIX}problem_table": wandb.Table(columns=list(COLUMNS), data=rows)})
    run.summary.update(found.summary)
    return found.last_window


def log_to_mlflow(
    packets: PacketFolder,
    run_id: str | None = None,
    *,
    mlflow_run: str | None = None,
    after_window: int | None = None,
) -> int | None:
    """Log a run to MLflow: metrics per window over the training step, totals, and ``sfapp/problems.md``.

    Args:
        packets, run_id, after_window: see ``run_log``.
        mlflow_run: id of the MLflow run; the active one if None, which is started if there is none.

    Returns:
        Number of the last window logged, for ``after_window`` of the next call; None without a new window.

    Raises:
        WindowNotFoundError, StoreError: see ``run_log``.
    """
    import mlflow
    from mlflow.entities import Metric

    found = run_log(packets, run_id, after_window)
    client = mlflow.MlflowClient()
    if mlflow_run is None:
        mlflow_run = (mlflow.active_run() or mlflow.start_run()).info.run_id
    now = time.time()
    metrics = [  # MLflow refuses times before 1970, with all values of the same request.
        Metric(
            name, value, round(1e3 * max(0.0, now if window.seconds is None else window.seconds)), window.step
        )
        for window in found.windows
        for name, value in window.values.items()
    ]
    metrics += [Metric(name, value, round(1e3 * now), 0) for name, value in found.summary.items()]
    for begin in range(0, len(metrics), _BATCH):
        client.log_batch(mlflow_run, metrics[begin : begin + _BATCH])
    client.log_text(mlflow_run, _problems_page(found), "sfapp/problems.md")
    return found.last_window


def log_to_tensorboard(
    writer: Any, packets: PacketFolder, run_id: str | None = None, *, after_window: int | None = None
) -> int | None:
    """Log a run to TensorBoard: scalars per window over the training step, totals, and the problems as text.

    Args:
        writer: a ``torch.utils.tensorboard.SummaryWriter``.
        packets, run_id, after_window: see ``run_log``.

    Returns:
        Number of the last window logged, for ``after_window`` of the next call; None without a new window.

    Raises:
        WindowNotFoundError, StoreError: see ``run_log``.
    """
    found = run_log(packets, run_id, after_window)
    for window in found.windows:
        for name, value in window.values.items():
            writer.add_scalar(name, value, window.step, walltime=window.seconds)
    for name, value in found.summary.items():
        writer.add_scalar(name, value, found.last_step)
    writer.add_text(f"{PREFIX}problem_table", _problems_page(found), found.last_step)
    writer.flush()
    return found.last_window


def _problems_page(found: RunLog) -> str:
    return f"{found.markdown()}\n"
