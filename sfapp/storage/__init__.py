"""Where packets are: one interface, and what implements it."""

from sfapp.storage.interface import (
    FileContent,
    FileStamp,
    FolderFollower,
    FolderListing,
    FoundFile,
    PathKind,
    Storage,
    StoragePath,
)
from sfapp.storage.local_storage import as_text
from sfapp.storage.locations import local_paths, location, path_in, resolved, storage_of

__all__ = [
    "FileContent",
    "FileStamp",
    "FolderFollower",
    "FolderListing",
    "FoundFile",
    "PathKind",
    "Storage",
    "StoragePath",
    "as_text",
    "local_paths",
    "location",
    "path_in",
    "resolved",
    "storage_of",
]
