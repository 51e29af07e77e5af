"""Run the Python blocks of pages, with what they take as given; not collected.

python_snippets.py PAGE      in a folder of ``make_job_folder``
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.documentation.fenced_blocks import blocks, is_script

WIDTH, BATCHES = 8, 4
SECONDS = 1.0
"""After which an event named ``stop`` is set, so that a snippet that runs until then ends."""


def network() -> Any:
    """Return a model whose result for one sample is also a loss."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1))


def training() -> dict[str, Any]:
    import torch

    model = network()
    samples: Any = [torch.ones(WIDTH) for _ in range(BATCHES)]  # DataLoader takes any sequence
    loader: Any = torch.utils.data.DataLoader(samples, batch_size=1)
    return {"model": model, "loader": loader, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}


def hugging_face() -> dict[str, Any]:
    import torch
    from transformers import TrainingArguments

    class DocumentedModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            return {"loss": self.network(x).square().mean()}

    return {
        "arguments": TrainingArguments(output_dir="models", use_cpu=True, report_to=[], max_steps=2),
        "hf_model": DocumentedModel(),
        "dataset": [{"x": torch.ones(WIDTH), "labels": torch.zeros(1)}] * BATCHES,
    }


def lightning_module() -> Any:
    import torch
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


def weights_and_biases() -> Any:
    import wandb

    if wandb.run is None:
        wandb.init(project="sfapp", dir=".")
    return wandb


def summary_writer() -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter("logs")


def given(snippet: str) -> dict[str, Any]:
    """Return what a snippet takes as given, new for each."""
    names: dict[str, Any] = {}
    if "model" in snippet or "loader" in snippet:
        names |= training()
    if "lightning_module" in snippet:
        names["lightning_module"] = lightning_module()
    if "hf_model" in snippet:
        names |= hugging_face()
    if "wandb.run" in snippet:
        names["wandb"] = weights_and_biases()
    if "writer" in snippet:
        names["writer"] = summary_writer()
    return names


def stop_later(names: dict[str, Any]) -> None:
    """Set ``stop`` a while after a snippet has made it."""
    while "stop" not in names:
        time.sleep(0.05)
    time.sleep(SECONDS)
    names["stop"].set()


def join_world_of_one() -> None:
    import torch.distributed as dist

    rendezvous = f"file://{Path('rendezvous').resolve()}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=1)


def run_page(page: Path) -> None:
    """Run the blocks of a page in order; names of one are known in those below it."""
    snippets = [block for block in blocks(page) if is_script(block)]
    is_distributed = any("torch.distributed" in block.text for block in snippets)
    if is_distributed:
        join_world_of_one()
    names: dict[str, Any] = {"__name__": "__main__"}
    threading.Thread(target=stop_later, args=(names,), daemon=True).start()
    for block in snippets:
        names |= given(block.text)
        source = "\n" * block.line + with_local_addresses(block.text)  # a traceback has the page's lines
        exec(compile(source, block.page, "exec"), names)
    if is_distributed:
        leave_world()


def leave_world() -> None:
    import torch.distributed as dist

    if dist.is_initialized():  # a framework may have left it
        dist.destroy_process_group()


def with_local_addresses(text: str) -> str:
    """Return a snippet that listens on a free port, and connects to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for address in ("0.0.0.0:29765", "node-0:29765"):
        text = text.replace(address, f"127.0.0.1:{port}")
    return text.replace("127.0.0.1:29766", "127.0.0.1:0")


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
