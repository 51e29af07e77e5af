"""The parts of a window page."""
