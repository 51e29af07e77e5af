"""Training with Ray Train on 2 workers; started by the tests, not collected.

ray_train_job.py FOLDER    rank 1 waits 100 ms in the forward stage of each step
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

STEPS, DELAY = 6, 0.1


def train_loop(config: dict[str, Any]) -> None:
    import torch
    from ray.train import get_context
    from ray.train.torch import prepare_model
    from torch.utils.data import DataLoader

    import sfapp

    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples: Any = [torch.ones(8)] * STEPS
    with sfapp.Recorder(config["packets"], run_id="ray-train", window_steps=STEPS) as perf:
        perf.watch_waits(model)
        for batch in perf.batches(DataLoader(samples, batch_size=1)):
            with perf.step():
                with perf.stage("model.fwd_loss_cpu_wall"):
                    if get_context().get_world_rank() == 1:
                        time.sleep(DELAY)
                    loss = model(batch).square().mean()
                with perf.stage("model.backward_cpu_wall"):
                    loss.backward()
                with perf.stage("optim.step_cpu_wall"):
                    optimizer.step()
                    optimizer.zero_grad()


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"packets": str(folder / "packets")},
        scaling_config=ScalingConfig(num_workers=2),
        torch_config=TorchConfig(backend="gloo"),
        run_config=RunConfig(storage_path=str(folder / "ray")),
    )
    trainer.fit()
    ray.shutdown()
