"""A script that trains over NCCL and knows nothing of sfapp: it exchanges gradients, then a loss."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS, WIDTH = 30, 512


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for (batch,) in DataLoader(TensorDataset(torch.ones(STEPS * 8, WIDTH)), batch_size=8):
        loss = model(batch.to(device)).square().mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        total.item()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
