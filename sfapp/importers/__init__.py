"""Other tools' traces as packets: one module a format, each with ``read(paths, options) -> Imported``."""

from sfapp.importers.formats import FORMATS, Format, read_traces
from sfapp.importers.import_result import (
    Imported,
    ImportedWindow,
    ImportNote,
    NoteKind,
    Options,
    Written,
    write_imported,
)
from sfapp.importers.mapping import NO_MAPPING, Mapping, read_mapping

__all__ = [
    "FORMATS",
    "NO_MAPPING",
    "Format",
    "ImportNote",
    "Imported",
    "ImportedWindow",
    "Mapping",
    "NoteKind",
    "Options",
    "Written",
    "read_mapping",
    "read_traces",
    "write_imported",
]
