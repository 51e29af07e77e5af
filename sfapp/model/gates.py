"""The gates of a diagnosis: every threshold with default, range and purpose (accounting.md §6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from sfapp.errors import GateError

ModelFit = Literal["declared", "measured", "on", "off"]
Baseline = Literal["rank_median", "cohort_median", "reference"]
Frontier = Literal["step", "carry_over"]
NoiseFloor = Literal["measured", "off"]

MODEL_FITS: tuple[ModelFit, ...] = get_args(ModelFit)
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
FRONTIERS: tuple[Frontier, ...] = get_args(Frontier)
DEFAULT_FRONTIER: Frontier = "carry_over"
"""The default frontier for routing and labels (accounting.md §5, §10)."""


@dataclass(frozen=True, slots=True)
class GateDoc:
    """Name, bounds and explanation of one numeric gate, for every surface.

    Attributes:
        name: the field of ``Gates``, the CLI option and the URL parameter; symbol: on screen.
        low, high: its range, inclusive.
        step: change per click, and grid of the search for the next change of verdict.
        whole: whether it is an integer. unit: of its value; empty for parts and numbers of things.
        paper: whether the paper defines it; the others are choices of ours.
        affects_suspect: whether the suspect, its steps or its severity depend on it; the others affect only
            labels, routing set and evidence.
    """

    name: str
    symbol: str
    title: str
    low: float
    high: float
    step: float
    help: str
    whole: bool = False
    paper: bool = True
    affects_suspect: bool = False
    unit: Literal["", "ns"] = ""


GATE_DOCS: tuple[GateDoc, ...] = (
    GateDoc(
        "tau_c", "τC", "candidate threshold", 0.0, 1.0, 0.01,
        "The routing set is the shortest run of leading stages whose shares add up to at least this.",
    ),
    GateDoc(
        "gamma_a", "γA", "dominance", 0.0, 1.0, 0.01,
        "The top stage must hold more than this share of the exposed time to get a stage label.",
    ),
    GateDoc(
        "gamma_g", "γG", "static gain", 0.0, 1.0, 0.01,
        "From this gain on, clipping the stage alone would shorten the step: exposure is direct.",
    ),
    GateDoc(
        "eta_a", "ηA", "share tie", 0.0, 0.5, 0.01,
        "Stages whose shares differ by no more than this are tied.",
    ),
    GateDoc(
        "eta_g", "ηG", "gain tie", 0.0, 0.5, 0.01,
        "Stages whose static gains differ by no more than this are tied.",
    ),
    GateDoc(
        "eta_q", "ηQ", "leader confidence", 0.0, 0.5, 0.005,
        "A rank is clearly the slowest at a boundary if it is at least this share of a step behind the next.",
        paper=False, affects_suspect=True,
    ),
    GateDoc(
        "gamma_switch", "γswitch", "switch rate", 0.0, 1.0, 0.01,
        "Above this rate, from one eligible step to the next, the slowest rank counts as changing.",
        paper=False, affects_suspect=True,
    ),
    GateDoc(
        "gamma_elig", "γelig", "stage eligibility", 0.0, 1.0, 0.01,
        "A step counts in the search for a stage's slowest rank if the stage takes at least this part.",
        paper=False, affects_suspect=True,
    ),
    GateDoc(
        "max_residual", "closure", "closure residual share", 0.0, 1.0, 0.01,
        "The telemetry is limited if more of the step than this lies outside the named stages.",
    ),
    GateDoc(
        "max_overlap", "overlap", "overlap error share", 0.0, 1.0, 0.005,
        "The telemetry is limited if more stage time than this is nested or counted twice.",
    ),
    GateDoc(
        "max_missing_ranks", "missing", "missing ranks", 0, 100_000, 1,
        "How many expected ranks may be absent before the telemetry is limited.", whole=True,
    ),
    GateDoc(
        "min_event_ready", "ready ratio", "event-ready ratio", 0.0, 1.0, 0.01,
        "Device events count only if at least this share of the sampled ones finished.",
    ),
    GateDoc(
        "min_event_samples", "samples", "event samples", 0, 1_000_000, 1,
        "Device events count only if at least this many samples finished.", whole=True,
    ),
    GateDoc(
        "gamma_dev", "γdev", "device share", 0.0, 1.0, 0.01,
        "From this share of the step on, sampled forward device time supports a device label.",
        paper=False,
    ),
    GateDoc(
        "gamma_host", "γhost", "host ratio", 0.0, 1.0, 0.01,
        "Device time below this ratio of the forward wall time suggests host overhead.",
        paper=False,
    ),
    GateDoc(
        "floor_ns", "floor", "denominator floor", 0, 2**62, 1_000,
        "Windows with less exposed time than this (ns) get raw advances and no shares.",
        whole=True, paper=False, affects_suspect=True, unit="ns",
    ),
    GateDoc(
        "wait_slope", "β", "wait slope", 0.0, 2.0, 0.05,
        "Ranks wait in a stage if slack turns into time there with at least this slope.",
        paper=False, affects_suspect=True,
    ),
    GateDoc(
        "alpha", "α", "chance of a false alarm", 0.0001, 0.2, 0.001,
        "A healthy window needs attention with at most this chance.",
        paper=False, affects_suspect=True,
    ),
    GateDoc(
        "min_effect", "effect", "smallest effect", 0.0, 0.5, 0.005,
        "Effects below this part of the step need no attention, however certain they are.",
        paper=False, affects_suspect=True,
    ),
)  # fmt: skip

GATE_BY_NAME: Mapping[str, GateDoc] = {doc.name: doc for doc in GATE_DOCS}
LABEL_GATES = frozenset(doc.name for doc in GATE_DOCS if not doc.affects_suspect)
"""Gates that cannot change the headline of a verdict."""


@dataclass(frozen=True, slots=True)
class ChoiceDoc:
    """Name and explanation of one gate that is a choice; ``help`` has an entry for each value."""

    name: str
    symbol: str
    title: str
    question: str
    help: Mapping[str, str]


CHOICE_DOCS: tuple[ChoiceDoc, ...] = (
    ChoiceDoc(
        "model_fit", "W", "wait model", "Whether ranks wait for each other in a stage (the wait model W).",
        {
            "declared": "As the training code declared it in the packet (the paper's behaviour).",
            "measured": "If the window itself shows ranks waiting for each other in a stage.",
            "on": "Always.",
            "off": "Never.",
        },
    ),
    ChoiceDoc(
        "noise_floor", "noise", "noise floor", "Whether strong labels need an effect beyond noise.",
        {
            "measured": "Only windows that need attention have strong labels.",
            "off": "Strong labels do not depend on noise (the paper's behaviour).",
        },
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Every threshold a verdict depends on. Defaults are the preset ``sfapp``.

    Raises:
        GateError: a value is not a finite number inside its range.
    """

    tau_c: float = 0.80
    gamma_a: float = 0.40
    gamma_g: float = 0.10
    eta_a: float = 0.05
    eta_g: float = 0.05
    eta_q: float = 0.02
    gamma_switch: float = 0.25
    gamma_elig: float = 0.10
    max_residual: float = 0.05
    max_overlap: float = 0.01
    max_missing_ranks: int = 0
    min_event_ready: float = 0.80
    min_event_samples: int = 5
    gamma_dev: float = 0.20
    gamma_host: float = 0.50
    floor_ns: int = 1_000_000
    wait_slope: float = 0.5
    alpha: float = 0.01
    min_effect: float = 0.02
    noise_floor: NoiseFloor = "measured"
    model_fit: ModelFit = "measured"

    def __post_init__(self) -> None:
        for doc in GATE_DOCS:
            value = getattr(self, doc.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise GateError(f"{doc.name} must be a number, not {value!r}")
            if not doc.low <= value <= doc.high:
                raise GateError(f"{doc.name} must lie between {doc.low:g} and {doc.high:g}, not {value!r}")
            if doc.whole and value != int(value):
                raise GateError(f"{doc.name} must be a whole number, not {value!r}")
        for choice in CHOICE_DOCS:
            value = getattr(self, choice.name)
            if value not in choice.help:
                raise GateError(f"{choice.name} must be one of {', '.join(choice.help)}, not {value!r}")

    @classmethod
    def preset(cls, name: str) -> Gates:
        """Return the named preset: ``sfapp`` (defaults) or ``paper`` (W as the packet declares it)."""
        try:
            return PRESETS[name]
        except KeyError:
            raise GateError(f"no preset {name!r}; there are: {', '.join(PRESETS)}") from None

    def with_values(self, **values: Any) -> Gates:
        """Return a copy with some gates set; unknown names raise GateError."""
        known = {field.name for field in fields(self)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise GateError(f"no gate {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        return replace(self, **values)

    def changed(self) -> dict[str, Any]:
        """Return the gates that differ from the defaults, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(PRESETS["sfapp"], name)}


if {doc.name for doc in GATE_DOCS} | {doc.name for doc in CHOICE_DOCS} != {
    field.name for field in fields(Gates)
}:
    raise TypeError("each gate needs a field in Gates and an entry in GATE_DOCS or CHOICE_DOCS")

PRESETS: Mapping[str, Gates] = {"sfapp": Gates(), "paper": Gates(model_fit="declared", noise_floor="off")}
PRESET_FRONTIERS: Mapping[str, Frontier] = {"sfapp": DEFAULT_FRONTIER, "paper": "step"}
"""The default frontier of each preset."""
