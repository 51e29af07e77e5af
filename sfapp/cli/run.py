"""``sfapp run``: run a training script as Python or torchrun would, and record it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from sfapp.cli.console_messages import message_option, shows_messages
from sfapp.cli.launch_config import (
    AGGREGATOR_OFFSET,
    Layout,
    LivePorts,
    resolve,
    step_name,
)
from sfapp.cli.packet_paths import (
    PacketPath,
    given_storage_options,
    storage_arguments,
    storage_options,
)
from sfapp.cli.shared_options import FiniteRange, standstill_option
from sfapp.errors import PacketError, RunError, SfappError, StorageError, describe_error
from sfapp.storage import StoragePath, location, storage_of

if TYPE_CHECKING:
    from sfapp.packets import Loaded

MOST_SHOWN = 3
"""Number of windows whose verdict is printed at the end, the most severe first."""

MOST_BYTES = 64 << 20
"""Maximum number of bytes of packets read at the end of a run."""

LONGEST_NAME = 128

LOAD_ATTEMPTS = 5
"""Attempts to read packets while other processes remove some of them."""

RECORDING = "-P", "-u", "-m", "sfapp.recorder.auto"
"""Options of Python that record a script; with ``-P``, no file in the current folder replaces a module."""

LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "mpirun", "srun")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--nproc-per-node",
    metavar="N",
    help="Processes on this node: a number, gpu, cpu or auto [default: one process, without torchrun].",
)
@click.option("--nnodes", metavar="M", help="Number of nodes of the job, or MIN:MAX.")
@click.option("--node-rank", type=click.IntRange(0), help="Rank of this node, from 0.")
@click.option("--master-addr", metavar="HOST", help="Address of node 0.")
@click.option("--master-port", type=click.IntRange(1, 65535), help="Free port on node 0.")
@click.option(
    "--out",
    type=PacketPath(exists=False, file_okay=False),
    default="packets",
    show_default=True,
    help="Folder for packets, best one that all nodes share; or a bucket, such as s3://BUCKET/PREFIX.",
)
@storage_options
@click.option(
    "--run-id", help="Name of the run, the same on all nodes [default: the script's name and the time]."
)
@click.option(
    "--window-steps",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Optimizer steps per window.",
)
@click.option("--between/--no-between", default=True, help="Record the time between steps as a stage.")
@click.option(
    "--event-fraction",
    type=FiniteRange(0, 1),
    default=0.05,
    show_default=True,
    help="Fraction of the steps in which waits over NCCL are timed on the device; 0 for none.",
)
@click.option(
    "--live/--no-live",
    default=None,
    help="Stream steps while the job runs [default: with --ui, or on several nodes if pyzmq is installed]",
)
@click.option("--ui/--no-ui", default=False, help="Serve the app on 127.0.0.1 of the aggregator's node.")
@click.option(
    "--ui-port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="Port of the app; 0 picks a free one.",
)
@click.option("--aggregator-host", metavar="HOST", help="Node that runs the aggregator [default: node 0].")
@click.option(
    "--aggregator-port",
    type=click.IntRange(1, 65535),
    help=f"Free port on that node [default: the master port + {AGGREGATOR_OFFSET}].",
)
@click.option(
    "--relay-port",
    type=click.IntRange(1, 65535),
    help="Port of this node's relay on 127.0.0.1 [default: a private socket].",
)
@standstill_option
@message_option
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module name, as for python -m.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    nproc_per_node: str | None,
    nnodes: str | None,
    node_rank: int | None,
    master_addr: str | None,
    master_port: int | None,
    out: StoragePath,
    run_id: str | None,
    window_steps: int,
    between: bool,
    event_fraction: float,
    live: bool | None,
    ui: bool,
    ui_port: int,
    aggregator_host: str | None,
    aggregator_port: int | None,
    relay_port: int | None,
    standstill_after: float,
    is_module: bool,
    script: str,
    arguments: Sequence[str],
) -> None:
    """Run SCRIPT with ARGUMENTS and record it, without any change to the script.

    The stages of every optimizer step are timed on every rank: wait for the DataLoader, forward and loss,
    backward, optimizer and callbacks.

    \b
    sfapp run train.py --lr 3e-4
    sfapp run --nproc-per-node 8 train.py --lr 3e-4
    sfapp run --nproc-per-node 8 --nnodes 2 --node-rank 0 --master-addr node0 --run-id t7 -m pkg.train
    srun --nodes 2 --ntasks-per-node 1 sfapp run --nproc-per-node 8 train.py
    sfapp run --nproc-per-node 8 --ui train.py

    The exit code is the script's. Under another launcher, replace SCRIPT by
    `-m sfapp.recorder.auto SCRIPT`.
    """
    check_script(script, is_module)
    options = Layout(
        nproc_per_node=nproc_per_node,
        nnodes=nnodes,
        node_rank=node_rank,
        master_addr=master_addr,
        master_port=master_port,
    )
    layout = resolve(options, os.environ)
    run_id = run_id or default_run_id(script)
    recording = ["--run-id", run_id, "--window-steps", str(window_steps), *storage_arguments()]
    recording += [*([] if between else ["--no-between"]), "--event-fraction", str(event_fraction)]
    worker = ["--out", str(out), *recording, *(["-m"] if is_module else []), script, *arguments]
    before = find_run_packets(out := output_of(out, ui), run_id)
    with ExitStack() as stack:
        if wants_live(live, ui, layout):
            from sfapp.cli.live_services import start_live_services

            ports = LivePorts(aggregator_port, relay_port, ui_port if ui else None)
            start_live_services(stack, layout, out, aggregator_host, ports, standstill_after)
        code = launch(layout.options(), worker)
    report_or_warn(out, run_id, before)
    sys.exit(code)


def output_of(out: StoragePath, ui: bool) -> StoragePath:
    """Return the path of the packets for this process, which a bucket that cannot be reached does not delay.

    Raises:
        UsageError: the app is to show packets of a bucket.
    """
    if isinstance(out, Path):
        return out
    if ui:
        raise click.UsageError("--ui needs a folder for packets: serve the bucket with `sfapp serve`")
    return location(str(out), {**given_storage_options(), "max_retries": 0})


def default_run_id(script: str) -> str:
    """Return the script's name with the scheduler's job name, or with the time if there is no scheduler."""
    suffix = step_name(os.environ) or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    return f"{Path(script).stem}-{suffix}"[-LONGEST_NAME:]


def wants_live(live: bool | None, ui: bool, layout: Layout) -> bool:
    """Return whether to start an aggregator.

    Without an option, one is started for several nodes. None is started if the environment already names one.

    Raises:
        UsageError: the options contradict each other or the environment.
    """
    from sfapp.cli.live_services import STREAM_VARIABLE, can_stream

    if live is False and ui:
        raise click.UsageError("--ui needs the live stream: remove --no-live")
    if os.environ.get(STREAM_VARIABLE):
        if live or ui:
            raise click.UsageError(
                f"{STREAM_VARIABLE} already names an aggregator: unset it, or serve the app from there"
            )
        return False
    return ui or (layout.nodes > 1 and can_stream()) if live is None else live


def check_script(script: str, is_module: bool) -> None:
    """Check the script before anything is started.

    Raises:
        RunError: it is a launcher, or does not exist.
    """
    if is_module:
        return
    name = Path(script).name
    if name.startswith(LAUNCHERS) and not name.endswith(".py"):
        raise RunError(
            f"give the training script itself, not {name}: sfapp run starts the processes itself, as in "
            "`sfapp run --nproc-per-node 8 train.py`"
        )
    if not Path(script).exists():
        raise RunError(f"no such script: {script}; use -m for a module, as in `sfapp run -m package.train`")


def launch(torchrun: Sequence[str], worker: Sequence[str]) -> int:
    """Run the worker's command line, under torchrun if any of its options is given, and return its exit code.

    The exit code is 128 + the signal's number if a signal ended it.
    """
    process = [sys.executable, *RECORDING, *worker]
    return launch_torchrun(torchrun, worker) if torchrun else launch_process(process)


def launch_process(command: Sequence[str]) -> int:
    """Run one process without torchrun, forward signals to it, and return its exit code."""
    process = subprocess.Popen(command)

    def forward(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT or not sys.stdin.isatty():  # A terminal sends Ctrl-C to both processes.
            process.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, forward) for number in numbers}
    try:
        return exit_code(process.wait())
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def launch_torchrun(options: Sequence[str], worker: Sequence[str]) -> int:
    """Run torchrun's launcher in this process and return its exit code.

    Its agent handles signals and ends every worker.

    Raises:
        RunError: torchrun rejects the options.
    """
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    python = os.environ.get("PYTHON_EXEC", sys.executable)  # as for torchrun
    arguments = torchrun.parse_args([*options, "--no-python", python, *RECORDING, *worker])
    try:
        torchrun.run(arguments)
    except ValueError as error:  # An option has an invalid value.
        raise RunError(f"torchrun rejects the options: {error}") from error
    except ChildFailedError as failed:
        click.echo(str(failed), err=True)
        return exit_code(failed.get_first_failure()[1].exitcode)
    except SignalException as ended:
        return exit_code(-ended.sigval)
    except KeyboardInterrupt:
        return exit_code(-signal.SIGINT)
    return 0


def exit_code(code: int) -> int:
    """Return an exit code as a shell reports it: 128 + the number of the signal that ended the process."""
    return 128 - code if code < 0 else code


def find_run_packets(out: StoragePath, run_id: str) -> set[StoragePath]:
    """Return the paths of a run's packets; empty if there are none, or the bucket cannot be reached."""
    if isinstance(out, Path) and not out.is_dir():
        return set()
    from sfapp.packets import find_packets, packet_path

    try:
        return set(find_packets([out / packet_path(Path(), run_id, 0).parent.name]))
    except (PacketError, StorageError):  # There is no such folder.
        return set()


