"""Training with Lightning and Hugging Face's Trainer that knows nothing of sfapp; not collected.

trainer_loops.py (lightning | trainer)    on 2 ranks; rank 1 waits 50 ms for the data of each step
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

STEPS, DELAY, WIDTH = 12, 0.05, 64


class LateRows(Dataset[Any]):
    """Samples that rank 1 waits for, with labels for the Trainer."""

    def __init__(self, labelled: bool) -> None:
        self._labelled = labelled

    def __len__(self) -> int:
        return 2 * STEPS

    def __getitem__(self, place: int) -> Any:
        if os.environ["RANK"] == "1":
            time.sleep(DELAY)
        row = torch.full((WIDTH,), 0.5)
        return {"x": row, "labels": torch.zeros(1)} if self._labelled else row


def lightning() -> None:
    import lightning.pytorch as pl

    class LinearModule(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, 8)

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = self.layer(batch).square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=STEPS,
        use_distributed_sampler=False,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    ).fit(LinearModule(), DataLoader(LateRows(labelled=False), batch_size=1))


def trainer() -> None:
    from transformers import Trainer, TrainingArguments

    class LinearModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, 8)

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            return {"loss": self.layer(x).square().mean()}

    arguments = TrainingArguments(
        output_dir="models",
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=1,
        max_steps=STEPS,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    Trainer(LinearModel(), arguments, train_dataset=LateRows(labelled=True)).train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"lightning": lightning, "trainer": trainer}[sys.argv[1]]()
