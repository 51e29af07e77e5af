"""Typeset the PDF of a report, in a process that ``sfapp.report.pdf`` starts.

typst keeps what it has typeset in memory, over a gigabyte after a dozen reports: the end of the process gives
it back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typst

from sfapp.assets import assets
from sfapp.process_limits import limit_process

MEMORY_BYTES = 3 << 30
"""Limit of memory; 1,000 windows take 2 GB."""

OTHER_SCRIPTS = "--other-scripts"
"""Argument: use the fonts of this machine, too, for characters that ours lack."""


def template() -> bytes:
    """Return the layout of a report."""
    return (Path(__file__).parent / "report" / "templates" / "report.typ").read_bytes()


def fonts(other_scripts: bool = False) -> typst.Fonts:
    """Return our fonts and typst's, so that a report looks the same everywhere: Latin, Greek and Cyrillic.

    Args:
        other_scripts: as ``OTHER_SCRIPTS``.
    """
    return typst.Fonts(include_system_fonts=other_scripts, font_paths=[str(assets() / "fonts")])


def main() -> int:
    """Write the PDF of the data on standard input; return 1 with the reason if it cannot be typeset."""
    limit_process(MEMORY_BYTES)
    try:
        pdf = typst.compile(
            template(),
            sys_inputs={"report": sys.stdin.buffer.read().decode()},
            font_paths=fonts(OTHER_SCRIPTS in sys.argv),
            timestamp=0,
        )
    except typst.TypstError as error:
        sys.stderr.write(error.message)
        return 1
    sys.stdout.buffer.write(pdf)
    return 0


if __name__ == "__main__":
    sys.exit(main())
