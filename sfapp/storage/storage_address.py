"""Parse addresses of object stores, keep their credentials apart, and remove credentials from texts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import url2pathname

from sfapp.errors import StorageError
from sfapp.terminal import quoted

BUCKET_SCHEMES = ("s3", "gs", "az")
WEB_SCHEMES = ("http", "https")

HIDDEN = "HIDDEN"
"""Text shown in the place of a secret."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_CREDENTIALS_ELSEWHERE = (
    "pass credentials in environment variables such as AWS_ACCESS_KEY_ID, or with --storage-option"
)


@dataclass(frozen=True, slots=True)
class StorageAddress:
    """Address of a bucket or a web server.

    Attributes:
        host: name of the bucket or container, or host and port of a web server.
        userinfo, query: parts of a web address that may hold credentials; they are never shown.
    """

    scheme: str
    host: str
    userinfo: str = field(default="", repr=False)
    query: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """Return the address without credentials."""
        return f"{self.scheme}://{self.host}"

    @property
    def is_web(self) -> bool:
        """Return whether it is a web server, which has no listing."""
        return self.scheme in WEB_SCHEMES


def scheme_of(text: str) -> str | None:
    """Return the scheme of an address in lower case; None for a path."""
    match = _SCHEME.match(text)
    return match[1].lower() if match else None


def local_path_of(url: str) -> Path:
    """Return the path of a ``file://`` address.

    Raises:
        StorageError: it names another machine.
    """
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise StorageError(f"{redacted(url)} names another machine: mount its folder, and name the path here")
    return Path(url2pathname(parts.path))


def parse_address(url: str) -> tuple[StorageAddress, str]:
    """Return the bucket or server of an address, and the key in it.

    Raises:
        StorageError: the address has an unknown scheme, no bucket or credentials that do not belong there.
    """
    scheme = scheme_of(url)
    if scheme in BUCKET_SCHEMES:
        return _bucket_and_key(scheme, url)
    if scheme in WEB_SCHEMES:
        return _server_and_key(scheme, url)
    schemes = ", ".join(f"{each}://" for each in (*BUCKET_SCHEMES, "file", *WEB_SCHEMES))
    raise StorageError(f"{redacted(url)}: packets are read from folders and from {schemes}")


def _bucket_and_key(scheme: str, url: str) -> tuple[StorageAddress, str]:
    host, _, key = url[len(scheme) + len("://") :].partition("/")
    if "@" in host or "?" in url or "#" in url:
        raise StorageError(
            f"{redacted(url)}: an address of a bucket has no user, no '?' and no '#'; "
            f"{_CREDENTIALS_ELSEWHERE}"
        )
    if not host:
        raise StorageError(f"{quoted(url)} names no bucket: write {scheme}://BUCKET/PREFIX")
    return StorageAddress(scheme, host), key.strip("/")


def _server_and_key(scheme: str, url: str) -> tuple[StorageAddress, str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StorageError(f"{redacted(url)}: the host is invalid") from None
    userinfo, _, host = parts.netloc.rpartition("@")
    key = unquote(parts.path).lstrip("/")
    if not host or not key or key.endswith("/"):
        raise StorageError(
            f"{redacted(url)}: a web server lists no files; name one packet file, or a bucket (s3://, gs://, az://)"
        )
    return StorageAddress(scheme, host, userinfo, parts.query), key


def redacted(text: str) -> str:
    """Return a text without the user, password and query of the addresses in it."""
    return _ADDRESS.sub(lambda match: _redacted_address(match[0]), text)


def _redacted_address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # an invalid host
        return f"{url.partition('://')[0]}://{HIDDEN}"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
