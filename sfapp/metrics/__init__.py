"""Metrics of a running job in files next to its packets: written, downsampled with age, and read."""

from sfapp.metrics.downsampling import downsampled
from sfapp.metrics.sample_files import (
    SUFFIX,
    SampleChunk,
    SampleFileHeader,
    find_folders,
    read_header,
    read_segment,
    segments_in,
)
from sfapp.metrics.sample_log import MetricsLog
from sfapp.metrics.step_pace import StepPaceCounter

__all__ = [
    "SUFFIX",
    "MetricsLog",
    "SampleChunk",
    "SampleFileHeader",
    "StepPaceCounter",
    "downsampled",
    "find_folders",
    "read_header",
    "read_segment",
    "segments_in",
]
