"""``sfapp run``: a training script as Python or torchrun would run it, recorded."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import click

from sfapp.errors import RunError, SfappError

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

    Exits as the script does. Under another launcher, run `python -m sfapp.record.auto SCRIPT` in its place.
    """
    check_script(script, is_module)
    run_id = run_id or f"{Path(script).stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"[-LONGEST_NAME:]
    worker = ["--out", str(out), "--run-id", run_id, "--window-steps", str(window_steps)]
    worker += [*(["-m"] if is_module else []), script, *arguments]
    torchrun = {
        "--nproc-per-node": nproc_per_node,
        "--nnodes": nnodes,
        "--node-rank": node_rank,
        "--master-addr": master_addr,
        "--master-port": master_port,
    }
    before = packets_of(out, run_id)
    code = launch(torchrun, worker)
    try:
        report(out, run_id, before)
    except SfappError as error:  # the script's exit code counts, whatever became of the packets
        click.echo(f"sfapp: {error}", err=True)
    sys.exit(code)


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


def launch(torchrun: Mapping[str, str | int | None], worker: Sequence[str]) -> int:
    """Run the worker's command line, under torchrun where any of its options is given; its exit code, 128 +
    the number where a signal ended it."""
    command = [sys.executable, "-u", "-m", "sfapp.record.auto", *worker]
    given = [f"{option}={value}" for option, value in torchrun.items() if value is not None]
    return launch_many(given, worker) if given else launch_one(command)


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

    arguments = torchrun.parse_args([*options, "-m", "sfapp.record.auto", *worker])
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
    from sfapp.cli.analyze import printable, without_overflow
    from sfapp.model import REASONS
    from sfapp.packets import packet_path, read_windows
    from sfapp.views import format, words

    folder = packet_path(out, run_id, 0).parent
    looked_at = newest(new, MOST_BYTES)
    loaded = without_overflow(read_windows(looked_at))
    diagnoses = diagnose_runs(found.window for found in loaded.windows)
    loud = sorted((d for d in diagnoses if not d.is_quiet), key=lambda d: -(d.severity or 0.0))
    which = "the newest " if len(looked_at) < len(new) else ""
    counted = format.counted(len(diagnoses), "window")
    click.secho(f"sfapp: {which}{counted} in {folder}", err=True, bold=True)
    for diagnosis in loud[:MOST_SHOWN]:
        severity = "" if diagnosis.severity is None else f" (severity {format.percent(diagnosis.severity)})"
        said = printable(words.summary(diagnosis))
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
            f"  limited in {format.counted(windows, 'window')}: {REASONS.get(reason) or printable(reason)}",
            err=True,
        )
    click.echo(f"  sfapp serve {out}", err=True)
