"""What all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

# Tests build windows with tests/builders.py wherever pytest was started from.
sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("sfapp", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("sfapp")
