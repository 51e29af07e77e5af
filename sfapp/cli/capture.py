"""``sfapp capture``: have ranks of a running job profile some steps, now or when a window calls for it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sfapp.errors import CaptureError, ParseError, StoreError, WindowNotFoundError
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

_LOOK_SECONDS = 0.5
_HINT_SECONDS = 15.0


class Ranks(click.ParamType[tuple[int, ...]]):
    """Ranks as in ``0,3,8-11``."""

    name = "ranks"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if not isinstance(value, str):
            return tuple(value)
        try:
            return parse_ranks(value, MAX_CAPTURE_RANKS)
        except ParseError as error:
            self.fail(f"{value!r} {error}", param, ctx)


@click.command()
@click.argument("packets", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("run", required=False)
@click.option(
    "--ranks",
    type=Ranks(),
    metavar="0,3,8-11",
    help="Which [default: those that the newest verdict suspects, and peers].",
)
@click.option(
    "--steps", type=click.IntRange(1, MAX_CAPTURE_STEPS), default=CAPTURE_STEPS, show_default=True,
    help="How many.",
)  # fmt: skip
@click.option("--from-step", type=int, help="The first one [default: the ranks choose, seconds ahead].")
@click.option("--reason", default="", help="Why, for those who read it later.")
@click.option("--no-wait", is_flag=True, help="Ask, and end.")
@click.option("--watch", is_flag=True, help="Ask whenever a new window calls for it, until Ctrl-C.")
@click.option(
    "--when",
    "rules",
    multiple=True,
    metavar="RULE",
    help="With --watch, what calls for it too: 'severity>=5%', 'stage=data.next_wait,severity>=10%'.",
)
@click.option(
    "--spread", type=float, default=0.05, show_default=True,
    help="With --watch: by what share of the step ranks' own work must differ. 1e9 leaves it to --when.",
)  # fmt: skip
@click.option("--suspects", default=2, show_default=True, help="Suspected ranks of a capture, at most.")
@click.option("--peers", default=2, show_default=True, help="Other ranks of a capture, to compare with.")
@click.option("--cooldown", default=600.0, show_default=True, help="With --watch: seconds between two.")
@click.option("--per-hour", default=4, show_default=True, help="With --watch: captures an hour, at most.")
@click.option("--budget", default=200, show_default=True, help="With --watch: steps in all, at most.")
@click.option("--seed", default=0, show_default=True, help="Of the choice of peers.")
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
    """Have torch.profiler run on some ranks of a running job for some steps.

    PACKETS is the folder that the job's recorders write to, RUN the run [default: the newest]. The events end
    up beside the packets, where `sfapp analyze` and the app find them. The recorder keeps to limits of its
    own, whatever is asked.

    \b
    sfapp capture packets t7 --ranks 3,5 --steps 3
    sfapp capture packets --watch --when 'severity>=10%'
    """
    from sfapp.operators.sampling import Rule, Sampling
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
        raise click.UsageError("--when says when to ask: it needs --watch")
    with Store.open([packets], memory=True) as store:
        if watch:
            _watch(store, packets, run, settings)
            return
        store.ingest()
        from sfapp.packets.captures import ask_for_capture, new_request

        run = run or _newest_run(store)
        asked_by = os.environ.get("USER", "")[:64] or "sfapp capture"
        chosen = ranks or _suspected(store, run, settings)
        request = new_request(run, chosen, steps, first_step=from_step, reason=reason, asked_by=asked_by)
        root = _root_of(packets, run)
    ask_for_capture(root, request)
    click.echo(f"{request.id}: asked rank {_listed(request.ranks)} of {run} for {steps} steps", err=True)
    if not no_wait:
        _wait(root, request)


def _newest_run(store: Store) -> str:
    runs = store.runs()
    if not runs:
        raise WindowNotFoundError("no run has left a window here yet: name the run and --ranks")
    return runs[0].run_id


def _root_of(packets: Path, run: str) -> Path:
    """The folder that holds the run's: PACKETS itself, or the one above where it is the run's own."""
    from sfapp.packets.paths import folder_name

    name = folder_name(run)
    for root in (packets, packets.resolve().parent):
        if (root / name).is_dir() and (root == packets or packets.resolve().name == name):
            return root
    raise WindowNotFoundError(f"run {run!r} has no folder under {packets}: no recorder of it looks there")


def _suspected(store: Store, run: str, settings: Sampling) -> tuple[int, ...]:
    from sfapp.operators.sampling import chosen_ranks, observed

    windows = [row["window"] for row in store.timeline(run)]
    if not windows:
        raise WindowNotFoundError(f"run {run!r} has left no window yet: name --ranks")
    newest = windows[-1]
    return chosen_ranks(observed(store.window(run, newest), store.diagnosis(run, newest)), settings)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


# ---- waiting for one ------------------------------------------------------------------------------


def _wait(root: Path, request: CaptureRequest) -> None:
    """Say what comes of it, until all has come.

    Raises:
        CaptureError: nothing was captured.
    """
    from sfapp.packets.captures import state_of

    said, hint_at = "", time.monotonic() + _HINT_SECONDS
    while True:
        state = state_of(root, request)
        line = progress(state)
        if line == "asked" and time.monotonic() > hint_at:
            line = "asked, but no rank has answered yet: does the run go on, and write to this folder?"
        if line != said:
            click.echo(f"{request.id}: {line}", err=True)
            said = line
        if state.is_over:
            break
        time.sleep(_LOOK_SECONDS)
    if state.status != "done":
        raise CaptureError(f"nothing was captured: {printable(state.why) or 'no rank answered'}")


def progress(state: CaptureState) -> str:
    """A capture so far, in a line."""
    of = len(state.request.ranks)
    parts: list[str] = [state.status]
    begin = next((each.first_step for each in state.ranks if each.first_step is not None), None)
    if state.status in ("asked", "running") and begin is not None:
        parts.append(f"from step {begin}")
    if state.ranks_done:
        parts.append(f"rank {_listed(state.ranks_done)} ({len(state.ranks_done)} of {of})")
    if state.is_over and state.windows:
        parts.append(f"in window {_listed(state.windows)}")
    if state.is_over and state.why:
        parts.append(printable(state.why))
    return ", ".join(parts)


# ---- watching -------------------------------------------------------------------------------------


def _watch(store: Store, packets: Path, run: str | None, settings: Sampling) -> None:
    """Hand every window that comes to the policy, and ask for what it proposes."""
    from sfapp.cli.signals import wait_for_stop_signal
    from sfapp.operators.sampling import SamplingState

    states: dict[str, SamplingState] = {}
    store.ingest()
    seen = {summary.run_id: _last(store, summary.run_id) for summary in store.runs()}

    def look(_: object) -> None:
        for summary in store.runs():
            name = summary.run_id
            if run is not None and name != run:
                continue
            for row in store.timeline(name):
                if row["window"] <= seen.get(name, -1):
                    continue
                seen[name] = row["window"]
                before = states.get(name, SamplingState())
                states[name] = _consider(store, packets, name, row["window"], before, settings)

    with wait_for_stop_signal() as stop:
        click.echo(f"watching {packets} for windows that call for a capture", err=True)
        store.watch(stop, look)


def _last(store: Store, run: str) -> int:
    return max((row["window"] for row in store.timeline(run)), default=-1)


def _consider(
    store: Store, packets: Path, run: str, window: int, before: SamplingState, settings: Sampling
) -> SamplingState:
    """What the policy says of a window; it is asked for at once. Files that are gone are no reason to end."""
    from sfapp.operators.sampling import observed, propose
    from sfapp.packets.captures import ask_for_capture, new_id

    try:
        found = observed(store.window(run, window), store.diagnosis(run, window))
    except StoreError:
        return before
    now = datetime.now(UTC)
    proposal = propose(found, before, settings, now, new_id(now))
    if proposal.request is not None:
        ask_for_capture(_root_of(packets, run), proposal.request)
        ranks = _listed(proposal.request.ranks)
        click.echo(
            f"{printable(run)}: asked rank {ranks} for {settings.steps} steps: {proposal.reason}", err=True
        )
    return proposal.state
