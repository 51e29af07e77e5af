"""Training with DeepSpeed's engine; started with ``sfapp run``, not collected.

deepspeed_loop.py STAGE    a stage of ZeRO; rank 1 waits 100 ms for the data of each step
"""

from __future__ import annotations

import os
import sys
import time

import deepspeed
import torch
from torch.utils.data import DataLoader, Dataset

STEPS, MICRO_STEPS, DELAY = 8, 2, 0.1
WIDTH = 64

CONFIGURATION = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": MICRO_STEPS,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
}


class DelayedRows(Dataset[torch.Tensor]):
    """Samples that rank 1 waits for."""

    def __len__(self) -> int:
        return STEPS * MICRO_STEPS

    def __getitem__(self, place: int) -> torch.Tensor:
        if place >= len(self):
            raise IndexError(place)
        if os.environ["RANK"] == "1" and place % MICRO_STEPS == 0:
            time.sleep(DELAY)
        return torch.full((WIDTH,), 0.5)


def train(stage: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 8))
    configuration = CONFIGURATION | {"zero_optimization": {"stage": stage}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=configuration)
    for batch in DataLoader(DelayedRows(), batch_size=1):
        loss = engine(batch).square().mean()
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(int(sys.argv[1]))
