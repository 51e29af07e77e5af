"""Import other tools' traces as packets: one module per format, each with ``read(paths, options) ->
ImportResult``.

To add a format, write its module, add one entry to ``formats.IMPORT_FORMATS`` and one row to the table of
docs/traces.md. ``nccl_inspector`` is a short module to start from.
"""

from sfapp.importers.import_formats import IMPORT_FORMATS, Format, read_traces
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    NoteKind,
    WrittenFiles,
    write_imported,
)
from sfapp.importers.mapping import NO_MAPPING, Mapping, read_mapping

__all__ = [
    "IMPORT_FORMATS",
    "NO_MAPPING",
    "Format",
    "ImportNote",
    "ImportOptions",
    "ImportResult",
    "ImportedWindow",
    "Mapping",
    "NoteKind",
    "WrittenFiles",
    "read_mapping",
    "read_traces",
    "write_imported",
]
