"""Make a report: pick a format, see how far it is, have it downloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from nicegui import background_tasks, ui

from sfapp.app.theme import box, label_text, with_keys
from sfapp.errors import SfappError
from sfapp.report import FORMATS
from sfapp.report.workspace_report import CancelledReportError, ReportMaker, ReportOptions, ReportProgress
from sfapp.views import format

FORMAT_WORDS = {
    ".html": "HTML: one file with plots to work with; opens anywhere, asks for nothing",
    ".pdf": "PDF: to print and to file",
    ".md": "Markdown: text with drawings beside it, for an issue or a wiki (a ZIP)",
    ".ipynb": "Notebook: computes everything again from the packets",
    ".json": "JSON: to import elsewhere, and for other tools",
}
"""What each format is good for."""


def report_button(what: str, make: Callable[[], ReportMaker]) -> ui.element:
    """A button that opens the dialog; both in the current container.

    Args:
        what: is reported on, in words.
        make: gives the maker of the report on what is looked at now.
    """
    dialog = ReportDialog(what, make)
    button = with_keys(label_text("report…", "button", "key"), "r", f"make a report on {what}")
    return button.on("click", dialog.open).mark("report")


class ReportDialog:
    """A dialog that makes reports. Built closed, inside the current container."""

    def __init__(self, what: str, make: Callable[[], ReportMaker]) -> None:
        """Build it.

        Args:
            what: is reported on, in words.
            make: gives the maker of the report on what is looked at now.
        """
        self._make = make
        self._progress: ReportProgress | None = None
        with ui.dialog().on("hide", self.cancel) as self._dialog, box("sheet report"):
            label_text(f"Report on {what}", "h2")
            self._format = ui.radio({ending: FORMAT_WORDS[ending] for ending in FORMATS}, value=".html")
            self._format.props("dense").mark("report-format")
            self._redact = ui.checkbox("hide the names of runs and hosts").props("dense")
            self._redact.mark("report-redact")
            label_text("Pseudonyms stand in for them everywhere, in notes and titles too.", "p", "hint")
            with box("report-state") as state:
                state.props["role"] = "status"
                self._spinner = ui.spinner(size="18px")
                self._said = label_text("", "span").mark("report-said")
            with box("actions"):
                self._start = self._button("make report", self.start, "primary").mark("report-start")
                self._cancel = self._button("cancel", self.cancel).mark("report-cancel")
                self._close = self._button("close", self._dialog.close)
            self._timer = ui.timer(0.1, self._show_progress, active=False)
        self._show(working=False, said="")

    def open(self) -> None:
        """Ask what to make."""
        self._show(working=False, said="")
        self._dialog.open()

    def start(self) -> None:
        """Make it beside the event loop, then let the browser download it."""
        if self._progress is not None:
            return
        self._progress = ReportProgress()
        self._show(working=True, said="starting")
        wish = ReportOptions(str(self._format.value), bool(self._redact.value))
        background_tasks.create(self._work(self._make(), wish, self._progress), context=self._dialog)

    def cancel(self) -> None:
        """Nobody wants it any more; what is being done ends at its next step."""
        if self._progress is not None:
            self._progress.cancel()

    async def _work(self, make: ReportMaker, wish: ReportOptions, progress: ReportProgress) -> None:
        said = "cancelled"
        try:
            name, content = await asyncio.to_thread(make, wish, progress)
            with suppress(CancelledReportError):
                progress.report("downloading")
                ui.download.content(content, name)
                said = f"done: {name}, {format.size(len(content))}"
        except CancelledReportError:
            pass
        except SfappError as error:
            said = f"failed: {error}"
        finally:
            self._progress = None
            self._show(working=False, said=said)

    def _show_progress(self) -> None:
        if self._progress is not None:
            self._said.text = self._progress.activity or "starting"

    def _show(self, working: bool, said: str) -> None:
        self._timer.active = working
        self._spinner.set_visibility(working)
        self._cancel.set_visibility(working)
        self._close.set_visibility(not working)
        for element in (self._format, self._redact):
            element.set_enabled(not working)
        self._start.set_visibility(not working)
        self._said.text = said

    @staticmethod
    def _button(said: str, pressed: Callable[[], object], classes: str = "plain") -> ui.element:
        return with_keys(label_text(said, "button", classes), label=said).on("click", pressed)
