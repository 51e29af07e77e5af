"""Inject faults into real training jobs, and compare the verdicts with them.

``python -m benchmarks.experiments`` reproduces the paper's tables, ``--plan waits`` tests ranks that are slow
inside waiting stages; both write docs/evidence. ``--small`` runs a short version.
"""