def newest(packets: Collection[StoragePath], most_bytes: int) -> list[StoragePath]:
    """Return the newest packets that together have at most this many bytes, but at least one.

    Files that do not exist are skipped: another node's aggregator removes parts it has merged.
    """
    kept: list[StoragePath] = []
    for path in sorted(packets, reverse=True):  # The names begin with the window's number.
        file = storage_of(path).found(path)
        if file is None:
            continue
        most_bytes -= file.stamp.size
        if most_bytes < 0 and kept:
            break
        kept.append(path)
    return kept


def load_remaining(paths: Sequence[StoragePath]) -> Loaded:
    """Read the windows in those of these files that still exist.

    Raises:
        PacketError: a file exists but cannot be found, several times in a row.
    """
    from sfapp.service.packet_windows import load_windows

    for _ in range(LOAD_ATTEMPTS - 1):
        try:
            return load_windows(paths)
        except PacketError:  # A file has been removed since the paths were collected.
            paths = [path for path in paths if storage_of(path).found(path) is not None]
    return load_windows(paths)


def report_or_warn(out: StoragePath, run_id: str, before: set[StoragePath]) -> None:
    """Print the report; print a warning if that fails, so that the script's exit code is kept."""
    if not shows_messages():
        return
    try:
        report(out, run_id, before)
    except KeyboardInterrupt:  # The user does not want to wait for the report.
        return
    except Exception as error:  # noqa: BLE001  # The report must not change the exit code, whatever fails.
        reason = str(error) if isinstance(error, SfappError) else describe_error(error)
        with suppress(OSError):
            click.echo(f"sfapp: cannot summarize the run: {reason}", err=True)


