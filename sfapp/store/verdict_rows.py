"""Convert diagnoses to rows of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from sfapp.accounting import is_complete, own_wait_stages
from sfapp.errors import DamagedStoreError, GateError
from sfapp.model import Diagnosis, Reference, Window
from sfapp.model.findings import StepNoise
from sfapp.model.job_fields import encode_fields, job_fields
from sfapp.model.labels import heaviest_label
from sfapp.model.parse import parse_time
from sfapp.model.problems import TimedDiagnosis
from sfapp.store.schema import STAGES, WINDOWS
from sfapp.store.verdict_checks import check_diagnosis, check_reference

Key = tuple[str, int]
"""Run id and window number."""

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()
_DIAGNOSIS = msgspec.json.Decoder(Diagnosis)
_REFERENCE = msgspec.json.Decoder(Reference)


@dataclass(frozen=True, slots=True)
class WindowOrigin:
    """Values of a window's row that do not depend on its reference.

    Attributes:
        started_at, ended_at: naive UTC.
        job_fields: what the job ran with (``job_fields``), as JSON.
        complete: whether it may be the run's reference if it is not the run's first window.
    """

    started_at: datetime | None
    ended_at: datetime | None
    wrapper: str
    job_fields: str | None
    world_size: int
    complete: bool

    @classmethod
    def of(cls, window: Window, diagnosis: Diagnosis) -> WindowOrigin:
        manifest = window.manifest
        return cls(
            utc(manifest.started_at),
            utc(manifest.ended_at),
            manifest.wrapper,
            encode_fields(job_fields(manifest, window.attributes)),
            manifest.world_size,
            is_complete(diagnosis),
        )


@dataclass(frozen=True, slots=True)
class DerivedWindow:
    """Diagnosis of a window and the other values of its row."""

    diagnosis: Diagnosis
    origin: WindowOrigin


@dataclass(frozen=True, slots=True)
class EncodedVerdict:
    """The verdict on a window as JSON.

    Thousands are kept: a garbage collection looks at each object, and a diagnosis is hundreds.
    """

    key: Key
    text: str
    started_at: datetime | None
    ended_at: datetime | None

    def decode(self) -> TimedDiagnosis:
        """Return it as an object.

        Raises:
            DamagedStoreError: another program wrote it.
        """
        diagnosis = decode_diagnosis(self.text)
        if (diagnosis.run_id, diagnosis.window) != self.key:
            raise _damaged("diagnosis", "it is of another window")
        return TimedDiagnosis(diagnosis, self.started_at, self.ended_at)


def utc(text: str | None) -> datetime | None:
    """Return an RFC 3339 time as naive UTC; None if the text is no time."""
    moment = parse_time(text)
    return None if moment is None else moment.replace(tzinfo=None)


def windows_table(windows: Sequence[DerivedWindow]) -> pa.Table:
    """Return rows of ``windows``."""
    return WINDOWS.arrow([_window_row(window.diagnosis, window.origin) for window in windows])


def _window_row(diagnosis: Diagnosis, origin: WindowOrigin) -> dict[str, Any]:
    # Long because the table has many columns.
    shares, reference = diagnosis.shares, diagnosis.reference
    chosen = diagnosis.top_stages()
    leader, culprit, aim = diagnosis.leader, diagnosis.culprit, diagnosis.aim
    top = diagnosis.top_stage
    return {
        "run_id": diagnosis.run_id,
        "window": diagnosis.window,
        "started_at": origin.started_at,
        "ended_at": origin.ended_at,
        "closed_by": diagnosis.closed_by,
        "wrapper": origin.wrapper,
        "job_fields": origin.job_fields,
        "first_step": diagnosis.first_step,
        "last_step": diagnosis.last_step,
        "steps": diagnosis.steps,
        "ranks": diagnosis.ranks,
        "nodes": diagnosis.nodes,
        "world_size": origin.world_size,
        "missing_ranks": diagnosis.missing_ranks,
        "gather_ok": diagnosis.gather_ok,
        "step_mean_ns": diagnosis.step_time.mean_ns,
        "step_p50_ns": diagnosis.step_time.p50_ns,
        "step_p95_ns": diagnosis.step_time.p95_ns,
        "exposed_makespan_ns": diagnosis.exposed_makespan_ns,
        "frontier": diagnosis.frontier,
        "stages": diagnosis.stages,
        "recorded_stages": diagnosis.recorded_stages,
        "shares": _in_order(diagnosis, shares),
        "carry_over_shares": _in_order(diagnosis, diagnosis.carry_over_shares),
        "top_stage": top,
        "top_share": chosen[top] if top else None,
        "routing_set": diagnosis.routing_set,
        "co_critical_stages": diagnosis.co_critical_stages,
        "label": heaviest_label(diagnosis.label_names),
        "labels": diagnosis.label_names,
        "reasons": tuple(dict.fromkeys(diagnosis.all_reasons)),
        "leader_rank": leader.rank if leader else None,
        "leader_hostname": leader.hostname if leader else None,
        "leader_share": leader.share if leader else None,
        "own_wait_stages": own_wait_stages(diagnosis),
        "own_boundary": diagnosis.own_boundary,
        "met_boundary": diagnosis.met_boundary,
        "sync_boundary": diagnosis.sync_boundary,
        "culprit_kind": culprit.kind if culprit else None,
        "culprit_rank": culprit.rank if culprit else None,
        "culprit_hostname": culprit.hostname if culprit else None,
        "culprit_share": culprit.share if culprit else None,
        "culprit_period": culprit.period if culprit else None,
        "aim_stage": aim.stage if aim else None,
        "aim_basis": aim.basis if aim else None,
        "aim_rank": aim.rank if aim else None,
        "aim_hostname": aim.hostname if aim else None,
        "aim_rank_reason": aim.rank_reason if aim else None,
        "exposed_imbalance": diagnosis.exposed_imbalance,
        "change": diagnosis.change,
        "severity": diagnosis.severity,
        "needs_attention": diagnosis.needs_attention,
        "lacks_data": diagnosis.lacks_data,
        "has_late_ranks": diagnosis.has_late_ranks,
        "step_noise": noise_values(diagnosis.noise),
        "complete": origin.complete,
        "reference_window": reference.window if reference else None,
        "is_reference": diagnosis.is_reference,
        "verdict_hash": verdict_hash(text := encode(diagnosis)),
        "diagnosis": text,
    }


def noise_values(noise: StepNoise | None) -> list[float] | None:
    """Return noise as a column holds it."""
    return None if noise is None else [noise.steps, noise.lag1, noise.lag2, noise.block1, noise.block2]


def _in_order(diagnosis: Diagnosis, shares: dict[str, float] | None) -> list[tuple[str, float]] | None:
    """Return shares in stage order, as items of a DuckDB map."""
    return [(stage, shares[stage]) for stage in diagnosis.stages] if shares else None


def stages_table(diagnoses: Sequence[Diagnosis]) -> pa.Table:
    """Return rows of ``stages``, one per broad stage of each window, built by column because there are
    many.
    """
    columns: dict[str, list[Any]] = {name: [] for name in STAGES.names}
    for diagnosis in diagnoses:
        stages = diagnosis.stages
        routed, tied = diagnosis.routing_set or (), diagnosis.co_critical_stages or ()
        columns["run_id"] += [diagnosis.run_id] * len(stages)
        columns["window"] += [diagnosis.window] * len(stages)
        columns["stage"] += stages
        columns["position"] += range(len(stages))
        columns["in_routing_set"] += [stage in routed for stage in stages]
        columns["co_critical"] += [stage in tied for stage in stages]
        by_column: dict[str, Mapping[str, float] | None] = {
            "advance_ns": diagnosis.advances_ns,
            "carry_over_advance_ns": diagnosis.carry_over_advances_ns,
            "share": diagnosis.shares,
            "carry_over_share": diagnosis.carry_over_shares,
            "static_gain": diagnosis.static_gain,
            "excess": diagnosis.excess,
            "carry_over_excess": diagnosis.carry_over_excess,
            "takeover": diagnosis.takeover,
            "delta_ns": diagnosis.delta_ns,
        }
        for name, values in by_column.items():
            columns[name] += [None] * len(stages) if values is None else [values[stage] for stage in stages]
    return STAGES.arrow_columns(columns)


def encode(value: Diagnosis | Reference) -> str:
    """Return the JSON from which the value is restored exactly."""
    return _ENCODER.encode(value).decode()


def verdict_hash(text: str) -> int:
    """Return a hash of an encoded diagnosis, as a signed integer of 64 bits."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def decode_diagnosis(text: str) -> Diagnosis:
    """Restore a diagnosis.

    Raises:
        DamagedStoreError: another program wrote it.
    """
    return _decode(_DIAGNOSIS, text, "diagnosis", check_diagnosis)


def decode_reference(text: str) -> Reference:
    """Restore a reference.

    Raises:
        DamagedStoreError: another program wrote it.
    """
    return _decode(_REFERENCE, text, "reference", check_reference)


def _decode(decoder: msgspec.json.Decoder[T], text: str, kind: str, check: Callable[[T], None]) -> T:
    try:
        value = decoder.decode(text)
        check(value)
        return value
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError, GateError) as error:
        raise _damaged(kind, str(error)) from error


def _damaged(kind: str, why: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"a stored {kind} cannot be read ({why}): delete the store, which is built again from the packets"
    )
