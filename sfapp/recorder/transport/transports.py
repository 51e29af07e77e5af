"""The transports that convert a recorder's windows to packets. To add one, implement it and enter it here.

A transport that combines the ranks' rows on rank 0 implements ``TransportGroup`` and has an entry in
``TRANSPORTS``, under its name in ``Recorder(gather=…)``. ``reduce_group.py`` is an example over
torch.distributed, ``tests/recorder/thread_transport.py`` one without it. A transport that sends windows
elsewhere implements ``sfapp.packets.sink.PacketSink`` and is selected in ``open_sink``, by the recorder's
argument ``stream``. Only a sink outside ``sfapp/recorder`` is registered in ``sfapp/__init__.py`` like the
stream, because the recorder may not import it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, get_args

from sfapp.errors import MissingExtraError
from sfapp.packets.output import PacketOutput
from sfapp.packets.sink import STREAM_VARIABLE, PacketSink
from sfapp.recorder.transport.gather_group import GatherGroup
from sfapp.recorder.transport.gather_sink import GatherSink
from sfapp.recorder.transport.nccl_gather_group import NcclGatherGroup
from sfapp.recorder.transport.reduce_group import ReduceGroup
from sfapp.recorder.transport.transport_group import Transport
from sfapp.sink_registry import STREAM, sink_factory

GatherMode = Literal["gloo", "nccl", "reduce", "local"]
"""Names of the transports, for type checkers, which cannot derive them from ``TRANSPORTS``."""

TRANSPORTS: Mapping[GatherMode, Transport] = {
    "gloo": Transport("gather all rows on rank 0 over Gloo", GatherGroup),
    "nccl": Transport("gather all rows on rank 0 over NCCL, on the training thread", NcclGatherGroup),
    "reduce": Transport("reduce to the frontier and a few ranks' rows over Gloo", ReduceGroup),
    "local": Transport("write every rank's rows as a part, which readers assemble", None),
}

if set(TRANSPORTS) != set(get_args(GatherMode)):
    raise AssertionError(f"GatherMode and TRANSPORTS differ: {set(TRANSPORTS) ^ set(get_args(GatherMode))}")


def open_sink(stream: Any, max_pending: int, output: PacketOutput) -> PacketSink:
    """Return the sink for the ``stream`` argument or else ``SFAPP_STREAM``, and start its output.

    Raises:
        MissingExtraError: a stream is requested and pyzmq is not installed.
        StreamError: the address or the keys cannot be used.
    """
    if stream is None and not os.environ.get(STREAM_VARIABLE):
        local = GatherSink(max_pending)
        output.start(local.failures.append)
        return local
    try:
        sink = sink_factory(STREAM)(stream, partial(GatherSink, 1))
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            f"to stream, the recorder needs {missing.name}: pip install 'sfapp[stream]'"
        ) from None
    output.start(sink.failures.append, is_held=True)  # The stream may read its parts again.
    return sink
