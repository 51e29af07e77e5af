"""What a running job says of itself, in files beside its packets: written, thinned with age, read."""

from sfapp.metrics.log import MetricsLog
from sfapp.metrics.pace import Paces
from sfapp.metrics.segments import (
    SUFFIX,
    Chunk,
    Header,
    find_folders,
    read_header,
    read_segment,
    segments_in,
)
from sfapp.metrics.thin import thinned

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
