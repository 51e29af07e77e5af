"""The Data tab: where the window comes from, what its packet says of itself, and everything as files."""

from __future__ import annotations

from sfapp.app.panels.plot_card import Reactions
from sfapp.app.panels.tables import data_table, titled
from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.theme import box, label_text, link
from sfapp.views import tables
from sfapp.views.address import window_page
from sfapp.views.tables import TableColumn

SOURCE_COLUMNS = (
    TableColumn("path", "packet file"),
    TableColumn("size", "size", text="size_text"),
    TableColumn("sha256", "SHA-256"),
)
MANIFEST_COLUMNS = (TableColumn("key", "manifest"), TableColumn("value", ""))


def data_block(scene: TabViewModel, _: Reactions) -> None:
    """Downloads, packet files and manifest."""
    path = window_page(scene.judged.source.key)
    with box("stack"):
        said = "the verdict under the view's gates, and the tables of this window"
        with titled("As files", said), box("links"):
            link("diagnosis.json", scene.view.href(f"{path}.json"))
            for name in ("stages", "ranks", "steps"):
                link(f"{name}.csv", scene.view.href(f"{path}/{name}.csv"))
            label_text("anything that reads Parquet reads the packets themselves", "span", "muted")
        with titled("Packets", "the files this window was read from"):
            data_table(SOURCE_COLUMNS, tables.source_rows(scene.judged.source.packets), "path")
        with titled("Manifest", "what the recorder wrote down"):
            data_table(MANIFEST_COLUMNS, tables.manifest_rows(scene.window.manifest), "key")
