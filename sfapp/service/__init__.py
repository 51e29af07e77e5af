"""What every surface asks: open packets, judge a window, compare, follow a live run, find the operator behind
a verdict, edit notes and incidents. Free of NiceGUI and click.

``workspace`` answers from a store; ``packet_evidence`` and ``packet_windows`` answer from files alone.
"""
