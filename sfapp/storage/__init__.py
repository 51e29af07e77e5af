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
from sfapp.storage.object_path import ObjectPath
from sfapp.storage.storage_address import HIDDEN, redacted
from sfapp.storage.storage_options import StorageOptions

__all__ = [
    "HIDDEN",
    "FileContent",
    "FileStamp",
    "FolderFollower",
    "FolderListing",
    "FoundFile",
    "ObjectPath",
    "PathKind",
    "Storage",
    "StorageOptions",
    "StoragePath",
    "as_text",
    "local_paths",
    "location",
    "path_in",
    "redacted",
    "resolved",
    "storage_of",
]
