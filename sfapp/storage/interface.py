"""Interface of what holds packets, and what it reports of files: size, modification time, content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar

from sfapp.errors import PacketError
from sfapp.storage.object_path import ObjectPath

StoragePath: TypeAlias = Path | ObjectPath
"""Path of a file or folder that holds packets."""

PathKind: TypeAlias = Literal["file", "folder"]

PathT = TypeVar("PathT", Path, ObjectPath)

TailCheck: TypeAlias = Callable[[bytes], str]
"""Function that returns why a file with these last bytes cannot be used; empty if it can."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Size and modification time, which identify a file's state without reading it."""

    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class FoundFile:
    """File to read.

    Attributes:
        name: its path as text; bytes that are not UTF-8 are escaped.
    """

    path: StoragePath
    name: str
    stamp: FileStamp

    @property
    def is_nameable(self) -> bool:
        return self.name == str(self.path)


@dataclass(frozen=True, slots=True)
class FileContent:
    """Content of a file; the bytes are None if the file is too large to be read, or was not read.

    Attributes:
        sha256: of the file, in hex; empty if the file was not read.
        mtime_ns: modification time, ns since 1970.
        fault: why the rest of a file was not read, as its end shows.
    """

    data: bytes | None
    size: int
    sha256: str
    mtime_ns: int
    fault: str = ""


@dataclass(frozen=True, slots=True)
class FolderListing:
    """Files below a folder, in any order.

    Attributes:
        is_complete: whether all files are listed, so that a file that is not has been removed.
        unseen: folders and files that exist but could not be looked at, by name, and why; nothing is known
            of what is there.
    """

    files: tuple[FoundFile, ...]
    is_complete: bool
    unseen: Mapping[str, str] = field(default_factory=dict)


class FolderFollower(ABC):
    """Search for the files below one folder that is repeated, so that it may list new files only."""

    @abstractmethod
    def look(self, *, everything: bool) -> FolderListing:
        """List files.

        Args:
            everything: list all files; otherwise, new ones may be enough.
        """


class Storage(ABC, Generic[PathT]):
    """Files and folders of one kind of storage. Safe to use from several threads.

    Attributes:
        readers: number of files that are worth reading at the same time.
        is_remote: whether each request takes time and costs money, and no notification reports a change.
    """

    readers: int
    is_remote: bool

    @abstractmethod
    def kind(self, path: PathT) -> PathKind | None:
        """Return whether a path is a file or a folder; None if there is neither.

        Raises:
            StorageError: the storage cannot be reached; the same holds for the other methods.
        """

    @abstractmethod
    def files_below(self, folder: PathT, suffix: str) -> Iterator[FoundFile]:
        """Yield every file below a folder whose name ends so, in any order.

        Files and folders whose name starts with a dot are left out.
        """

    @abstractmethod
    def follower(self, folder: PathT, suffix: str) -> FolderFollower:
        """Return a repeated search for the files of ``files_below``."""

    @abstractmethod
    def names_in(self, folder: PathT, stem: str = "") -> list[str]:
        """Return the names of the files directly in a folder, or of those that begin with ``<stem>.``."""

    @abstractmethod
    def found(self, path: PathT) -> FoundFile | None:
        """Return a file with its stamp; None if there is none."""

    def is_there(self, path: PathT) -> bool:
        """Return whether there is a file, also one to which access is refused."""
        return self.found(path) is not None

    @abstractmethod
    def fetch(self, path: PathT, most_bytes: int, check_tail: TailCheck) -> FileContent:
        """Return a file's bytes and their hash, without the bytes if it is larger than the limit.

        Args:
            check_tail: examines the end of a large remote file, so that the rest is fetched only if useful.

        Raises:
            PacketError: it cannot be read, or is no regular file.
            StorageError: the storage cannot be reached.
        """

    @abstractmethod
    def read_small(self, path: PathT, most_bytes: int) -> bytes:
        """Return the content of a small file.

        Raises:
            OSError: it cannot be read, or is larger than the limit.
        """

    def fetch_ahead(
        self, paths: Iterable[PathT], most_bytes: int, check_tail: TailCheck
    ) -> Iterator[FileContent | PacketError]:
        """Yield the content of each file in order, or why it cannot be read.

        Raises:
            StorageError: as ``fetch``.
        """
        for path in paths:
            try:
                yield self.fetch(path, most_bytes, check_tail)
            except PacketError as error:
                yield error
