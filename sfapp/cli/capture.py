"""``sfapp capture``: profile some steps on ranks of a running job, now or when a window meets a condition."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sfapp.cli.console_messages import message, message_option
from sfapp.cli.shared_options import FiniteRange
from sfapp.errors import CaptureError, ParseError, SfappError, StoreError, WindowNotFoundError
from sfapp.model.capture import (
    CAPTURE_STEPS,
    MAX_CAPTURE_RANKS,
    MAX_CAPTURE_STEPS,
    CaptureRequest,
    CaptureState,
)
from sfapp.model.parse import parse_ranks
from sfapp.terminal import printable

if TYPE_CHECKING:
    from sfapp.operators.sampling import Sampling, SamplingState
    from sfapp.store import Store

_POLL_SECONDS = 0.5
_HINT_SECONDS = 15.0


class Ranks(click.ParamType[tuple[int, ...]]):
    """Parameter type of a list of ranks such as ``0,3,8-11``."""

    name = "ranks"

    def __init__(self, most: int = MAX_CAPTURE_RANKS) -> None:
        self._most = most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if not isinstance(value, str):
            return tuple(value)
        try:
            return parse_ranks(value, self._most)
        except ParseError as error:
            self.fail(f"{value!r} {error}", param, ctx)


@click.command()
@click.argument("packets", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("run", required=False)
@click.option(
    "--ranks",
    type=Ranks(),
    metavar="0,3,8-11",
    help="Ranks to profile [default: suspects of the newest verdict and some peers].",
)
@click.option(
    "--steps", type=click.IntRange(1, MAX_CAPTURE_STEPS), default=CAPTURE_STEPS, show_default=True,
    help="Number of steps.",
)  # fmt: skip
@click.option("--from-step", type=int, help="First step [default: a step some seconds ahead].")
@click.option("--reason", default="", help="Reason, stored with the request.")
@click.option("--no-wait", is_flag=True, help="Write the request and exit.")
@click.option(
    "--watch", is_flag=True, help="Request a capture whenever a new window meets a condition, until Ctrl-C."
)
@click.option(
    "--when",
    "rules",
    multiple=True,
    metavar="RULE",
    help="With --watch: a further condition: 'severity>=5%', 'stage=data.next_wait,severity>=10%'.",
)
@click.option(
    "--spread", type=FiniteRange(0), default=0.05, show_default=True,
    help="With --watch: minimum difference of the ranks' own work, as a share of the step; 1e9 disables it.",
)  # fmt: skip
@click.option("--suspects", default=2, show_default=True, help="Maximum number of suspects per capture.")
@click.option("--peers", default=2, show_default=True, help="Peers per capture, for comparison.")
@click.option(
    "--cooldown",
    type=FiniteRange(0),
    default=600.0,
    show_default=True,
    help="With --watch: minimum seconds between two captures.",
)
@click.option("--per-hour", default=4, show_default=True, help="With --watch: maximum captures per hour.")
@click.option("--budget", default=200, show_default=True, help="With --watch: maximum steps in total.")
@click.option("--seed", default=0, show_default=True, help="Random seed for the choice of peers.")
@message_option
def capture(
    packets: Path,
    run: str | None,
    ranks: tuple[int, ...] | None,
    steps: int,
    from_step: int | None,
    reason: str,
    no_wait: bool,
    watch: bool,
    rules: Sequence[str],
    spread: float,
    suspects: int,
    peers: int,
    cooldown: float,
    per_hour: int,
    budget: int,
    seed: int,
) -> None:
    """Run torch.profiler on some ranks of a running job for some steps.

    PACKETS is the folder that the job's recorders write to, RUN the run [default: the newest]. The events are
    written next to the packets, where `sfapp analyze` and the app find them. The recorder's own limits on
    captures always apply.

    \b
    sfapp capture packets t7 --ranks 3,5 --steps 3
    sfapp capture packets --watch --when 'severity>=10%'
    """
    from sfapp.operators.sampling import Rule, Sampling
    from sfapp.packets.captures import ask_for_capture, new_request
    from sfapp.store import Store

    settings = Sampling(
        spread=spread,
        rules=tuple(Rule.of(text) for text in rules),
        steps=steps,
        suspects=suspects,
        peers=peers,
        cooldown_seconds=cooldown,
        per_hour=per_hour,
        total_steps=budget,
        seed=seed,
    )
    if rules and not watch:
        raise click.UsageError("--when needs --watch")
    with Store.open([packets], memory=True) as store:
        if watch:
            _watch(store, packets, run, settings)
            return
        store.ingest()
        run = run or _newest_run(store)
        chosen = ranks or _choose_ranks(store, run, settings)
        request = new_request(run, chosen, steps, first_step=from_step, reason=reason, asked_by=author_name())
        root = _root_of(packets, run)
    ask_for_capture(root, request)
    message(f"{request.id}: requested {steps} steps of rank {_listed(request.ranks)} in run {printable(run)}")
    if not no_wait:
        _wait(root, request)


def author_name() -> str:
    """Return the name that a request carries as its author."""
    return os.environ.get("USER", "")[:64] or "sfapp"


def _newest_run(store: Store) -> str:
    runs = store.runs()
    if not runs:
        raise WindowNotFoundError("no run has written a window here yet: pass RUN and --ranks")
    return runs[0].run_id


def _root_of(packets: Path, run: str) -> Path:
    """Return the folder that contains the run's folder: PACKETS, or its parent if PACKETS is the run's
    folder.

    Raises:
        WindowNotFoundError: the run has no folder there.
    """
    from sfapp.packets.paths import folder_name

    name = folder_name(run)
    for root in (packets, packets.resolve().parent):
        if (root / name).is_dir() and (root == packets or packets.resolve().name == name):
            return root
    raise WindowNotFoundError(f"run {run!r} has no folder under {packets}: its recorders do not write there")


def _choose_ranks(store: Store, run: str, settings: Sampling) -> tuple[int, ...]:
    from sfapp.operators.sampling import chosen_ranks, observed

    newest = _last_window(store, run)
    if newest < 0:
        raise WindowNotFoundError(f"run {run!r} has not written a window yet: pass --ranks")
    return chosen_ranks(observed(store.window(run, newest), store.diagnosis(run, newest)), settings)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


# ---- waiting for a capture-------------------------------------------------------------------------


def _wait(root: Path, request: CaptureRequest) -> None:
    """Print the state of a capture whenever it changes, until it is over.

    Raises:
        CaptureError: no step was captured.
    """
    from sfapp.packets.captures import state_of

    printed, hint_at = "", time.monotonic() + _HINT_SECONDS
    while True:
        state = state_of(root, request)
        line = progress(state)
        if line == "asked" and time.monotonic() > hint_at:
            line = "requested, but no rank has responded yet: check that the run writes to this folder"
        if line != printed:
            message(f"{request.id}: {line}")
            printed = line
        if state.is_over:
            break
        time.sleep(_POLL_SECONDS)
    if state.status != "done":
        raise CaptureError(f"nothing was captured: {printable(state.why) or 'no rank responded'}")


def progress(state: CaptureState) -> str:
    """Return the state of a capture as one line."""
    total = len(state.request.ranks)
    parts: list[str] = [state.status]
    begin = next((each.first_step for each in state.ranks if each.first_step is not None), None)
    if state.status in ("asked", "running") and begin is not None:
        parts.append(f"from step {begin}")
    if state.ranks_done:
        parts.append(f"rank {_listed(state.ranks_done)} ({len(state.ranks_done)} of {total})")
    if state.is_over and state.windows:
        parts.append(f"in window {_listed(state.windows)}")
    if state.is_over and state.why:
        parts.append(printable(state.why))
    return ", ".join(parts)


# ---- watching -------------------------------------------------------------------------------------


def _watch(store: Store, packets: Path, run: str | None, settings: Sampling) -> None:
    """Apply the sampling policy to every new window and request the captures that it proposes."""
    from sfapp.cli.signals import wait_for_stop_signal
    from sfapp.operators.sampling import SamplingState

    states: dict[str, SamplingState] = {}
    store.ingest()
    seen = {summary.run_id: _last_window(store, summary.run_id) for summary in store.runs()}

    def examine_new(_: object) -> None:
        for summary in store.runs():
            name = summary.run_id
            if run is not None and name != run:
                continue
            for window in store.window_numbers([name]).get(name, ()):
                if window <= seen.get(name, -1):
                    continue
                seen[name] = window
                before = states.get(name, SamplingState())
                states[name] = _consider(store, packets, name, window, before, settings)

    with wait_for_stop_signal() as stop:
        message(f"watching {packets} for windows that meet a condition")
        store.watch(stop, examine_new)


def _last_window(store: Store, run: str) -> int:
    return max(store.window_numbers([run]).get(run, []), default=-1)


def _consider(
    store: Store, packets: Path, run: str, window: int, before: SamplingState, settings: Sampling
) -> SamplingState:
    """Apply the policy to one window and request its capture; a window whose files are gone is skipped."""
    from sfapp.operators.sampling import observed, propose
    from sfapp.packets.captures import ask_for_capture, new_id

    try:
        found = observed(store.window(run, window), store.diagnosis(run, window))
    except StoreError:
        return before
    now = datetime.now(UTC)
    proposal = propose(found, before, settings, now, new_id(now))
    if proposal.request is not None:
        try:
            ask_for_capture(_root_of(packets, run), proposal.request)
        except SfappError as error:  # A later window asks again, and other runs are watched meanwhile.
            message(f"{printable(run)}: window {window}: no capture was requested: {error}")
            return before
        ranks = _listed(proposal.request.ranks)
        message(f"{printable(run)}: requested {settings.steps} steps of rank {ranks}: {proposal.reason}")
    return proposal.state
