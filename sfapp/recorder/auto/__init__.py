"""Recording a training script that knows nothing of it (``sfapp run``).

``python -m sfapp.recorder.auto [--out DIR] [--run-id ID] [--window-steps N] [-m] SCRIPT [ARGS]``
runs a script
as Python would, and records it; under torchrun, each rank does.
"""
