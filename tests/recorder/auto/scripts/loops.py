"""Training scripts of many kinds, in one: loops.py KIND. Nothing in here knows of sfapp."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from tests.recorder.auto.scripts.sharded_loops import sharded
from tests.recorder.auto.scripts.sleep_clock import sleep, slept_ns
from tests.recorder.auto.scripts.training_parts import RANK, Points, SlowModel, loader_of, model_of


def plain(options: argparse.Namespace) -> None:
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader_of(options, options.steps):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.002)


def accumulated(options: argparse.Namespace) -> None:
    model = model_of(options)
    no_sync: Any = model.no_sync
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for place, batch in enumerate(loader_of(options, 4 * options.steps)):
        last = place % 4 == 3
        with contextlib.nullcontext() if last else no_sync():
            model(batch).square().mean().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def evaluated(options: argparse.Namespace) -> None:
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out = loader_of(options, 3)
    for step, batch in enumerate(loader_of(options, options.steps)):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 4:
            model.eval()
            with torch.no_grad():
                for other in held_out:
                    model(other)
            model.train()


def stateful(options: argparse.Namespace) -> None:
    """Train as torchtitan does: all batches of a step first, then a forward and a backward for each."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(StatefulDataLoader(Points(options.steps * 4, 0.002), batch_size=2))
    for _ in range(options.steps):
        optimizer.zero_grad()
        for batch in [next(batches) for _ in range(2)]:
            model(batch).square().mean().backward()
        optimizer.step()


def failing(options: argparse.Namespace) -> None:
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(loader_of(options, options.steps)):
        model(batch).square().mean().backward()
        optimizer.step()
        if step == options.steps - 2:
            raise SystemExit(7) if options.exit else RuntimeError("the loss is not finite")


def restarted(options: argparse.Namespace) -> None:
    """Rank 1 fails in its first life."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(loader_of(options, options.steps)):
        if step == 7 and RANK == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise SystemExit(3)
        model(batch).square().mean().backward()
        optimizer.step()


def by_hand(options: argparse.Namespace) -> None:
    """The plain loop, which also measures itself, and writes down what it measured."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(loader_of(options, options.steps))
    steps = []
    for _ in range(options.steps):
        ticks = [slept_ns()]
        batch = next(batches)
        ticks.append(slept_ns())
        loss = model(batch).square().mean()
        sleep(0.003)
        ticks.append(slept_ns())
        loss.backward()
        ticks.append(slept_ns())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        sleep(0.001)
        optimizer.step()
        ticks.append(slept_ns())
        sleep(0.002)
        steps.append([ticks[place + 1] - ticks[place] for place in range(4)])
    Path(options.write).write_text(json.dumps(steps))


def adversarial(options: argparse.Namespace) -> None:
    generator, critic = nn.Linear(8, 8), nn.Linear(8, 1)
    first, second = (torch.optim.SGD(net.parameters(), lr=0.01) for net in (critic, generator))
    for batch in loader_of(options, options.steps):
        (critic(batch).mean() - critic(generator(batch).detach()).mean()).backward()
        first.step()
        critic(generator(batch)).mean().backward()
        second.step()


def two_optimizers(options: argparse.Namespace) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    both = [torch.optim.SGD(part.parameters(), lr=0.01) for part in model]
    for batch in loader_of(options, options.steps):
        model(batch).square().mean().backward()
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad()


def line_search(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=4)
    for batch in loader_of(options, options.steps):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = (model(batch) - 100).square().mean()  # noqa: B023  # called at once
            loss.backward()
            return loss

        optimizer.step(closure)


