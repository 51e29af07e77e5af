"""The query layer of every surface: open packets, judge a window, compare, follow a live run, find the
operator behind a verdict, edit notes and incidents. It imports neither NiceGUI nor click.

``workspace`` uses a store; ``packet_evidence`` and ``packet_windows`` use only files.
"""
