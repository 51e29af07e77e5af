"""Log a run to the experiment tracker in which a team already looks (docs/trackers.md)."""

from __future__ import annotations

from sfapp.trackers.log_to import log_to_mlflow, log_to_tensorboard, log_to_wandb

__all__ = ["log_to_mlflow", "log_to_tensorboard", "log_to_wandb"]
