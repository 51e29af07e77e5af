"""Samples cross processes and files as JSON or MessagePack, and say what each of their fields means."""

from __future__ import annotations

import msgspec
import pytest

from sfapp.model.samples import (
    SAMPLES,
    SUBJECTS,
    AnySample,
    GpuSample,
    NodeSample,
    PaceSample,
    ProcessSample,
    Sample,
    sample_fields,
)

EXAMPLES: tuple[AnySample, ...] = (
    NodeSample(at_ns=1, node_rank=0, hostname="a", cpu_percent=3.5),
    GpuSample(at_ns=1, node_rank=0, gpu=1, throttle_reasons=("sw_power_cap",)),
    ProcessSample(at_ns=1, node_rank=0, rank=3, threads=4),
    PaceSample(at_ns=1, node_rank=0, rank=3, step=9, steps=2, wall_mean_ns=1.5, wall_max_ns=2),
)


@pytest.mark.parametrize("sample", EXAMPLES, ids=lambda sample: type(sample).__name__)
@pytest.mark.parametrize("format", [msgspec.json, msgspec.msgpack])
def test_a_sample_comes_back_as_the_kind_it_was(sample: AnySample, format: object) -> None:
    assert format.decode(format.encode(sample), type=AnySample) == sample


@pytest.mark.parametrize(
    "text",
    [
        b'{"kind":"pace","at_ns":1,"node_rank":0,"rank":0,"step":1,"steps":0,"wall_mean_ns":1,"wall_max_ns":1}',
        b'{"kind":"process","at_ns":1,"node_rank":0,"rank":-1}',
        b'{"kind":"process","at_ns":1,"node_rank":4294967296,"rank":1}',
        b'{"kind":"process","at_ns":9223372036854775808,"node_rank":0,"rank":1}',
        b'{"kind":"process","at_ns":1,"node_rank":0,"rank":1,"rss_bytes":-5}',
        b'{"kind":"node","at_ns":1,"node_rank":0,"hostname":"' + b"x" * 2000 + b'"}',
        b'{"kind":"node","at_ns":1,"node_rank":0,"hostname":5}',
        b'{"kind":"other","at_ns":1,"node_rank":0}',
    ],
)
def test_what_a_column_could_not_hold_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=AnySample)


def test_a_field_that_a_newer_version_added_is_passed_over() -> None:
    text = b'{"kind":"process","at_ns":1,"node_rank":0,"rank":1,"colour":"red"}'
    assert msgspec.json.decode(text, type=AnySample) == ProcessSample(at_ns=1, node_rank=0, rank=1)


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_field_has_a_meaning_and_an_aggregation(kind: type[Sample]) -> None:
    fields = sample_fields(kind)
    assert tuple(fields) == kind.__struct_fields__
    assert all(meaning for meaning, _ in fields.values())
    assert set(SUBJECTS[kind]) <= set(fields)
