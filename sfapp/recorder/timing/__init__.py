"""Measure stage durations on the training thread: the timers, compiled or not, and their context managers."""
