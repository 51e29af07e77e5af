"""Record an unmodified training script (``sfapp run``).

``python -P -m sfapp.recorder.auto [--out DIR] [--run-id ID] [--window-steps N] [--no-between]
[--event-fraction F] [-m] SCRIPT [ARGS]`` runs a script as Python would and records it, on each rank under
torchrun.
"""
