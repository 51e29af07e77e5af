"""Measure how often verdicts are right, on simulated jobs with known faults."""
