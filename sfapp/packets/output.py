"""Where a process writes packets: ``PacketOutput``, a folder, or a bucket by way of a folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from sfapp.errors import StorageError
from sfapp.packets.run_lock import RunLocks
from sfapp.storage import StorageOptions, StoragePath, location
from sfapp.storage.storage_address import scheme_of

SPOOL_BYTES = 2**30
"""Default limit of the files that wait on disk for a bucket."""

LISTING_SECONDS = 10.0
"""Seconds after which a bucket that cannot be listed does not decide how windows are numbered."""

NoteFailure = Callable[[str], None]


class PacketOutput:
    """Folder that a process writes packets to. ``Uploader`` is one whose files go to a bucket.

    Attributes:
        folder: the packet folder.
        replacing: held while a packet is replaced, so that it is not uploaded meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replacing = threading.Lock()
        self._locks = RunLocks()

    @classmethod
    def of(cls, root: Path | PacketOutput) -> PacketOutput:
        """Return the output that is a folder, or the given one."""
        return root if isinstance(root, PacketOutput) else PacketOutput(root)

    def following_window(self, run_id: str, rank: int | None = None) -> int:
        """Return the first window number that no packet of a run outside the folder has.

        Args:
            rank: as in ``JobInfo.next_window``.
        """
        found = None
        while found is None:
            found = self.following_window_within(LISTING_SECONDS, run_id, rank)
        return found

    def following_window_within(self, seconds: float, run_id: str, rank: int | None = None) -> int | None:
        """Return the same, or None while the packets are still looked for, which ends after
        LISTING_SECONDS; what is known then decides.

        Args:
            seconds: how long the search is waited for, from its begin, which may be in an earlier call.
        """
        return 0

    def locked(self, run_folder: Path) -> AbstractContextManager[None]:
        """Keep other processes from replacing packets of a run within the block; see ``RunLocks``."""
        return self._locks.locked(run_folder)

    def has_claimed(self, path: Path) -> bool:
        """Return whether a packet of this path has left the folder, so that none may replace it."""
        return False

    def check_room(self) -> None:
        """Check that there is room for a packet.

        Raises:
            OSError: there is none.
        """

    def start(self, note: NoteFailure, *, is_held: bool = False) -> None:
        """Begin to upload.

        Args:
            note: receives each failure.
            is_held: upload only what an earlier process left, until ``close``: this process may still read,
                replace or remove its own files.
        """

    def close(self, seconds: float) -> None:
        """Upload what waits, within ``seconds``, and stop. What is left waits for a later process."""


def parse_storage_options(texts: Iterable[str]) -> Mapping[str, str]:
    """Return options of a storage by name from texts of the form ``KEY=VALUE``.

    Raises:
        StorageError: a text has another form.
    """
    return StorageOptions.parse(texts)


def output_in(folder: str, output: str) -> str | Path:
    """Return an output that a command names as seen from a folder; an address stays as it is."""
    return output if scheme_of(output) else Path(folder, output)


def open_output(
    output: str | StoragePath,
    options: Mapping[str, object] | None,
    owner: str,
    most_bytes: int = SPOOL_BYTES,
    *,
    discards: bool = True,
) -> PacketOutput:
    """Return the output of a process.

    Args:
        output: the folder, or an address such as ``s3://BUCKET/PREFIX``.
        options: of the storage, as in ``sfapp.storage.location``.
        owner, most_bytes, discards: as of ``Uploader``.

    Raises:
        StorageError: the address or an option is invalid, it is a web server's, or there is no folder for
            packets that wait.
        MissingExtraError: it is an address, and obstore is not installed.
    """
    if isinstance(output, Path):
        return PacketOutput(_fixed(output))
    target = location(str(output), {**(options or {}), "max_retries": 0})  # The uploader repeats.
    if isinstance(target, Path):
        return PacketOutput(_fixed(target))
    if target.storage.is_web:
        raise StorageError(f"{target}: packets are written to folders and buckets, not to web servers")
    from sfapp.packets.uploader import Uploader  # It locks files in a way that Windows lacks.

    return Uploader(target, owner, most_bytes, discards=discards)


def _fixed(folder: Path) -> Path:
    """Return the absolute path, as the program may go to another folder before it has written all packets."""
    try:
        return folder.absolute()
    except OSError:  # The current folder was removed.
        return folder
