"""Put the packets of a process into a bucket, on a thread: ``Uploader``.

The process writes packets to a folder of this disk, its spool, as it does without a bucket. The thread
uploads what is finished, oldest first, and removes each file once its object is stored. While the bucket
cannot be reached, files wait in the spool, also across a restart of the process (docs/fleet.md).
"""

from __future__ import annotations

import errno
import hashlib
import logging
import random
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sfapp.errors import PacketError, StorageError, describe_error
from sfapp.files import read_regular
from sfapp.packets.job import following_window
from sfapp.packets.output import LISTING_SECONDS, NoteFailure, PacketOutput
from sfapp.packets.paths import SUFFIX, packet_path
from sfapp.packets.spool import Spool, WaitingFile
from sfapp.storage import ObjectPath, create_object, storage_of

_LOG = logging.getLogger("sfapp")

_LOOK_SECONDS = 1.0
_MOST_LOOKING = 0.01
"""Fraction of the time that looking at the spool may take: it may hold very many files."""

_ADOPT_EVERY_S = 30.0
_BATCH_S = 10.0
"""Seconds for which files are uploaded before the spool is looked at again."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_CLOSING_PAUSE_S = 0.3
_PATIENCE_S = 3.0
"""Seconds without success after which closing stops to wait for the bucket."""

_WARN_EVERY_S = 60.0
_DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True)
class _Listing:
    """Search for the packets of a run in the bucket.

    Attributes:
        stored: name and time of modification of those that were found.
        began_at: in monotonic seconds.
    """

    thread: threading.Thread
    stored: list[tuple[str, float]]
    began_at: float


class Uploader(PacketOutput):
    """Spool of one process, and the thread that uploads its files.

    Attributes:
        folder: the packet folder to write to.
        delivered: number of files that were uploaded.
        lost: number of files that were discarded because the spool was full.
    """

    def __init__(self, target: ObjectPath, owner: str, most_bytes: int, *, discards: bool = True) -> None:
        """Take a spool folder; ``start`` begins to upload.

        Args:
            target: the bucket and prefix. A failed request must not be repeated: the thread does that.
            owner: kind of process, such as ``recorder``.
            most_bytes: limit of the spool.
            discards: whether the oldest files above the limit are discarded. Otherwise the writer asks
                ``check_room``.

        Raises:
            StorageError: there is no folder for the spool.
        """
        self.delivered = self.lost = 0
        self._target = target
        self._most_bytes = most_bytes
        self._discards = discards
        try:
            self._spool = Spool.open(str(target), owner)
        except OSError as error:
            raise StorageError(
                f"no folder on this disk for packets that wait for {target}: {error.strerror}; "
                "set SFAPP_SPOOL to one"
            ) from None
        super().__init__(self._spool.folder)
        self._early: list[str] = []
        self._unreadable: set[Path] = set()
        self._listings: dict[str, _Listing] = {}  # by run, while they are not done
        self._note: NoteFailure = self._early.append
        self._is_held = self._is_failing = self._is_closed = False
        self._size, self._looking_s = 0, 0.0
        self._pause = _FIRST_PAUSE_S
        self._attempt_at = self._adopt_at = self._warn_at = self._success_at = 0.0
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="sfapp-uploader", daemon=True)

    def start(self, note: NoteFailure, *, is_held: bool = False) -> None:
        """Begin to upload; see ``PacketOutput``. If the system refuses a thread, ``close`` tries again."""
        for failure in self._early:
            note(failure)
        self._note, self._is_held = note, is_held
        if is_held:
            self._spool.claim_all()
        self._start_thread()

    def following_window_within(self, seconds: float, run_id: str, rank: int | None = None) -> int | None:
        """Return the first window number that no packet of a run has, in the bucket and on this disk; see
        ``PacketOutput``. If the bucket cannot be listed, this disk decides."""
        run = packet_path(Path(), run_id, 0).parent.name
        listing = self._listings.get(run)
        if listing is None:
            listing = self._listings[run] = self._begin_listing(run)
        if listing.thread.is_alive():
            listing.thread.join(max(0.0, listing.began_at + seconds - time.monotonic()))
        if listing.thread.is_alive():
            if time.monotonic() < listing.began_at + LISTING_SECONDS:
                return None
            self._note(f"windows are numbered after those on this disk: {self._target} does not answer")
        del self._listings[run]
        return following_window([*self._spool.names_of(run), *listing.stored], rank)

    def _begin_listing(self, run: str) -> _Listing:
        """List a run on a thread that can be abandoned: a server may accept a request and never answer."""
        stored: list[tuple[str, float]] = []
        thread = threading.Thread(target=self._list, args=(run, stored), name="sfapp-listing", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._note(f"the thread {thread.name} was not started: {error}")
        return _Listing(thread, stored, time.monotonic())

    def _list(self, run: str, stored: list[tuple[str, float]]) -> None:
        folder = self._target / run
        try:
            for file in storage_of(folder).files_below(folder, SUFFIX):
                stored.append((file.path.name, file.stamp.mtime_ns / 1e9))
        except StorageError as error:
            self._note(f"windows are numbered after those on this disk: {error}")

    def locked(self, run_folder: Path) -> AbstractContextManager[None]:
        """Do nothing: no other process uses the spool."""
        return nullcontext()

    def has_claimed(self, path: Path) -> bool:
        """Return whether a packet of this path was taken from the folder, so that none may replace it."""
        return self._spool.has_claimed(path)

    def check_room(self) -> None:
        """Check that the spool is not full.

        Raises:
            OSError: it is.
        """
        if self._size > self._most_bytes:
            raise OSError(errno.ENOSPC, f"the spool is full ({self._size:,} bytes)", str(self.folder))

    def close(self, seconds: float) -> None:
        """Upload what waits, within ``seconds``, and stop. What is left waits for a later process."""
        self._is_held, self._attempt_at = False, 0.0
        self._success_at = time.monotonic()
        self._deadline = self._success_at + seconds
        self._closing.set()
        if self._thread.ident is None:
            self._start_thread()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        if self._thread.is_alive():  # in a request: the folder stays locked until the process ends
            return
        if not self._is_closed:
            self._is_closed = True
            self._note_left()
            self._spool.close()

    def _note_left(self) -> None:
        try:
            left = f"{waiting} files wait" if (waiting := len(self._spool.waiting())) else ""
        except OSError as error:  # It must not end training, which closes this.
            left = f"files may wait, which cannot be listed ({describe_error(error)}),"
        if left:
            self._note(
                f"{left} in {self.folder} for {self._target}: the next process of this "
                "machine that writes there uploads them"
            )

    def _start_thread(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            self._note(f"the thread {self._thread.name} was not started: {error}")

    # ---- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            is_last = self._closing.is_set()
            try:
                is_empty = self._look()
            except Exception as error:  # noqa: BLE001  # It runs inside training, which nothing may end.
                self._fail(describe_error(error))
                is_empty = False
            now = time.monotonic()
            if is_last:
                if is_empty or now > self._deadline or now > self._success_at + _PATIENCE_S:
                    return
                time.sleep(_CLOSING_PAUSE_S)
            elif is_empty or self._is_failing:
                self._closing.wait(max(_LOOK_SECONDS, self._looking_s / _MOST_LOOKING))

    def _look(self) -> bool:
        """Upload the files that wait, if it is time to; return whether none is left."""
        now = time.monotonic()
        if now >= self._adopt_at and not self._closing.is_set():
            self._adopt_at = now + _ADOPT_EVERY_S
            self._spool.adopt()
        begin = time.monotonic()
        waiting = [file for file in self._spool.waiting() if file.is_claimed or not self._is_held]
        self._looking_s = time.monotonic() - begin
        self._size = sum(file.size for file in waiting)
        if self._discards:
            waiting = self._within_limit(waiting)
        if now < self._attempt_at:
            return not waiting
        until = begin + max(_BATCH_S, self._looking_s / _MOST_LOOKING)
        for file in waiting:
            if time.monotonic() > min(until, self._deadline):
                return False
            try:
                self._upload(file)
            except FileNotFoundError:  # A part was removed, because its rank's rows are in the packet.
                continue
            except StorageError as error:
                self._fail(str(error))
                return False
            except (OSError, PacketError) as error:  # of this file, which must not keep the others waiting
                self._note_unreadable(file, error)
                continue
            self._is_failing, self._pause, self._success_at = False, _FIRST_PAUSE_S, time.monotonic()
        return True

    def _upload(self, file: WaitingFile) -> None:
        """Upload a file and remove it.

        If there is another object of this name, the file gets a name with its hash, so that both are kept;
        also if that object cannot be read, as with credentials that may only write.
        """
        with self.replacing:
            claimed = self._spool.claim(file)
        target = self._target / file.run / file.name
        content = "with other content"
        try:
            is_stored = create_object(target, claimed)
        except PacketError as error:
            is_stored, content = False, f"({error.reason})"
        if not is_stored:
            digest = hashlib.sha256(read_regular(claimed, file.size)).hexdigest()[:_DIGEST_LENGTH]
            kept = target.with_name(file.name.replace(".", f".{digest}.", 1))
            if not create_object(kept, claimed):  # It would be lost: no other file has this digest.
                raise StorageError(f"{kept} exists with other content than its digest")
            self._note(f"{target} exists {content} and was not replaced: stored as {kept.name}")
        claimed.unlink()
        self.delivered += 1

    def _within_limit(self, waiting: list[WaitingFile]) -> list[WaitingFile]:
        """Discard the oldest files above the limit; return the others."""
        lost = self.lost
        for index, file in enumerate(waiting):
            if self._size <= self._most_bytes:
                waiting = waiting[index:]
                break
            file.path.unlink(missing_ok=True)
            self._size -= file.size
            self.lost += 1
            self._note(f"{file.run}/{file.name} was discarded: more than {self._most_bytes:,} bytes wait")
        else:
            waiting = []
        now = time.monotonic()
        if self.lost > lost and now >= self._warn_at:
            self._warn_at = now + _WARN_EVERY_S
            _LOG.warning(
                "%d packets for %s were discarded so far: the spool %s is full",
                *(self.lost, self._target, self.folder),
            )
        return waiting

    def _note_unreadable(self, file: WaitingFile, error: Exception) -> None:
        if file.path not in self._unreadable:
            self._unreadable.add(file.path)
            self._note(f"{file.run}/{file.name} cannot be uploaded: {describe_error(error)}; it stays there")

    def _fail(self, reason: str) -> None:
        """Note the first failure of an outage, and set the time of the next attempt."""
        if not self._is_failing:
            self._note(f"{reason}; packets wait in {self.folder}")
        self._is_failing = True
        if not self._closing.is_set():
            self._attempt_at = time.monotonic() + self._pause * random.uniform(0.5, 1.0)
            self._pause = min(_LONGEST_PAUSE_S, 2 * self._pause)