def report(out: StoragePath, run_id: str, before: set[StoragePath]) -> None:
    """Print on stderr what was recorded, the verdicts of the most severe windows and the next command."""
    new = find_run_packets(out, run_id) - before
    if not new:
        return
    from sfapp.model.reasons import reason_sentence
    from sfapp.model.view import ViewState
    from sfapp.packets import packet_path
    from sfapp.service.verdicts import diagnose_windows
    from sfapp.terminal import printable
    from sfapp.views import format, text

    folder = out / packet_path(Path(), run_id, 0).parent.name
    examined = newest(new, MOST_BYTES)
    loaded = load_remaining(examined)
    diagnoses = diagnose_windows((found.window for found in loaded.windows), ViewState())
    slow = sorted((d for d in diagnoses if not d.is_healthy), key=lambda d: -(d.severity or 0.0))
    scope = "the newest " if len(examined) < len(new) else ""
    counted = format.counted(len(diagnoses), "window")
    click.secho(f"sfapp: {scope}{counted} in {folder}", err=True, bold=True)
    for diagnosis in slow[:MOST_SHOWN]:
        severity = "" if diagnosis.severity is None else f" (severity {format.severity(diagnosis.severity)})"
        summary = printable(text.summary(diagnosis))
        click.secho(f"  window {diagnosis.window}: {summary}{severity}", err=True, fg="yellow")
    if len(slow) < len(diagnoses):
        healthy = format.counted(len(diagnoses) - len(slow), "window")
        click.echo(f"  {healthy} healthy: no straggler found", err=True)
    if len(slow) > MOST_SHOWN:
        click.echo(f"  {len(slow) - MOST_SHOWN} more: sfapp analyze {folder}", err=True)
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
