"""Runs every example of a page of documentation, each with a model and data of its own; not collected.

documented.py PAGE      in the current folder, in a world of one
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

WIDTH, BATCHES = 8, 4


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 2))


class DocumentedModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return {"loss": self.network(x).square().mean()}


def names(example: str) -> dict[str, Any]:
    """What an example takes as given."""
    model = network()
    samples: Any = [torch.ones(WIDTH) for _ in range(BATCHES)]  # DataLoader takes any sequence
    loader: torch.utils.data.DataLoader[torch.Tensor] = torch.utils.data.DataLoader(samples, batch_size=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given: dict[str, Any] = {"model": model, "loader": loader, "optimizer": optimizer}
    if "lightning_module" in example:
        given["lightning_module"] = lightning_module()
    if "hf_model" in example:
        from transformers import TrainingArguments

        given["arguments"] = TrainingArguments(output_dir="models", use_cpu=True, report_to=[], max_steps=2)
        given["hf_model"] = DocumentedModel()
        given["dataset"] = [{"x": torch.ones(WIDTH), "labels": torch.zeros(1)}] * BATCHES
    return given


def lightning_module() -> Any:
    from lightning.pytorch import LightningModule

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = self.network(batch).square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


if __name__ == "__main__":
    dist.init_process_group(
        "gloo", init_method="file://" + str(Path("rendezvous").resolve()), rank=0, world_size=1
    )
    for example in re.findall(r"```python\n(.*?)```", Path(sys.argv[1]).read_text(), re.DOTALL):
        exec(compile(example, sys.argv[1], "exec"), names(example))
    if dist.is_initialized():
        dist.destroy_process_group()
