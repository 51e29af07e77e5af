"""Keys of objects and their prefixes."""

from __future__ import annotations

from collections.abc import Iterator


def below(key: str, prefix: str) -> str:
    """Return the part of a key after a prefix and its slash."""
    return key[len(prefix) + 1 :] if prefix else key


def joined(prefix: str, name: str) -> str:
    """Return the key of a name under a prefix, which may be empty."""
    return f"{prefix}/{name}" if prefix else name


def is_hidden(key: str, root: str) -> bool:
    """Return whether the name of an object, or of a prefix between it and the root, begins with a dot."""
    return "/." in f"/{below(key, root)}"


def prefixes_of(key: str, root: str) -> Iterator[str]:
    """Yield the prefixes of a key from the innermost up to the root, which is the last."""
    while key != root and key:
        key = key.rpartition("/")[0]
        yield key
