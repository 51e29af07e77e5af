"""The vocabulary of sfapp: stages, ranks, windows, gates, labels and the diagnosis. Pure data."""

from sfapp.model.diagnosis import (
    Aim,
    Culprit,
    DeviceEvidence,
    Diagnosis,
    EvidenceLine,
    Leader,
    Reference,
    Rival,
    StepTime,
    WaitFit,
)
from sfapp.model.gates import BASELINES, FRONTIERS, GATE_DOCS, MODEL_FITS, Baseline, Frontier, Gates, ModelFit
from sfapp.model.labels import LABELS
from sfapp.model.manifest import FORMAT, Accumulation, Label, Manifest, Overhead, Parallelism, RecorderInfo
from sfapp.model.operators import CATEGORIES, Lane, Operators
from sfapp.model.reasons import CULPRITS, REASONS
from sfapp.model.reduced import LAG_BINS, PLANES, NamedRank, ReducedPlanes, Reduction
from sfapp.model.stages import (
    DEFAULT_STAGES,
    FORWARD_EVENT,
    RESIDUAL,
    broad_stage,
    broad_stages,
    expand_stages,
    stage_category,
    stage_hash,
)
from sfapp.model.window import ALL_RANKS, RankIdentity, RankTable, SideChannel, Window

__all__ = [
    "ALL_RANKS",
    "BASELINES",
    "CATEGORIES",
    "CULPRITS",
    "DEFAULT_STAGES",
    "FORMAT",
    "FORWARD_EVENT",
    "FRONTIERS",
    "GATE_DOCS",
    "LABELS",
    "LAG_BINS",
    "MODEL_FITS",
    "PLANES",
    "REASONS",
    "RESIDUAL",
    "Accumulation",
    "Aim",
    "Baseline",
    "Culprit",
    "DeviceEvidence",
    "Diagnosis",
    "EvidenceLine",
    "Frontier",
    "Gates",
    "Label",
    "Lane",
    "Leader",
    "Manifest",
    "ModelFit",
    "NamedRank",
    "Operators",
    "Overhead",
    "Parallelism",
    "RankIdentity",
    "RankTable",
    "RecorderInfo",
    "ReducedPlanes",
    "Reduction",
    "Reference",
    "Rival",
    "SideChannel",
    "StepTime",
    "WaitFit",
    "Window",
    "broad_stage",
    "broad_stages",
    "expand_stages",
    "stage_category",
    "stage_hash",
]
