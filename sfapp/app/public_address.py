"""The address under which a reverse proxy serves the app: its host, its path, and whether by TLS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sfapp.errors import ServeError

_ROOT = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")
"""Paths below which a proxy may serve: plain segments, which need no quoting anywhere."""


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """A parsed ``--public-url``.

    Attributes:
        host: its name, lower case, without port.
        root: path before every address of the app, without a slash at its end; empty at the top.
        is_tls: whether visitors come by https.
        url: the address itself, with a slash at its end.
    """

    host: str
    root: str
    is_tls: bool
    url: str

    @classmethod
    def parse(cls, text: str) -> PublicAddress:
        """Parse ``https://HOST[:PORT][/PATH]``.

        Raises:
            ServeError: it is something else.
        """
        try:
            parts = urlsplit(text)
            _ = parts.port
        except ValueError:
            parts = urlsplit("")
        root = parts.path.rstrip("/")
        is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
        if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
            raise ServeError(f"--public-url must be https://HOST or https://HOST/PATH, not {text!r}")
        if not _ROOT.fullmatch(root):
            raise ServeError(
                f"--public-url: the path {root!r} may hold letters, digits, '.', '_', '~' and '-'"
            )
        url = f"{parts.scheme}://{parts.netloc}{root}/"
        return cls(parts.hostname.lower(), root, parts.scheme == "https", url)
