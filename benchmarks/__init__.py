"""Measure every speed that sfapp claims, as a ratio to a yardstick measured in the same run."""
