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
from sfapp.storage.interruptible import RequestPool, waited_s
from sfapp.storage.local_storage import as_text
from sfapp.storage.locations import local_paths, location, path_in, resolved, resolved_file, storage_of
from sfapp.storage.object_path import ObjectPath
from sfapp.storage.object_writes import (
    ObjectVersion,
    create_object,
    delete_object,
    fetch_version,
    replace_version,
)
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
    "ObjectVersion",
    "PathKind",
    "RequestPool",
    "Storage",
    "StorageOptions",
    "StoragePath",
    "as_text",
    "create_object",
    "delete_object",
    "fetch_version",
    "local_paths",
    "location",
    "path_in",
    "redacted",
    "replace_version",
    "resolved",
    "resolved_file",
    "storage_of",
    "waited_s",
]
