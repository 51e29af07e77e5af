"""Training with Lightning, Hugging Face's Trainer and Accelerate; started by the tests, not collected.

frameworks.py FOLDER (lightning | trainer | accelerate)...

Each on 2 ranks. Rank 1 waits 100 ms for each step's data unless stated otherwise.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

STEPS, DELAY, MICRO_STEPS = 6, 0.1, 2
WIDTH = 64

root = Path(sys.argv[1])
rank = int(os.environ["RANK"])


class DelayedSamples(Dataset[torch.Tensor]):
    """Samples that rank 1 waits for."""

    def __init__(self, micro_steps: int = 1, delay: float = DELAY) -> None:
        self._micro_steps = micro_steps
        self._delay = delay

    def __len__(self) -> int:
        return STEPS * self._micro_steps

    def __getitem__(self, place: int) -> torch.Tensor:
        if place >= len(self):
            raise IndexError(place)
        if rank == 1 and place % self._micro_steps == 0:
            time.sleep(self._delay)
        return torch.full((WIDTH,), 0.5)


def loader(micro_steps: int = 1, delay: float = DELAY) -> DataLoader[torch.Tensor]:
    return DataLoader(DelayedSamples(micro_steps, delay), batch_size=1)


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 8))


def recorder_options(run_id: str) -> dict[str, Any]:
    return {"run_id": run_id, "window_steps": STEPS, "timeout": 20.0}


# ---- Lightning -------------------------------------------------------------------------------------


def lightning() -> None:
    # Long because its classes derive from Lightning, which only this kind of run imports.
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import GradientAccumulationScheduler

    from sfapp.recorder.integrations.lightning import LightningRecorderCallback

    class Model(pl.LightningModule):
        def __init__(self, automatic: bool = True, fails_at: int | None = None) -> None:
            super().__init__()
            self.automatic_optimization = automatic
            self._network = network()
            self._fails_at = fails_at

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            if batch_idx == self._fails_at:
                raise MemoryError("out of memory, on purpose")
            loss: torch.Tensor = self._network(batch).square().mean()
            if not self.automatic_optimization:
                optimizer: Any = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
                optimizer.step()  # Lightning counts each.
            return loss

        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            time.sleep(0.05)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class SlowCallback(pl.Callback):
        def on_train_batch_end(self, *event: Any) -> None:
            if rank == 1:
                time.sleep(DELAY)

    def fit(run_id: str, model: Model, batches: Any, callbacks: tuple[Any, ...] = (), **options: Any) -> Any:
        own = {name: options.pop(name) for name in ("between", "watch_waits") if name in options}
        mine = LightningRecorderCallback(root, **recorder_options(run_id), **own)
        validation, checkpoint = options.pop("validation", None), options.pop("checkpoint", None)
        trainer: Any = pl.Trainer(  # its class declares no callbacks
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            callbacks=[*callbacks, mine],
            use_distributed_sampler=False,
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            logger=False,
            num_sanity_val_steps=1,
            **{"max_epochs": 1, **options},
        )
        before = list(trainer.callbacks)
        with contextlib.suppress(MemoryError):
            trainer.fit(model, batches, validation, ckpt_path=checkpoint)
        assert set(map(id, trainer.callbacks)) == set(map(id, before))
        return trainer

    fit("lightning", Model(), loader())
    fit(
        "lightning-accumulating",
        Model(),
        loader(MICRO_STEPS),
        accumulate_grad_batches=MICRO_STEPS,
        validation=loader(delay=0.0),
        val_check_interval=4,
        limit_val_batches=2,
    )
    switches = {"between": False, "watch_waits": False}
    fit("lightning-callback", Model(), loader(delay=0.0), callbacks=(SlowCallback(),), **switches)
    scheduled = GradientAccumulationScheduler({0: 1, 1: MICRO_STEPS})
    fit("lightning-scheduled", Model(), loader(delay=0.0), callbacks=(scheduled,), max_epochs=2)
    trained, checkpoint = fit("lightning-manual", Model(automatic=False), loader()), root / "manual.ckpt"
    trained.save_checkpoint(checkpoint)
    resumed: dict[str, Any] = {"checkpoint": checkpoint, "max_epochs": 2}
    fit("lightning-resumed", Model(automatic=False), loader(delay=0.0), **resumed)
    fit("lightning-failing", Model(fails_at=4), loader(delay=0.0))


# ---- Hugging Face ----------------------------------------------------------------------------------


class Regression(torch.nn.Module):
    """A model as the Trainer wants it: the loss is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        output = self.network(x)
        return {"loss": output.square().mean(), "logits": output}


class LabelledSamples(DelayedSamples):
    def __getitem__(self, place: int) -> Any:
        return {"x": super().__getitem__(place), "labels": torch.zeros(1)}


def trainer() -> None:
    from transformers import Trainer, TrainingArguments

    from sfapp.recorder.integrations.hf import HuggingFaceRecorderCallback

    class OwnSamples(Trainer):
        """Each rank has samples of its own."""

        def get_train_dataloader(self) -> Any:
            samples: Any = self.train_dataset
            return DataLoader(samples, batch_size=1)

    def fit(run_id: str, samples: Any, **options: Any) -> None:
        arguments = TrainingArguments(
            output_dir=str(root / "models"),
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=1,
            per_device_eval_batch_size=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            **{"max_steps": STEPS, "logging_steps": 2, **options},
        )
        callback = HuggingFaceRecorderCallback(root, **recorder_options(run_id))
        model = Regression()
        training = OwnSamples(
            model,
            arguments,
            train_dataset=samples,
            eval_dataset=LabelledSamples(delay=0.0),
            callbacks=[callback],
        )
        training.train()
        assert not model._forward_hooks

    fit("trainer", LabelledSamples())
    fit(
        "trainer-accumulating",
        LabelledSamples(MICRO_STEPS),
        gradient_accumulation_steps=MICRO_STEPS,
        eval_strategy="steps",
        eval_steps=2,
    )
    fit("trainer-compiled", LabelledSamples(), torch_compile=True, torch_compile_backend="eager")


def accelerate() -> None:
    from accelerate import Accelerator

    from sfapp.recorder.integrations.hf import AccelerateRecorder

    output = root

    def train(run_id: str, loader: Any, **arguments: Any) -> None:
        accelerator = Accelerator(cpu=True, **arguments)
        model, optimizer = accelerator.prepare(network(), torch.optim.SGD([torch.zeros(1)], lr=0.01))
        optimizer.optimizer.param_groups[0]["params"] = list(model.parameters())
        options = recorder_options(run_id)
        with AccelerateRecorder(accelerator, model, optimizer, output, **options) as recorded:
            for batch in recorded.batches(loader):
                with accelerator.accumulate(model):
                    loss = model(batch).square().mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    validate(model)

    def validate(model: torch.nn.Module) -> None:
        model.eval()
        with torch.no_grad():
            model(torch.zeros(1, WIDTH))
        time.sleep(0.03)
        model.train()

    train("accelerate", loader())
    train("accelerate-accumulating", loader(MICRO_STEPS), gradient_accumulation_steps=MICRO_STEPS)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in sys.argv[2:]:
        {"lightning": lightning, "trainer": trainer, "accelerate": accelerate}[name]()
    if dist.is_initialized():  # Lightning takes it down after an error
        dist.barrier()
        dist.destroy_process_group()
