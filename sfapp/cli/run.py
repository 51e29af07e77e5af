"""``sfapp run``: a training script as Python or torchrun would run it, recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import click

from sfapp.cli.launch_config import (
    AGGREGATOR_OFFSET,
    MASTER_PORT,
    Layout,
    aggregator_home,
    resolve,
    step_name,
)
from sfapp.errors import MissingExtraError, RunError, SfappError

MOST_SHOWN = 3
"""Windows whose verdict is printed at the end: those that call for action most."""

MOST_BYTES = 64 << 20
"""Packets that are looked at, at the end of a run that may have left far more."""

LONGEST_NAME = 128

LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "mpirun", "srun")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--nproc-per-node",
    metavar="N",
    help="Processes on this node, by torchrun: a number, gpu, cpu or auto [default: one, without it]",
)
@click.option("--nnodes", metavar="M", help="Nodes of the job, or MIN:MAX.")
@click.option("--node-rank", type=click.IntRange(0), help="This node's number, from 0.")
@click.option("--master-addr", metavar="HOST", help="Node 0's address.")
@click.option("--master-port", type=click.IntRange(1, 65535), help="A free port on node 0.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("packets"),
    show_default=True,
    help="Folder for packets; one that all nodes share, if there is one.",
)
@click.option("--run-id", help="The run's name [default: the script's, and the time]. Give one to all nodes.")
@click.option(
    "--window-steps", type=click.IntRange(1), default=100, show_default=True, help="Optimizer steps a window."
)
@click.option(
    "--live/--no-live",
    default=None,
    help="Stream steps while the job runs [default: with several nodes if pyzmq is there, or --ui]",
)
@click.option("--ui/--no-ui", default=False, help="Serve the app beside the aggregator, on 127.0.0.1.")
@click.option(
    "--ui-port", type=click.IntRange(0, 65535), default=8642, show_default=True, help="The app's; 0: any."
)
@click.option("--aggregator-host", metavar="HOST", help="The node that has the aggregator [default: node 0].")
@click.option(
    "--aggregator-port",
    type=click.IntRange(1, 65535),
    help=f"A free port there [default: the master's + {AGGREGATOR_OFFSET}].",
)
@click.option(
    "--relay-port",
    type=click.IntRange(1, 65535),
    help="Port of this node's relay, on 127.0.0.1 [default: a private socket]",
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    nproc_per_node: str | None,
    nnodes: str | None,
    node_rank: int | None,
    master_addr: str | None,
    master_port: int | None,
    out: Path,
    run_id: str | None,
    window_steps: int,
    live: bool | None,
    ui: bool,
    ui_port: int,
    aggregator_host: str | None,
    aggregator_port: int | None,
    relay_port: int | None,
    is_module: bool,
    script: str,
    arguments: Sequence[str],
) -> None:
    """Run SCRIPT with ARGUMENTS, recorded without a change to it: waits for DataLoader, forward and loss,
    backward, optimizer and callbacks of every optimizer step, on every rank.

    \b
    sfapp run train.py --lr 3e-4
    sfapp run --nproc-per-node 8 train.py --lr 3e-4
    sfapp run --nproc-per-node 8 --nnodes 2 --node-rank 0 --master-addr node0 --run-id t7 -m pkg.train
    srun --nodes 2 --ntasks-per-node 1 sfapp run --nproc-per-node 8 train.py
    sfapp run --nproc-per-node 8 --ui train.py

    Exits as the script does. Under another launcher, run `python -m sfapp.recorder.auto SCRIPT` in its place.
    """
    check_script(script, is_module)
    layout = resolve(
        Layout(
            nproc_per_node=nproc_per_node,
            nnodes=nnodes,
            node_rank=node_rank,
            master_addr=master_addr,
            master_port=master_port,
        ),
        os.environ,
    )
    run_id = run_id or default_run_id(script)
    worker = ["--out", str(out), "--run-id", run_id, "--window-steps", str(window_steps)]
    worker += [*(["-m"] if is_module else []), script, *arguments]
    before = packets_of(out, run_id)
    with ExitStack() as stack:
        if wants_live(live, ui, layout):
            go_live(stack, layout, out, aggregator_host, aggregator_port, relay_port, ui_port if ui else None)
        code = launch(layout.options(), worker)
    try:
        report(out, run_id, before)
    except SfappError as error:  # the script's exit code counts, whatever became of the packets
        click.echo(f"sfapp: {error}", err=True)
    sys.exit(code)


def default_run_id(script: str) -> str:
    """The script's name with the scheduler's for the job, or else the time."""
    which = step_name(os.environ) or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    return f"{Path(script).stem}-{which}"[-LONGEST_NAME:]


def wants_live(live: bool | None, ui: bool, layout: Layout) -> bool:
    """Whether to start an aggregator: as told, else where one is worth having. Never where the environment
    tells the ranks of another one.

    Raises:
        UsageError: the app would show nothing.
    """
    from sfapp.cli.live_services import STREAM_VARIABLE, can_stream

    if live is False and ui:
        raise click.UsageError("--ui shows what is streamed: leave --no-live out")
    if os.environ.get(STREAM_VARIABLE):
        if live or ui:
            raise click.UsageError(
                f"{STREAM_VARIABLE} says where ranks stream to: unset it, or serve from there"
            )
        return False
    return ui or (layout.nodes > 1 and can_stream()) if live is None else live


def go_live(
    stack: ExitStack,
    layout: Layout,
    out: Path,
    host: str | None,
    port: int | None,
    relay_port: int | None,
    ui_port: int | None,
) -> None:
    """Start what this node has of it, until the stack is left; the ranks learn of it by the environment."""
    from sfapp.cli.live_services import LiveOptions, beside_training, can_stream

    if not can_stream():
        raise MissingExtraError("live streaming needs pyzmq: pip install 'sfapp[stream]'")
    options = LiveOptions(
        out=out,
        nodes=layout.nodes,
        home=aggregator_home(layout, host, os.environ),
        port=port or (layout.master_port or MASTER_PORT) + AGGREGATOR_OFFSET,
        relay_port=relay_port,
        ui_port=ui_port,
    )
    os.environ.update(stack.enter_context(beside_training(options, dict(os.environ))))


def check_script(script: str, is_module: bool) -> None:
    """Say what is wrong with a command that cannot run, before anything is started.

    Raises:
        RunError: a launcher in the script's place, or no such script.
    """
    if is_module:
        return
    name = Path(script).name
    if name.startswith(LAUNCHERS) and not name.endswith(".py"):
        raise RunError(
            f"give the training script itself, not {name}: sfapp run starts the processes, as in "
            "`sfapp run --nproc-per-node 8 train.py`"
        )
    if not Path(script).exists():
        raise RunError(f"no such script: {script}; a module needs -m, as in `sfapp run -m package.train`")


def launch(torchrun: Sequence[str], worker: Sequence[str]) -> int:
    """Run the worker's command line, under torchrun where any of its options is given; its exit code, 128 +
    the number where a signal ended it."""
    command = [sys.executable, "-u", "-m", "sfapp.recorder.auto", *worker]
    return launch_many(torchrun, worker) if torchrun else launch_one(command)


def launch_one(command: Sequence[str]) -> int:
    """One process without torchrun. Signals that reach only this process are passed on."""
    process = subprocess.Popen(command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT or not sys.stdin.isatty():  # a terminal sends Ctrl-C to both
            process.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        return exit_code(process.wait())
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def launch_many(options: Sequence[str], worker: Sequence[str]) -> int:
    """torchrun's own launcher, in this process: its agent answers signals and ends every worker."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    arguments = torchrun.parse_args([*options, "-m", "sfapp.recorder.auto", *worker])
    try:
        torchrun.run(arguments)
    except ValueError as error:  # of the options: no such number of processes, of nodes
        raise RunError(f"torchrun refuses: {error}") from error
    except ChildFailedError as failed:
        click.echo(str(failed), err=True)
        return exit_code(failed.get_first_failure()[1].exitcode)
    except SignalException as ended:
        return exit_code(-ended.sigval)
    except KeyboardInterrupt:
        return exit_code(-signal.SIGINT)
    return 0


