"""Write the built-in examples as packets for the app and notebooks.

python assets/examples.py
"""

from __future__ import annotations

from pathlib import Path

from sfapp.model.examples import EXAMPLES
from sfapp.packets import packet_path, write_packet

FOLDER = Path(__file__).parent / "examples"


def main() -> None:
    """Write every example."""
    for run_id, example in EXAMPLES.items():
        write_packet(example.window(), packet_path(FOLDER, run_id, 0))


if __name__ == "__main__":
    main()
