"""Write objects so that nothing is replaced unseen: as new ones, or in the place of a known version."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfapp.errors import StorageError
from sfapp.files import read_regular
from sfapp.storage.object_path import ObjectPath
from sfapp.storage.object_storage import body_of

if TYPE_CHECKING:
    from obstore import GetOptions


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """What tells the versions of an object apart: by its provider, the one or the other counts."""

    e_tag: str | None
    version: str | None

    @property
    def condition(self) -> dict[str, str]:
        """What is known, as obstore takes it."""
        names = {"e_tag": self.e_tag, "version": self.version}
        return {name: value for name, value in names.items() if value is not None}


class _TooLargeError(Exception):
    """An object is larger than its limit, whatever is tried again."""


def create_object(path: ObjectPath, file: Path) -> bool:
    """Store a local file as a new object; return False if the key holds other content, which stays.

    The object is whole or absent. One with the same content counts as stored: an answer may be lost.

    Raises:
        PacketError: there is an object, and access to its content is refused.
        StorageError: the storage cannot be reached, or refuses it.
        OSError: the file cannot be read.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError

    storage, key = path.storage, path.key

    def put() -> bool:
        try:
            obstore.put(storage.store, key, file, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def is_same() -> bool:
        found, size = storage.get(key, {}), file.stat().st_size
        return bool(found.meta["size"] == size and body_of(found) == read_regular(file, size))

    file.stat()  # Its absence is not that of the bucket.
    try:
        return storage.run(key, put) or storage.run(key, is_same, of_object=True)
    except FileNotFoundError as error:
        raise _without_bucket(path, error) from None


def fetch_version(
    path: ObjectPath, known: ObjectVersion | None, most_bytes: int
) -> tuple[bytes, ObjectVersion] | None:
    """Return an object's content and its version; None if it has the known version.

    Raises:
        FileNotFoundError: there is no such object.
        OSError: it is larger than the limit.
        StorageError: the storage cannot be reached, or refuses it.
    """
    from obstore.exceptions import NotModifiedError

    storage, key = path.storage, path.key
    options: GetOptions = {"if_none_match": known.e_tag} if known and known.e_tag else {}

    def content() -> tuple[bytes, ObjectVersion] | None:
        try:
            result = storage.get(key, options)
        except NotModifiedError:
            return None
        if result.meta["size"] > most_bytes:
            raise _TooLargeError
        return body_of(result), ObjectVersion(result.meta["e_tag"], result.meta["version"])

    try:
        return storage.run(key, content)
    except _TooLargeError:
        raise OSError(errno.EFBIG, f"more than {most_bytes:,} bytes", str(path)) from None


def replace_version(path: ObjectPath, content: bytes, known: ObjectVersion | None) -> ObjectVersion | None:
    """Store an object in the place of a known version and return the new version; None if it has another.

    Args:
        known: version that it has; None if there is no such object.

    Raises:
        StorageError: the storage cannot be reached, or refuses it.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    storage, key = path.storage, path.key
    mode: Any = known.condition if known else "create"

    def put() -> ObjectVersion | None:
        try:
            stored = obstore.put(storage.store, key, content, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return None
        return ObjectVersion(stored["e_tag"], stored["version"])

    try:
        return storage.run(key, put)
    except FileNotFoundError as error:
        raise _without_bucket(path, error) from None


def delete_object(path: ObjectPath) -> None:
    """Delete an object, if it exists.

    Raises:
        StorageError: the storage cannot be reached, or refuses it.
    """
    import obstore

    storage, key = path.storage, path.key
    with suppress(FileNotFoundError):
        storage.run(key, lambda: obstore.delete(storage.store, key))


def _without_bucket(path: ObjectPath, error: Exception) -> StorageError:
    return StorageError(f"{path}: {path.storage.requests.fault_of(error).reason}")
