"""Write a report as Markdown with its plots as SVG files, for GitHub and similar viewers.

All text from users and files is escaped, so that it is never read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sfapp.report.captions import caption
from sfapp.report.parts import CollectedPlot, Remark, Report, ReportComparison, Section
from sfapp.report.plots import ReportPlot
from sfapp.report.svg import to_svg
from sfapp.terminal import without_controls
from sfapp.views import format

_MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_AT_THE_START = re.compile(
    r"^(?:#{1,6}(?=\s|$)|[-+](?=\s|$)|-(?=-*\s*$)|=(?==*\s*$)|(\d{1,9})(?=[.)](?:\s|$)))"
)
_AT_THE_END = re.compile(r"(?<=\s)#+$")
# Text that viewers turn into links or images automatically.
_ADDRESS = re.compile(
    r"(?i)(?:(?<=\bwww)(?=\.)|(?<=http)(?=://)|(?<=https)(?=://)|(?<=ftp)(?=://)|:(?=[\w+-]+:))"
)
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_BREAKS = re.compile(r"[\t\n\r\x85\u2028\u2029]+")


def to_markdown(report: Report, folder: str) -> tuple[str, Mapping[str, str]]:
    """Return the text, and its drawings by file name.

    Args:
        folder: folder of the drawings, next to the text.
    """
    drawings: dict[str, str] = {}
    blocks = [*_head(report)]
    for part in report.parts:
        if isinstance(part, Section):
            blocks += _window(part, folder, drawings)
        elif isinstance(part, CollectedPlot):
            seen = f" · {part.seen}" if part.seen else ""
            blocks.append(f"## {shown(f'{part.run_id} · window {part.window}{seen}')}")
            blocks += _plot(part.plot, folder, drawings)
        elif isinstance(part, ReportComparison):
            blocks += _compared(part, folder, drawings)
        elif isinstance(part, Remark):
            blocks.append(_note(part))
        else:
            blocks.append(shown(part.reason))
    blocks += ["## Reproduce", _code(report.command)]
    return "\n\n".join(blocks) + "\n", drawings


def shown(text: str) -> str:
    """Return text as one line with all markup escaped, and nothing more."""
    line = without_controls(_BREAKS.sub(" ", text)).strip()
    escaped = _MARKUP.sub(r"\\\g<0>", line)
    escaped = _ADDRESS.sub(r"\\\g<0>", escaped)
    escaped = _AT_THE_END.sub(r"\\\g<0>", escaped)
    found = _AT_THE_START.match(escaped)
    if found:
        kept = found[1] or ""
        escaped = f"{kept}\\{escaped[len(kept) :]}"
    return escaped.translate(_ENTITIES)


def lines(text: str) -> str:
    """Return text with each line escaped and its line breaks kept."""
    return "\\\n".join(shown(line) for line in text.splitlines()) or ""


def _code(text: str) -> str:
    """Return a line of code in a fence that its content cannot close."""
    line = without_controls(_BREAKS.sub(" ", text))
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{line}\n{fence}"


def _head(report: Report) -> Iterator[str]:
    windows = report.of(Section)
    yield f"# {shown(report.title)}"
    yield f"{format.counted(len(windows), 'window')} · sfapp {shown(report.version)}"
    if report.facts:
        yield table(("", ""), [(name, value) for name, value in report.facts])
    if report.summary:
        yield lines(report.summary)
    for line in report.problem_lines:
        yield f"**{shown(line)}**"
    if windows:
        rows = [(f"{section.run_id} / {section.window}", section.verdict.sentence) for section in windows]
        yield table(("window", "verdict"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts; headings may be empty."""
    lines = [head, ["---"] * len(head), *([shown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _window(section: Section, folder: str, drawings: dict[str, str]) -> Iterator[str]:
    verdict = section.verdict
    yield f"## {shown(f'{section.run_id} · window {section.window} · {section.size}')}"
    place = f" {shown(verdict.place)}" if verdict.place else ""
    yield f"{shown(verdict.kicker)}: **{shown(verdict.headline)}**{place}"
    action = f" **{shown(verdict.action)}**" if verdict.action else ""
    yield shown(" ".join((*verdict.explanation, *verdict.reasons))) + action
    yield " · ".join(shown(chip.text) for chip in verdict.chips)
    evidence = " · ".join(f"{line.mark} {line.title}" for line in verdict.evidence)
    rows = [("problem", line) for line in section.problem_lines]
    rows += [
        (number.title.lower(), f"{number.value} {number.note}")
        for number in verdict.numbers
        if number.title.lower() != "evidence"
    ]
    rows += [
        ("evidence", f"{verdict.evidence_summary}: {evidence}"),
        ("what if", section.what_if),
        ("why", " ".join(verdict.why)),
        ("limitations", " ".join(verdict.unknown)),
    ]
    yield table(("", ""), [(name, value) for name, value in rows if value])
    for plot in section.plots:
        yield from _plot(plot, folder, drawings)
    judged = [
        ("thresholds", ", ".join(section.gates) if section.gates else "all at their defaults"),
        ("frontier", section.frontier),
        ("baseline", section.baseline),
        ("compared with", section.reference),
        *(("packet", f"{packet.name} sha256 {packet.sha256}") for packet in section.packets),
    ]
    yield table(("", ""), judged)


def _compared(part: ReportComparison, folder: str, drawings: dict[str, str]) -> Iterator[str]:
    text = part.text
    yield f"## {shown(part.title)}"
    rest = f" {shown(text.rest)}" if text.rest else ""
    yield f"{shown(text.kicker)}: **{shown(text.headline)}**{rest}"
    yield shown(" ".join(text.explanation))
    rows = [(number.title, f"{number.value} {number.note}") for number in text.numbers]
    rows += [("labels", " · ".join(label.text for label in text.labels))] if text.labels else []
    rows += [("caveat", caveat) for caveat in text.caveats]
    yield table(("", ""), rows)
    yield table([shown(title) for title in part.head], part.rows)
    for plot in part.plots:
        yield from _plot(plot, folder, drawings)
    yield table(("", ""), [("packet", f"{one.name} sha256 {one.sha256}") for one in part.packets])


def _plot(plot: ReportPlot, folder: str, drawings: dict[str, str]) -> Iterator[str]:
    name = f"{len(drawings) + 1:02d}-{plot.name.replace('_', '-')}.svg"
    drawings[name] = to_svg(plot.light)
    words = caption(plot)
    yield f"### {shown(words.title)}"
    if words.subtitle:
        yield shown(words.subtitle)
    yield f"![{shown(words.alt)}](<{_address(folder)}/{name}>)"
    yield shown(words.below)


def _address(folder: str) -> str:
    """Return a folder's name, escaped for a URL in angle brackets."""
    kept = re.sub(r"[^\w.\- ]", lambda found: _percent_encoded(found[0]), folder)
    return kept.replace(" ", "%20")


def _percent_encoded(letter: str) -> str:
    """Return a letter as in a URL; a byte of a file's name that is not UTF-8 stays that byte."""
    return "".join(f"%{byte:02X}" for byte in letter.encode(errors="surrogateescape"))


def _note(remark: Remark) -> str:
    blocks = [lines(remark.text)]
    if remark.pinned:
        blocks.insert(0, f"**{shown(remark.heading)}**")
    blocks += [f"Written at the same time: {lines(lost)}" for lost in remark.overwritten]
    blocks.append(f"— {shown(remark.signed)}")
    return "\n".join(f"> {line}".rstrip() for line in "\n\n".join(blocks).split("\n"))
