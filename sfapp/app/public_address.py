"""Parse the address under which a reverse proxy serves the app."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sfapp.errors import ServeError

_ROOT = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")
"""Allowed paths of a proxy: plain segments that need no quoting anywhere."""


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """A parsed ``--public-url``.

    Attributes:
        host: its name, lower case, without port.
        root: path before every address of the app, without a trailing slash; empty at the top.
        is_tls: whether visitors use https.
        url: the address itself, with a trailing slash.
    """

    host: str
    root: str
    is_tls: bool
    url: str

    @classmethod
    def parse(cls, text: str) -> PublicAddress:
        """Parse ``https://HOST[:PORT][/PATH]``.

        Raises:
            ServeError: it has another form.
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