def exit_code(code: int) -> int:
    """As a shell says it: 128 + the number of the signal that ended a process."""
    return 128 - code if code < 0 else code


def packets_of(out: Path, run_id: str) -> set[Path]:
    """The packets of a run so far."""
    if not out.is_dir():
        return set()
    from sfapp.packets import find_packets, packet_path

    folder = packet_path(out, run_id, 0).parent
    return set(find_packets([folder])) if folder.is_dir() else set()


def newest(packets: Collection[Path], most_bytes: int) -> list[Path]:
    """The newest of some packets, at least one of them, that together are no larger than this."""
    kept: list[Path] = []
    for path in sorted(packets, reverse=True):  # by window
        most_bytes -= path.stat().st_size
        if most_bytes < 0 and kept:
            break
        kept.append(path)
    return kept


def report(out: Path, run_id: str, before: set[Path]) -> None:
    """Say on stderr what was recorded, what the worst windows show, and how to look at them."""
    new = packets_of(out, run_id) - before
    if not new:
        return
    from sfapp.accounting import diagnose_runs
    from sfapp.model.reasons import reason_sentence
    from sfapp.packets import packet_path
    from sfapp.service.packet_windows import load_windows
    from sfapp.terminal import printable
    from sfapp.views import format, text

    folder = packet_path(out, run_id, 0).parent
    looked_at = newest(new, MOST_BYTES)
    loaded = load_windows(looked_at)
    diagnoses = diagnose_runs(found.window for found in loaded.windows)
    loud = sorted((d for d in diagnoses if not d.is_quiet), key=lambda d: -(d.severity or 0.0))
    which = "the newest " if len(looked_at) < len(new) else ""
    counted = format.counted(len(diagnoses), "window")
    click.secho(f"sfapp: {which}{counted} in {folder}", err=True, bold=True)
    for diagnosis in loud[:MOST_SHOWN]:
        severity = "" if diagnosis.severity is None else f" (severity {format.severity(diagnosis.severity)})"
        said = printable(text.summary(diagnosis))
        click.secho(f"  window {diagnosis.window}: {said}{severity}", err=True, fg="yellow")
    if len(loud) < len(diagnoses):
        quiet = format.counted(len(diagnoses) - len(loud), "window")
        click.echo(f"  {quiet} quiet: no action called for", err=True)
    if len(loud) > MOST_SHOWN:
        click.echo(f"  {len(loud) - MOST_SHOWN} more: sfapp analyze {folder}", err=True)
    labels = [label for diagnosis in diagnoses for label in diagnosis.labels]
    limits = Counter(
        reason for label in labels if label.label == "telemetry_limited" for reason in label.reasons
    )
    for reason, windows in limits.items():
        click.echo(
            f"  limited in {format.counted(windows, 'window')}: {printable(reason_sentence(reason))}",
            err=True,
        )
    click.echo(f"  sfapp serve {out}", err=True)
