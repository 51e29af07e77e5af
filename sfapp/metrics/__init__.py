"""What a running job says of itself, in files beside its packets: written, thinned with age, read."""

from sfapp.metrics.log import MetricsLog
from sfapp.metrics.pace import Paces
from sfapp.metrics.segments import Chunk, Header, find_segments, read_segment
from sfapp.metrics.thin import thinned

__all__ = ["Chunk", "Header", "MetricsLog", "Paces", "find_segments", "read_segment", "thinned"]
