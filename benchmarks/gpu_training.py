"""Train a transformer on a device with steps of about a given length."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

import sfapp
from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER

MAX_BATCH = 1 << 12
SEQUENCE = 64


class Encoder(nn.Module):
    """Layers of a transformer's encoder."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, nhead=8, dim_feedforward=4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def synchronise(device: torch.device) -> None:
    """Wait for a device; the CPU has nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class DeviceTraining:
    """Training whose loss is read in every step, as for a log.

    Attributes:
        batch_size: chosen for the requested length of a step.
    """

    def __init__(self, device: torch.device, step_ms: float, width: int) -> None:
        """Find a batch size for which a step takes at least 0.7 of ``step_ms``."""
        torch.manual_seed(0)
        self.device = device
        self.model = Encoder(width, layers=2).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.batch_size = 1
        while True:
            self._batch = torch.randn(self.batch_size, SEQUENCE, width, device=device)
            self.block(3, self.plain)
            if self.block(5, self.plain) / 5 * 1e3 >= 0.7 * step_ms or self.batch_size >= MAX_BATCH:
                return
            self.batch_size *= 2

    def block(self, steps: int, step: Callable[[], None]) -> float:
        """Return the seconds of some steps, including the work of the device."""
        synchronise(self.device)
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        synchronise(self.device)
        return time.perf_counter() - begin

    def plain(self) -> None:
        """Run a step without any tool.

        The loss keeps its name until the end, as in ``recorded``: its graph is then freed after the wait for
        the device in both, and not meanwhile in one of them (0.09 ms of a step on an H100).
        """
        loss = self.forward(self._batch)
        loss.backward()
        self.update()

    def recorded(self, perf: sfapp.Recorder) -> None:
        """Run the same step, instrumented."""
        with perf.step():
            with perf.stage(DATA):
                batch = self._batch
            with perf.stage(FORWARD), perf.cuda_event_sample():
                loss = self.forward(batch)
            with perf.stage(BACKWARD):
                loss.backward()
            with perf.stage(CALLBACKS):
                pass
            with perf.stage(OPTIMIZER):
                self.update()

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        loss: torch.Tensor = self.model(batch).square().mean()
        self._loss = loss.detach()
        return loss

    def update(self) -> None:
        """Step the optimizer and read the loss."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._loss.item()
