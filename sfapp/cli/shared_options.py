"""Options that several commands share: every threshold, the presets, frontier, baseline, group, reference,
the limit of a standstill; and the type of options that are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypeVar

import click

from sfapp.errors import ParseError
from sfapp.model import Baseline, Fix, Frontier
from sfapp.model.gates import (
    BASELINES,
    CHOICE_DOCS,
    DEFAULT_FRONTIER,
    FRONTIERS,
    GATE_DOCS,
    PRESET_FRONTIERS,
    PRESETS,
    Gates,
)
from sfapp.model.parse import parse_run_window
from sfapp.model.standstill import LEAST_SECONDS
from sfapp.model.view import ViewState, WindowKey

Command = TypeVar("Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """Range of numbers without NaN and infinity, which no comparison of click refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def gate_options(command: Command) -> Command:
    """Add ``--preset``, one option per gate, and ``--help-gates``, which lists them."""
    command = click.option(
        "--help-gates",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_gates,
        help="List the options for thresholds, frontier and baseline, and exit.",
    )(command)
    for doc in reversed(GATE_DOCS):
        default = getattr(Gates(), doc.name)
        command = click.option(
            f"--{doc.name.replace('_', '-')}",
            doc.name,
            type=int if doc.whole else float,
            default=None,
            metavar="N" if doc.whole else "X",
            hidden=True,
            help=f"{doc.symbol}, {doc.title} (default {default:,}). {doc.help}",
        )(command)
    for choice in reversed(CHOICE_DOCS):
        command = click.option(
            f"--{choice.name.replace('_', '-')}",
            choice.name,
            type=click.Choice(tuple(choice.help)),
            default=None,
            hidden=True,
            help=" ".join((choice.question, *(f"{name}: {text}" for name, text in choice.help.items()))),
        )(command)
    return click.option(
        "--preset",
        type=click.Choice(tuple(PRESETS)),
        default="sfapp",
        show_default=True,
        help="Default thresholds and frontier; 'paper' has those of the paper.",
    )(command)


def _print_gates(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the options that ``--help`` omits, and exit."""
    if not asked or context.resilient_parsing:
        return
    records = []
    for option in context.command.params:
        if isinstance(option, click.Option) and option.hidden:
            shown = copy(option)
            shown.hidden = False
            records.append(shown.get_help_record(context))
    formatter = context.make_formatter()
    with formatter.section("Thresholds and accounting (docs/accounting.md)"):
        formatter.write_dl([record for record in records if record is not None])
    click.echo(formatter.getvalue().rstrip())
    context.exit()


def view_options(command: Command) -> Command:
    """Add ``--frontier``, ``--baseline``, ``--reference`` and ``--group``."""
    command = click.option(
        "--group",
        default="all",
        show_default=True,
        metavar="role:NAME|node:K",
        help="Judge only the ranks of one role or one node.",
    )(command)
    command = click.option(
        "--reference",
        default=None,
        metavar="RUN/WINDOW",
        help="Compare every window with this one, instead of the healthy window of its run.",
    )(command)
    command = click.option(
        "--baseline",
        type=click.Choice(BASELINES),
        default="cohort_median",
        show_default=True,
        hidden=True,
        help="Duration that a stage is reduced to when its gain is computed.",
    )(command)
    return click.option(
        "--frontier",
        type=click.Choice(FRONTIERS),
        default=None,
        hidden=True,
        help="Frontier whose shares decide: 'carry_over' follows a delay into the next step, "
        "'step' is the paper's, which starts every step at zero "
        f"(default {DEFAULT_FRONTIER}; {PRESET_FRONTIERS['paper']} with --preset paper).",
    )(command)


def standstill_option(command: Command) -> Command:
    """Add ``--standstill-after`` of commands that run an aggregator."""
    return click.option(
        "--standstill-after",
        type=FiniteRange(0),
        default=LEAST_SECONDS,
        show_default=True,
        metavar="SECONDS",
        envvar="SFAPP_STANDSTILL_AFTER",
        show_envvar=True,
        help="Seconds without a finished step, and at least ten usual steps, after which a streamed job "
        "stands still; 0 to not look for it.",
    )(command)


def gates_from(preset: str, values: Mapping[str, Any]) -> Gates:
    """Return the preset with the given options."""
    return Gates.preset(preset).with_values(**{k: v for k, v in values.items() if v is not None})


def view_from(
    preset: str,
    frontier: Frontier | None,
    baseline: Baseline,
    reference: str | None,
    group: str,
    gates: Mapping[str, Any],
) -> ViewState:
    """Return the view that ``gate_options`` and ``view_options`` ask for; ``frontier`` is the preset's where
    None."""
    return ViewState(
        gates=gates_from(preset, gates),
        frontier=frontier or PRESET_FRONTIERS[preset],
        baseline=baseline,
        reference=None if reference is None else window_key(reference, "--reference"),
        group=group,
    )


def fix_from(text: str) -> Fix:
    """Parse the value of ``--what-if``.

    Raises:
        click.BadParameter: the value is invalid.
    """
    try:
        return Fix.parse(text)
    except ParseError as error:
        raise click.BadParameter(f"{text!r} {error}", param_hint="--what-if") from None


def window_key(text: str, option: str) -> WindowKey:
    """Parse the RUN/WINDOW of an option; a run id may itself hold slashes.

    Raises:
        click.BadParameter: the value is invalid.
    """
    try:
        return WindowKey(*parse_run_window(text))
    except ParseError as error:
        raise click.BadParameter(f"{text!r} {error}", param_hint=option) from None
