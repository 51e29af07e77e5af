"""The Data tab: downloads, packet files and the manifest of a window."""

from __future__ import annotations

from sfapp.app.panels.plot_card import Reactions
from sfapp.app.panels.tables import data_table, titled
from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.theme import box, label_text, link
from sfapp.views import tables
from sfapp.views.address import window_page
from sfapp.views.table_columns import TableColumn

SOURCE_COLUMNS = (
    TableColumn("path", "Packet file"),
    TableColumn("size", "Size", text="size_text"),
    TableColumn("sha256", "SHA-256"),
)
MANIFEST_COLUMNS = (TableColumn("key", "Field"), TableColumn("value", "Value"))


def data_block(model: TabViewModel, _: Reactions) -> None:
    """Build the downloads and the tables of packet files and of the manifest."""
    path = window_page(model.judged.source.key)
    with box("stack"):
        subtitle = "the verdict under the current view, and the tables of this window"
        with titled("Downloads", subtitle), box("links"):
            link("diagnosis.json", model.view.href(f"{path}.json"))
            for name in ("stages", "ranks", "steps"):
                link(f"{name}.csv", model.view.href(f"{path}/{name}.csv"))
            label_text("The packets are Parquet files.", "span", "muted")
        with titled("Packets", "the files of this window"):
            data_table(SOURCE_COLUMNS, tables.source_rows(model.judged.source.packets), "path")
        with titled("Manifest", "metadata written by the recorder"):
            data_table(MANIFEST_COLUMNS, tables.manifest_rows(model.window.manifest), "key")
