"""A report made in a real browser is downloaded, and opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/10?gamma_a=0.6"


REPORTS = (
    ("PDF", "sfapp-gpt-small-ddp-window-10.pdf", b"%PDF-"),
    ("HTML", "sfapp-gpt-small-ddp-window-10.html", b"<!doctype html>"),
)
"""Formats as the dialog names them, with the name of the file and how it begins."""


def test_reports_are_downloaded(page: Page, tmp_path: Path) -> None:
    page.goto(SICK)
    expect(page.locator(".panels .main-svg").first).to_be_visible()
    for shown, name, begins in REPORTS:
        # When a report is asked for, by key
        page.keyboard.press("r")
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("radio", name=shown).click()
        with page.expect_download() as download:
            dialog.get_by_role("button", name="Create report").click()
        # Then the browser downloads it, under a name of its own
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
        expect(dialog.get_by_role("status")).to_contain_text(f"Done: {name}")
        content = (tmp_path / name).read_bytes()
        assert content.lstrip().lower().startswith(begins.lower())
        # And it says what the page says, the moved gate included
        if shown == "HTML":
            assert "γA 0.6 (default 0.4)" in content.decode()
            assert "callbacks on rank 3" in content.decode()
        page.keyboard.press("Escape")
        expect(dialog).not_to_be_visible()
