"""Convert windows to packets: the sinks and groups behind ``sfapp.packets.sink.PacketSink``.

``transports.py`` has the table of transports, to which a new one is added; ``transport_group.py`` is the
interface that one implements. ``gather_sink.py`` is the sink of all local transports. ``gather_group.py``
(Gloo), ``nccl_gather_group.py`` and ``reduce_group.py`` combine the ranks' rows.
"""
