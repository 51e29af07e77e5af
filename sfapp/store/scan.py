"""Find the files below the roots, and those whose present state is not in the store."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sfapp.files import bounded
from sfapp.packets.attempts import RESTARTS_FILE
from sfapp.packets.paths import SUFFIX, VERDICTS_SUFFIX, by_kind, events_stem, find_files, sorted_files
from sfapp.storage import FileStamp, FolderFollower, FoundFile, PathKind, StoragePath, storage_of

BATCH_FILES = 128
BATCH_BYTES = 32 * 2**20
"""Limits of a batch, which is read, diagnosed and committed together.

They spread the cost of a transaction over many files, and leave one or two windows of 16,384 ranks in a
batch: packets take some three times their size in memory."""

LEAST_BATCH_FILES, TAPER = 16, 4
"""Minimum number of files in a tapered batch, which has a quarter of the remaining files: each batch costs a
commit."""

REMOTE_LOOK_S = 4.0
"""Least seconds between two looks at a bucket, whose requests cost money."""


@dataclass(frozen=True, slots=True)
class RootListing:
    """Files at or below one root.

    Attributes:
        root: the root's path as text.
        is_complete: whether a file that is not listed has been removed. It may still exist if the root is
            absent, for example an unmounted share, or if only new files were listed.
        unseen: folders and files that exist but could not be looked at: what is there may still exist.
    """

    root: str
    packets: Sequence[FoundFile] = ()
    operators: Sequence[FoundFile] = ()
    is_complete: bool = False
    verdicts: Sequence[FoundFile] = ()
    unseen: Collection[str] = ()

    @property
    def unknown(self) -> Collection[str]:
        """Return the names below which a file that is not listed may still exist."""
        return self.unseen if self.is_complete else (self.root,)


class FollowedRoot:
    """Root whose files are listed again and again; one call at a time.

    Attributes:
        fault: why the root could not be listed at the last look; empty if it could.
    """

    def __init__(self, root: StoragePath) -> None:
        self.root = root
        self.fault = ""
        self._next_look = 0.0
        self._follower: FolderFollower | None = None
        self._kind: PathKind | None = None

    def look(self, *, everything: bool = True) -> RootListing:
        """List the files, reading none.

        Args:
            everything: list all files; otherwise, new ones may be enough.
        """
        storage = storage_of(self.root)
        if storage.is_remote and not everything:
            now = time.monotonic()
            if now < self._next_look:
                return RootListing(str(self.root))
            self._next_look = now + REMOTE_LOOK_S
        # Asking takes requests, and a bucket has no unmounted folders.
        kind = self._kind if storage.is_remote and self._kind else storage.kind(self.root)
        self._kind = kind
        self.fault = ""
        if kind is None and not storage.is_remote:  # An empty prefix is no fault.
            self.fault = f"{self.root} is not there"
        if kind is None:
            return RootListing(str(self.root), is_complete=storage.is_remote)
        if kind == "file" and self.root.name.endswith(VERDICTS_SUFFIX):
            file = storage.found(self.root)
            return RootListing(str(self.root), is_complete=True, verdicts=() if file is None else (file,))
        if kind == "file":
            packets, operators = find_files([self.root])
            return RootListing(str(self.root), _numbered(packets), operators, is_complete=True)
        self._follower = self._follower or storage.follower(self.root, SUFFIX)
        listing = self._follower.look(everything=everything)
        if not storage.is_remote and storage.kind(self.root) is None:  # It went, with files that were listed.
            self.fault = f"{self.root} is not there"
            return RootListing(str(self.root))
        reason = listing.unseen.get(str(self.root))
        if reason is not None:
            self.fault = f"{self.root} cannot be listed: {reason}"
        kinds = by_kind(listing.files)
        return RootListing(
            str(self.root),
            _numbered(kinds.packets),
            kinds.operators,
            listing.is_complete,
            kinds.verdicts,
            tuple(listing.unseen),
        )


def _numbered(packets: Sequence[FoundFile]) -> list[FoundFile]:
    """Return packets, parts of processes with stamps that also change with the file in their folder that
    numbers their windows: it grows with every process, and may be copied after them. Buckets have none.
    """
    sizes: dict[StoragePath, int] = {}
    return [_with_size_of_restarts(each, sizes) if ".rank" in each.name else each for each in packets]


def _with_size_of_restarts(packet: FoundFile, sizes: dict[StoragePath, int]) -> FoundFile:
    folder = packet.path.parent
    if storage_of(folder).is_remote or events_stem(packet.path) is not None:
        return packet
    if folder not in sizes:
        found = storage_of(folder).found(folder / RESTARTS_FILE)
        sizes[folder] = 0 if found is None else found.stamp.size
    mtime_ns = bounded(packet.stamp.mtime_ns + sizes[folder])
    return replace(packet, stamp=replace(packet.stamp, mtime_ns=mtime_ns))


@dataclass(frozen=True, slots=True)
class Scan:
    """Result of comparing the files below the roots with those in the store.

    Attributes:
        fresh: new files and those whose stamp has changed, sorted by path.
        gone: names of stored files that no longer exist, sorted.
        unchanged: number of files with the stored stamp.
        operators: stamps of the files of operator events, by name; they are never read here.
    """

    fresh: tuple[FoundFile, ...]
    gone: tuple[str, ...]
    unchanged: int
    operators: Mapping[str, FileStamp]


def scan(
    listings: Iterable[RootListing], known: Mapping[str, FileStamp], operators: Mapping[str, FileStamp]
) -> Scan:
    """Compare the listed files with the stored ones. A stored file that is not listed is kept below a root
    whose listing is incomplete.

    Args:
        known: stamps of stored packets, including refused ones.
        operators: stamps of the files of operator events that the last scan found.
    """
    listings = tuple(listings)
    unknown = [name for listing in listings for name in listing.unknown]
    found = sorted_files(file for listing in listings for file in listing.packets)
    fresh = tuple(file for file in found if known.get(file.name) != file.stamp)
    missing = known.keys() - {file.name for file in found}
    gone = sorted(name for name in missing if not any(is_below(name, place) for place in unknown))
    unseen = {
        name: stamp for name, stamp in operators.items() if any(is_below(name, place) for place in unknown)
    }
    stamps = unseen | {file.name: file.stamp for listing in listings for file in listing.operators}
    return Scan(fresh, tuple(gone), len(found) - len(fresh), stamps)


def batches(fresh: Sequence[FoundFile], tapered: bool = False) -> Iterator[tuple[FoundFile, ...]]:
    """Yield consecutive files that fit in memory together; the parts of one window stay together.

    Args:
        tapered: whether the last batches are smaller, so that several readers finish at about the same time.
    """
    batch: list[FoundFile] = []
    size = 0
    most = BATCH_FILES
    for index, file in enumerate(fresh):
        is_full = len(batch) >= most or size + file.stamp.size > BATCH_BYTES
        if batch and is_full and window_stem(file) != window_stem(batch[-1]):
            yield tuple(batch)
            batch, size = [], 0
            if tapered:
                most = min(BATCH_FILES, max(LEAST_BATCH_FILES, (len(fresh) - index) // TAPER))
        batch.append(file)
        size += file.stamp.size
    if batch:
        yield tuple(batch)


def window_stem(file: FoundFile) -> StoragePath:
    """Return the common prefix of the names of one window's parts (packet.md)."""
    return file.path.with_name(file.path.name.split(".", 1)[0])


def to_read_again(found: FoundFile) -> FoundFile:
    """Return a file with another stamp than its own, so that the next scan tries again."""
    return replace(found, stamp=replace(found.stamp, mtime_ns=found.stamp.mtime_ns - 1))


def is_below(name: str, root: str) -> bool:
    """Return whether a file is a root or below it, by their names."""
    return name == root or name.startswith(root.rstrip(os.sep) + os.sep)
