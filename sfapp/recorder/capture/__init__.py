"""Capture a profiler trace of a few steps of a running job, on request or automatically (docs/capture.md)."""
