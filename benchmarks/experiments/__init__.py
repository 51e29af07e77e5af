"""Faults put into real training jobs on purpose, and what is said of them.

``python -m benchmarks.experiments`` makes the paper's tables again, ``--plan waits`` tests what sfapp adds
for ranks that are slow inside waiting stages; both write docs/evidence. ``--small`` runs a short version.
"""
