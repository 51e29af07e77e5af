"""What a running job says of itself, in files beside its packets: written, thinned with age, read."""

from sfapp.metrics.downsampling import thinned
from sfapp.metrics.sample_files import (
    SUFFIX,
    Chunk,
    Header,
    find_folders,
    read_header,
    read_segment,
    segments_in,
)
from sfapp.metrics.sample_log import MetricsLog
from sfapp.metrics.step_pace import Paces

__all__ = [
    "SUFFIX",
    "Chunk",
    "Header",
    "MetricsLog",
    "Paces",
    "find_folders",
    "read_header",
    "read_segment",
    "segments_in",
    "thinned",
]
