"""How windows become packets: the sinks and groups behind ``sfapp.packets.sink.PacketSink``.

``transports.py`` has the table of transports and is where one is added; ``transport_group.py`` is what one
implements. ``gather_sink.py`` is the sink of all local transports. ``gather_group.py`` (Gloo),
``nccl_gather_group.py`` and ``reduce_group.py`` bring the ranks' rows together.
"""
