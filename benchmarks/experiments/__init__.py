"""Faults put into real training jobs on purpose, and what is said of them: the paper's tables made again.

``python -m benchmarks.experiments`` runs everything and writes docs/evidence; ``--small`` a short version.
"""