def closure_once(options: argparse.Namespace) -> None:
    """As Lightning does it."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader_of(options, options.steps):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(batch).square().mean()  # noqa: B023  # called at once
            loss.backward()
            return loss

        optimizer.step(closure)


def scaled(options: argparse.Namespace) -> None:
    """Gradients overflow in every third step, which the scaler then leaves out."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for step, batch in enumerate(loader_of(options, options.steps)):
        optimizer.zero_grad()
        loss = model(batch).square().mean() * (float("inf") if step % 3 == 2 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def checkpointed(options: argparse.Namespace) -> None:
    model = nn.ModuleList([SlowModel(0.02, 0.0), SlowModel(0.02, 0.0)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(loader_of(options, options.steps)):
        batch.requires_grad_()
        for layer in model:
            out = checkpoint(layer, batch, use_reentrant=step % 2 == 0)
        out.square().mean().backward()
        optimizer.step()


def compiled(options: argparse.Namespace) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    fast = torch.compile(model, backend="eager")
    loss_of = torch.compile(lambda out: nn.MSELoss()(out, torch.zeros_like(out)), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out = loader_of(options, 2)
    for step, batch in enumerate(loader_of(options, options.steps)):
        loss_of(fast(batch)).backward()
        optimizer.step()
        if step % 5 == 4:
            with torch.no_grad():
                for other in held_out:
                    fast(other)
    Path(options.write).write_text(str(torch._dynamo.utils.counters["stats"]["unique_graphs"]))


def compiled_step(options: argparse.Namespace) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.compile(backend="eager")
    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    for batch in loader_of(options, options.steps):
        train(batch)


def prefetched(options: argparse.Namespace) -> None:
    """The next batch is fetched while the step computes."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(loader_of(options, options.steps))
    batch = next(batches, None)
    while batch is not None:
        loss = model(batch).square().mean()
        batch = next(batches, None)
        loss.backward()
        optimizer.step()


def threaded(options: argparse.Namespace) -> None:
    """A thread fetches the batches."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches: queue.Queue[torch.Tensor | None] = queue.Queue(2)

    def fetch() -> None:
        for batch in loader_of(options, options.steps):
            batches.put(batch)
        batches.put(None)

    threading.Thread(target=fetch, daemon=True).start()
    while (batch := batches.get()) is not None:
        model(batch).square().mean().backward()
        optimizer.step()


def two_loaders(options: argparse.Namespace) -> None:
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    others = iter(loader_of(options, options.steps))
    for batch in loader_of(options, options.steps):
        both = torch.cat([batch, next(others)])
        model(both).square().mean().backward()
        optimizer.step()


def chunked(options: argparse.Namespace) -> None:
    """One batch in two parts."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader_of(options, options.steps):
        for part in batch.chunk(2):
            model(part).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def uneven(options: argparse.Namespace) -> None:
    """Now two micro-steps, now three."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(loader_of(options, 3 * options.steps))
    for step in range(options.steps):
        for _ in range(2 + step % 2):
            model(next(batches)).square().mean().backward()
        optimizer.step()


def generated(options: argparse.Namespace) -> None:
    """No loader: the time to make a batch cannot be distinguished from other time between steps."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(options.steps):
        time.sleep(0.01)
        model(torch.ones(2, 8)).square().mean().backward()
        optimizer.step()


def frozen(options: argparse.Namespace) -> None:
    """A teacher without gradients runs between the batch and the student."""
    model, teacher = model_of(options), model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader_of(options, options.steps):
        with torch.no_grad():
            wanted = teacher(batch)
        nn.MSELoss()(model(batch), wanted).backward()
        optimizer.step()


def workers(options: argparse.Namespace) -> None:
    """Processes of the loader's own, forked and spawned."""
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for context in ("fork", "spawn"):
        points = Points(options.steps)
        loader = DataLoader(points, batch_size=2, num_workers=1, multiprocessing_context=context)
        for batch in loader:
            model(batch).square().mean().backward()
            optimizer.step()


def untrained(options: argparse.Namespace) -> None:
    """No optimizer at all."""
    model = model_of(options)
    for batch in loader_of(options, options.steps):
        model(batch)


def one_rank_trains(options: argparse.Namespace) -> None:
    """Rank 1 never takes a step."""
    if RANK == 0:
        plain_alone(options)
    dist.barrier()


def plain_alone(options: argparse.Namespace) -> None:
    model = SlowModel(0.001, 0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader_of(options, options.steps):
        model(batch).square().mean().backward()
        optimizer.step()


KINDS: dict[str, Callable[[Any], None]] = {
    kind.__name__: kind
    for kind in (
        plain,
        accumulated,
        evaluated,
        stateful,
        failing,
        restarted,
        by_hand,
        adversarial,
        two_optimizers,
        line_search,
        closure_once,
        scaled,
        checkpointed,
        compiled,
        compiled_step,
        prefetched,
        threaded,
        two_loaders,
        chunked,
        uneven,
        generated,
        frozen,
        workers,
        untrained,
        sharded,
        one_rank_trains,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--slow-rank", type=int)
    parser.add_argument("--exit", action="store_true")
    parser.add_argument("--write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    KINDS[options.kind](options)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
