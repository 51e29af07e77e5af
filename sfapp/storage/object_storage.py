"""Buckets of object stores, and packet files on web servers, through obstore."""

from __future__ import annotations

import errno
import hashlib
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from sfapp.errors import MissingExtraError, PacketError, StorageError
from sfapp.files import bounded
from sfapp.storage.interface import (
    FileContent,
    FileStamp,
    FolderFollower,
    FoundFile,
    PathKind,
    Storage,
    TailCheck,
)
from sfapp.storage.interruptible import RequestPool, interruptible
from sfapp.storage.object_keys import below, is_hidden, joined
from sfapp.storage.object_path import ObjectPath
from sfapp.storage.prefix_follower import PAGE, PrefixFollower
from sfapp.storage.request_retries import RequestRetries
from sfapp.storage.storage_address import StorageAddress
from sfapp.storage.storage_options import StorageOptions

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore

TAIL_BYTES = 256 * 2**10
"""Bytes at the end of a file that are fetched first: all of most packets, and the footer of large ones."""

AHEAD_BYTES = 64 * 2**20
"""Files that are fetched while earlier ones are decoded have about this size together."""

MOST_OBJECTS = 2**22
"""Objects below one prefix; each takes about 500 bytes of memory."""

_CHUNK_BYTES = 2**20

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Result = TypeVar("Result")


