"""The dialog that creates a report in a chosen format, shows its progress and downloads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from nicegui import background_tasks, ui

from sfapp.app.theme import box, label_text, with_keys
from sfapp.errors import SfappError
from sfapp.report import REPORT_FORMATS
from sfapp.report.workspace_report import CancelledReportError, ReportMaker, ReportOptions, ReportProgress
from sfapp.views import format

AT_ONCE = 2
"""Maximum number of reports that are created at the same time; others wait. Each may take minutes."""

_threads = ThreadPoolExecutor(AT_ONCE, "sfapp-reports")
"""Threads of their own: pages need those of the event loop."""


def report_button(what: str, make: Callable[[], ReportMaker]) -> ui.element:
    """Build a button and the dialog that it opens, inside the current container.

    Args:
        what: names the subject of the report.
        make: returns the function that creates the report for the current view.
    """
    dialog = ReportDialog(what, make)
    button = with_keys(label_text("Create report…", "button", "key"), "r", f"Create a report on {what}")
    return button.on("click", dialog.open).mark("report")


class ReportDialog:
    """A dialog that creates reports. It is built closed, inside the current container."""

    def __init__(self, what: str, make: Callable[[], ReportMaker]) -> None:
        """
        Args:
            what: names the subject of the report.
            make: returns the function that creates the report for the current view.
        """
        self._make = make
        self._progress: ReportProgress | None = None
        with (
            ui.dialog().props("aria-label='Create a report'").on("hide", self.cancel) as self._dialog,
            box("sheet report"),
        ):
            label_text(f"Report on {what}", "h2")
            purposes = {ending: each.purpose for ending, each in REPORT_FORMATS.items()}
            self._format = ui.radio(purposes, value=".html")
            self._format.props("dense").mark("report-format")
            self._redact = ui.checkbox("Hide the names of runs and hosts").props("dense")
            self._redact.mark("report-redact")
            label_text("Replaced by pseudonyms, also in notes and titles.", "p", "hint")
            with box("report-state") as state:
                state.props["role"] = "status"
                self._spinner = ui.spinner(size="18px")
                self._message = label_text("", "span").mark("report-message")
            with box("actions"):
                self._start = self._button("Create report", self.start, "primary").mark("report-start")
                self._cancel = self._button("Cancel", self.cancel).mark("report-cancel")
                self._close = self._button("Close", self._dialog.close)
            self._timer = ui.timer(0.1, self._show_progress, active=False)
        self._show(working=False, message="")
        ui.context.client.on_delete(self.cancel)

    def open(self) -> None:
        """Open the dialog."""
        self._show(working=False, message="")
        self._dialog.open()

    def start(self) -> None:
        """Create the report on a thread, then download it."""
        if self._progress is not None:
            return
        self._progress = ReportProgress()
        self._show(working=True, message="Starting")
        options = ReportOptions(str(self._format.value), bool(self._redact.value))
        background_tasks.create(self._work(self._make(), options, self._progress), context=self._dialog)

    def cancel(self) -> None:
        """Cancel the report being created; it ends after its current step."""
        if self._progress is not None:
            self._progress.cancel()

    async def _work(self, make: ReportMaker, options: ReportOptions, progress: ReportProgress) -> None:
        message = "Cancelled"
        try:
            loop = asyncio.get_running_loop()
            name, content = await loop.run_in_executor(_threads, make, options, progress)
            with suppress(CancelledReportError):
                progress.report("downloading")
                ui.download.content(content, name)
                message = f"Done: {name}, {format.size(len(content))}"
        except CancelledReportError:
            pass
        except SfappError as error:
            message = f"Failed: {error}"
        finally:
            self._progress = None
            self._show(working=False, message=message)

    def _show_progress(self) -> None:
        if self._progress is not None:
            self._message.text = self._progress.activity or "Waiting for other reports"

    def _show(self, working: bool, message: str) -> None:
        self._timer.active = working
        self._spinner.set_visibility(working)
        self._cancel.set_visibility(working)
        self._close.set_visibility(not working)
        for element in (self._format, self._redact):
            element.set_enabled(not working)
        self._start.set_visibility(not working)
        self._message.text = message

    @staticmethod
    def _button(title: str, pressed: Callable[[], object], classes: str = "plain") -> ui.element:
        return with_keys(label_text(title, "button", classes), label=title).on("click", pressed)
