"""Find new packets below a prefix without listing all its objects each time (docs/fleet.md, New packets).

Names of a run's packets begin with the number of their window, so that new ones come after the known ones in
the order in which object stores list. A *numbered* prefix is one that holds such names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfapp.storage.interface import FolderFollower, FolderListing, FoundFile
from sfapp.storage.object_keys import below, is_hidden, joined, prefixes_of

if TYPE_CHECKING:
    from obstore import ObjectMeta

    from sfapp.storage.object_storage import ObjectStorage

ACTIVE_S = 3600.0
"""Seconds since its last new object for which a prefix is active, that is, looked at each time."""

COMPLETE_EVERY_S, COMPLETE_COST = 900.0, 20
"""Seconds between two complete listings; at least this multiple of the time that one takes."""

LATE_WINDOWS = 8
"""Windows before the newest one whose files may still arrive, such as parts of other ranks."""

MOST_LEVELS = 16
"""Levels of prefixes below the root that are followed; what is deeper is left to complete listings. A key of
1,024 bytes may have 500 prefixes, each of which costs memory, and time at every look."""

MOST_NEW = 64
"""New prefixes that are listed one by one, also where all objects would take fewer requests: many jobs that
begin at once are no reason to list a bucket completely."""

PAGE = 1000
"""Objects in a page of a listing, the most that S3 returns."""

_REQUESTS_AT_ONCE = 8

_NUMBERED = re.compile(r"(\d{8})\.")


@dataclass(slots=True)
class _Prefix:
    """What is known of the objects directly under a prefix.

    Attributes:
        newest: largest number at the beginning of a name; None if it is not numbered.
        objects: their number.
        changed_s: when the last object appeared, on the clock of the follower.
        has_prefixes: whether there are prefixes under it.
    """

    newest: int | None = None
    objects: int = 0
    changed_s: float = float("-inf")
    has_prefixes: bool = False

    def count(self, name: str) -> None:
        """Note one more object with this name."""
        self.objects += 1
        number = _NUMBERED.match(name)
        if number is not None:
            self.newest = max(int(number[1]), -1 if self.newest is None else self.newest)


class PrefixFollower(FolderFollower):
    """Repeated listing of a prefix."""

    def __init__(
        self, storage: ObjectStorage, root: str, suffix: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._storage = storage
        self._root = root
        self._suffix = suffix
        self._clock = clock
        self._prefixes: dict[str, _Prefix] = {}
        self._next_complete = 0.0
        self._pages = 0

    def look(self, *, everything: bool) -> FolderListing:
        now = self._clock()
        numbered, branching = self._to_look_at(now)
        requests = len(numbered) + sum(1 + self._prefixes[key].objects // PAGE for key in branching)
        is_complete = everything or now >= self._next_complete or self._pages <= requests
        due, self._next_complete = self._next_complete, 0.0  # Everything is listed again after a failure.
        new = None if is_complete else self._new(now, numbered, branching)
        files, due = self._complete(now) if new is None else (new, due)
        self._next_complete = due
        return FolderListing(tuple(files), new is None)

    def _complete(self, now: float) -> tuple[list[FoundFile], float]:
        """Return all files, and when to list them again."""
        self._prefixes = {self._root: _Prefix(changed_s=now)}
        modified_s: dict[str, float] = {}
        files: list[FoundFile] = []
        objects = 0
        for page in self._storage.pages(self._root):
            objects += len(page)
            files += self._wanted(page)
            for meta in page:
                for prefix in self._counted(meta):
                    last = meta["last_modified"].timestamp()
                    modified_s[prefix] = max(last, modified_s.get(prefix, last))
        # Ages are relative to the newest object, so that the clocks of two machines are not compared.
        newest = max(modified_s.values(), default=0.0)
        for key, last in modified_s.items():
            self._prefixes[key].changed_s = now - (newest - last)
        self._pages = 1 + objects // PAGE
        return files, now + max(COMPLETE_EVERY_S, COMPLETE_COST * (self._clock() - now))

    def _to_look_at(self, now: float) -> tuple[list[str], list[str]]:
        """Return active prefixes with numbered names, and those under which new prefixes may appear.

        What is under a numbered prefix, such as captures, is left to complete listings.
        """
        numbered, branching = [], []
        for key, prefix in self._prefixes.items():
            if any(self._is_numbered(above) for above in prefixes_of(key, self._root)):
                continue
            is_active = now - prefix.changed_s < ACTIVE_S
            if prefix.newest is not None:
                numbered += [key] if is_active else []
            elif prefix.has_prefixes or is_active or key == self._root:
                branching.append(key)
        return numbered, branching

    def _is_numbered(self, key: str) -> bool:
        prefix = self._prefixes.get(key)
        return prefix is not None and prefix.newest is not None

    def _new(self, now: float, numbered: Sequence[str], branching: Sequence[str]) -> list[FoundFile] | None:
        """Return what may be new: the last files of active prefixes, and all files of new prefixes. None if
        there are so many of these that a complete listing takes fewer requests."""
        found: list[FoundFile] = []
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "sfapp-list") as pool:
            tails = pool.map(self._tail, numbered)
            levels = pool.map(self._storage.level, branching)
            unseen: list[str] = []
            for key, objects in zip(numbered, tails, strict=True):
                self._note_tail(self._prefixes[key], objects, now)
                found += self._wanted(objects)
            for key, (prefixes, objects) in zip(branching, levels, strict=True):
                self._note_level(key, objects, now)
                found += self._wanted(objects)
                unseen += [each for each in prefixes if each not in self._prefixes]
            new = [key for key in unseen if self._is_followed(f"{key}/")]
            if len(new) > max(self._pages, MOST_NEW):
                return None
            for key, pages in zip(
                new, pool.map(lambda key: list(self._storage.pages(key)), new), strict=True
            ):
                self._prefixes[key] = _Prefix(changed_s=now)
                for page in pages:
                    found += self._wanted(page)
                    for meta in page:
                        for prefix in self._counted(meta):
                            self._prefixes[prefix].changed_s = now
        return found

    def _tail(self, key: str) -> list[ObjectMeta]:
        """Return the last objects directly under a numbered prefix, and all later ones."""
        newest = self._prefixes[key].newest or 0
        found: list[ObjectMeta] = []
        after_digits = joined(key, ":")
        for page in self._storage.pages(key, after=joined(key, f"{max(0, newest - LATE_WINDOWS):08d}")):
            for meta in page:
                if meta["path"] >= after_digits:
                    return found
                found.append(meta)
        return found

    @staticmethod
    def _note_tail(prefix: _Prefix, objects: Sequence[ObjectMeta], now: float) -> None:
        known = prefix.newest or 0
        for meta in objects:
            name = meta["path"].rpartition("/")[2]
            number = _NUMBERED.match(name)
            if number is not None and int(number[1]) > known:
                prefix.count(name)
                prefix.changed_s = now

    def _note_level(self, key: str, objects: Sequence[ObjectMeta], now: float) -> None:
        before = self._prefixes[key]
        prefix = _Prefix(changed_s=before.changed_s, has_prefixes=before.has_prefixes)
        for meta in objects:
            prefix.count(meta["path"].rpartition("/")[2])
        if prefix.objects > before.objects:
            prefix.changed_s = now
        self._prefixes[key] = prefix

    def _counted(self, meta: ObjectMeta) -> list[str]:
        """Note one object under the prefix that holds it, and return that prefix; none if not followed."""
        key = meta["path"]
        if not self._is_followed(key):
            return []
        holder, *above = prefixes_of(key, self._root)
        self._prefixes.setdefault(holder, _Prefix()).count(key.rpartition("/")[2])
        for each in above:
            self._prefixes.setdefault(each, _Prefix()).has_prefixes = True
        return [holder]

    def _is_followed(self, key: str) -> bool:
        """Return whether the prefix that holds an object is neither hidden nor too deep."""
        return not is_hidden(key, self._root) and below(key, self._root).count("/") <= MOST_LEVELS

    def _wanted(self, page: Sequence[ObjectMeta]) -> list[FoundFile]:
        return [
            self._storage.file_of(meta)
            for meta in page
            if meta["path"].endswith(self._suffix) and not is_hidden(meta["path"], self._root)
        ]