class ObjectStorage(Storage[ObjectPath]):
    """One bucket, or one web server.

    Attributes:
        url: its address, without credentials.
        is_web: whether it is a web server, which can only be read.
        quotes_keys: whether keys are percent-encoded in addresses.
        requests: repeats failed requests.
        store: obstore's store.
    """

    readers = 16
    is_remote = True

    def __init__(self, address: StorageAddress, options: StorageOptions) -> None:
        """Open a bucket or web server, without a request; credentials are those of the environment now.

        Raises:
            MissingExtraError: obstore is not installed.
            StorageError: obstore refuses an option.
        """
        self.url = address.url
        self.quotes_keys = self.is_web = address.is_web
        self._address = address
        self._options = options
        try:
            from obstore.exceptions import BaseError
        except ImportError as missing:
            translated = MissingExtraError.of(missing, self.url)
            raise (translated or missing) from missing
        self._failures = (BaseError, OSError, ValueError)
        self.requests = RequestRetries(options, self._failures)
        self.store = self._open()

    def __reduce__(self) -> tuple[Callable[..., ObjectStorage], tuple[StorageAddress, StorageOptions]]:
        return _reopened, self._identity

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStorage) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[StorageAddress, StorageOptions]:
        return self._address, self._options

    def owns(self, name: str) -> bool:
        """Return whether a path with this text is one of this storage."""
        return name == self.url or name.startswith(f"{self.url}/")

    def path_of(self, name: str) -> ObjectPath:
        """Return the path with this text."""
        key = name[len(self.url) + 1 :]
        return ObjectPath(self, unquote(key) if self.quotes_keys else key)

    # --- listing --------------------------------------------------------------------------------------

    def kind(self, path: ObjectPath) -> PathKind | None:
        if self.is_web:
            return "file"
        # An error of a listing says more than one of HEAD, whose answer has no body.
        if "." in path.name:
            return self._as_file(path) or self._as_folder(path)
        return self._as_folder(path) or self._as_file(path)

    def _as_file(self, path: ObjectPath) -> PathKind | None:
        return "file" if path.key and self.found(path) is not None else None

    def _as_folder(self, path: ObjectPath) -> PathKind | None:
        with closing(self.pages(path.key)) as pages:
            return "folder" if next(pages, None) or not path.key else None

    def files_below(self, folder: ObjectPath, suffix: str) -> Iterator[FoundFile]:
        key = folder.key
        for page in self.pages(key):
            for meta in page:
                if meta["path"].endswith(suffix) and not is_hidden(meta["path"], key):
                    yield self.file_of(meta)

    def follower(self, folder: ObjectPath, suffix: str) -> FolderFollower:
        return PrefixFollower(self, folder.key, suffix)

    def names_in(self, folder: ObjectPath, stem: str = "") -> list[str]:
        key = folder.key
        if self.is_web:
            return []
        if not stem:
            return [meta["path"].rpartition("/")[2] for meta in self.level(key)[1]]
        names: list[str] = []
        with closing(self.pages(key, after=joined(key, stem))) as pages:
            for page in pages:
                for meta in page:
                    name = below(meta["path"], key)
                    if name >= f"{stem}/":  # Keys are in order: the names of the stem are over.
                        return names
                    if name.startswith(f"{stem}.") and "/" not in name:
                        names.append(name)
        return names

    def pages(self, key: str, after: str | None = None) -> Generator[list[ObjectMeta], None, None]:
        """Yield the objects below a prefix, or those of them after a key, a page at a time and in order.

        A request that fails is repeated from the last object that was listed.

        Raises:
            StorageError: a page does not come after the one before, or there are more than ``MOST_OBJECTS``.
        """
        import obstore

        if self.is_web:
            raise StorageError(f"{self.url}: a web server lists no files; name one packet file")
        attempts = self.requests.attempts(self._shown(key))
        listed = 0
        while True:
            try:
                listing = iter(obstore.list(self.store, key or None, offset=after, chunk_size=PAGE))
                while (page := interruptible(partial(next, listing, None))) is not None:
                    attempts.succeed()
                    if not page:
                        continue
                    if after is not None and page[-1]["path"] <= after:
                        raise StorageError(f"{self._shown(key)}: the server lists the same objects again")
                    listed += len(page)
                    if listed > MOST_OBJECTS:
                        raise StorageError(
                            f"{self._shown(key)}: more than {MOST_OBJECTS:,} objects: name a prefix of fewer"
                        )
                    yield list(page)
                    after = page[-1]["path"]
                return
            except self._failures as error:  # Also where there is no such bucket.
                attempts.fail(error)

    def level(self, key: str) -> tuple[list[str], list[ObjectMeta]]:
        """Return the prefixes and the objects directly below a prefix."""
        import obstore

        try:
            found = self.run(key, lambda: obstore.list_with_delimiter(self.store, key or None))
        except FileNotFoundError as error:
            raise StorageError(f"{self._shown(key)}: {self.requests.fault_of(error).reason}") from None
        return list(found["common_prefixes"]), list(found["objects"])

    def found(self, path: ObjectPath) -> FoundFile | None:
        import obstore

        key = path.key

        def meta() -> ObjectMeta:
            # An address that is signed for GET may refuse HEAD. The body of the answer is not read.
            return obstore.get(self.store, key).meta if self.is_web else obstore.head(self.store, key)

        try:
            return self.file_of(self.run(key, meta), key)
        except FileNotFoundError:
            return None

    def is_there(self, path: ObjectPath) -> bool:
        import obstore

        try:
            self.run(path.key, lambda: obstore.head(self.store, path.key), of_object=True)
        except FileNotFoundError:
            return False
        except PacketError:  # Access is refused to its size, too.
            return True
        return True

    def file_of(self, meta: ObjectMeta, key: str | None = None) -> FoundFile:
        """Return the file that an entry of a listing describes."""
        path = ObjectPath(self, meta["path"] if key is None else key)
        return FoundFile(path, str(path), FileStamp(bounded(meta["size"]), _modified_ns(meta)))

    # --- reading --------------------------------------------------------------------------------------

    def fetch(self, path: ObjectPath, most_bytes: int, check_tail: TailCheck) -> FileContent:
        key = path.key
        try:
            return self.run(key, lambda: self._fetched(key, most_bytes, check_tail), of_object=True)
        except FileNotFoundError:
            raise PacketError("cannot be read: there is no such object") from None

    def _fetched(self, key: str, most_bytes: int, check_tail: TailCheck) -> FileContent:
        """Return an object's content: its end first, from which most files are complete or refused."""
        result, tail = self._tail(key)
        meta, size = result.meta, result.meta["size"]
        if size > most_bytes:
            return FileContent(None, bounded(size), "", _modified_ns(meta))
        if tail is None:
            data = body_of(result)
        elif len(tail) == size:
            data = tail
        else:
            fault = check_tail(tail)
            if fault:
                return FileContent(None, size, "", _modified_ns(meta), fault)
            rest: GetOptions = {"range": (0, size - len(tail))}
            if meta["e_tag"]:
                rest["if_match"] = meta["e_tag"]  # Both parts are of the same object.
            data = body_of(self.get(key, rest)) + tail
        if len(data) != size:
            raise OSError(errno.EIO, f"the answer ended after {len(data):,} of {size:,} bytes")
        return FileContent(data, size, hashlib.sha256(data).hexdigest(), _modified_ns(meta))

    def _tail(self, key: str) -> tuple[Any, bytes | None]:
        """Return the answer to a request for an object's end, and its bytes; None where the storage returns
        whole objects only, whose bytes are then not read yet."""
        if self.is_web or self._address.scheme == "az":
            return self.get(key, {}), None
        try:
            result = self.get(key, {"range": {"suffix": TAIL_BYTES}})
        except self._failures as error:
            if not _refuses_range(error):
                raise
            return self.get(key, {}), None
        return result, body_of(result)

    def get(self, key: str, options: GetOptions) -> Any:
        """Send one request for an object."""
        import obstore

        return obstore.get(self.store, key, options=options)

    def fetch_ahead(
        self, paths: Iterable[ObjectPath], most_bytes: int, check_tail: TailCheck
    ) -> Iterator[FileContent | PacketError]:
        left = iter(paths)
        largest = 0
        with RequestPool.open(self.readers) as pool:
            pending: deque[Future[FileContent | PacketError]] = deque()
            while True:
                # The first files show how large they are; then more are fetched at the same time.
                ahead = min(2 * self.readers, AHEAD_BYTES // largest) if largest else 4
                while len(pending) < max(2, ahead) and (path := next(left, None)) is not None:
                    pending.append(pool.submit(partial(self._content_or_fault, path, most_bytes, check_tail)))
                if not pending:
                    return
                content = pending.popleft().result()
                if isinstance(content, FileContent):
                    largest = max(largest, content.size)
                yield content

    def _content_or_fault(
        self, path: ObjectPath, most_bytes: int, check_tail: TailCheck
    ) -> FileContent | PacketError:
        try:
            return self.fetch(path, most_bytes, check_tail)
        except PacketError as error:
            return error

    def read_small(self, path: ObjectPath, most_bytes: int) -> bytes:
        key = path.key

        def content() -> bytes | None:
            result = self.get(key, {})
            return body_of(result) if result.meta["size"] <= most_bytes else None

        found = self.run(key, content)
        if found is None:
            raise OSError(errno.EFBIG, f"more than {most_bytes:,} bytes", str(path))
        return found

    # --- requests -------------------------------------------------------------------------------------

    def run(self, key: str, request: Callable[[], Result], *, of_object: bool = False) -> Result:
        """Return the result of a request for a key; see ``RequestRetries.run``."""
        return self.requests.run(self._shown(key), request, of_object=of_object)

    def _shown(self, key: str) -> str:
        return str(ObjectPath(self, key))

    def _open(self) -> ObjectStore:
        """Return obstore's store of this bucket or server, without retries: they are done here."""
        from obstore.store import HTTPStore, from_url

        address = self._address
        client: Any = self._options.client_options(address.scheme)
        retry: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=30)}
        try:
            if address.is_web:
                query = f"?{address.query}" if address.query else ""
                client = {"allow_http": "true"} | client
                if address.userinfo:
                    login = b64encode(unquote(address.userinfo).encode()).decode()
                    client["default_headers"] = {"authorization": f"Basic {login}"}
                return HTTPStore.from_url(f"{address.url}{query}", client_options=client, retry_config=retry)
            options: Any = self._options.provider_options()
            return from_url(address.url, config=options, client_options=client, retry_config=retry)
        except self._failures as error:
            raise StorageError(f"{self.url}: {self.requests.fault_of(error).reason}") from None


def body_of(result: Any) -> bytes:
    """Return the body of an answer.

    A server may send more than it announced, even without end, or announce more than there is memory.

    Raises:
        OSError: the body is longer than announced.
    """
    begin, end = result.range
    chunks, received = [], 0
    for chunk in result.stream(_CHUNK_BYTES):
        received += len(chunk)
        if received > end - begin:
            raise OSError(errno.EIO, f"the answer is longer than the {end - begin:,} bytes that it announced")
        chunks.append(bytes(chunk))
    return b"".join(chunks)


def _refuses_range(error: Exception) -> bool:
    """Return whether a server has no part of an object, because it is empty or the server knows no ranges."""
    text = str(error)
    return "non-partial response" in text or "status code: 416" in text


@cache
def _reopened(address: StorageAddress, options: StorageOptions) -> ObjectStorage:
    """Return a storage in another process: one for all files that it is sent."""
    return ObjectStorage(address, options)


def _modified_ns(meta: ObjectMeta) -> int:
    return bounded((meta["last_modified"] - _EPOCH) // timedelta(microseconds=1) * 1000)
