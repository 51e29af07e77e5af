"""Slow down guesses of the token: after a few wrong ones, an address must wait longer and longer."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE_GUESSES = 5
"""Number of wrong tokens of one address without a pause: users mistype a token a few times."""

LONGEST_PAUSE_S = 60.0
"""Longest pause after a wrong token; it begins at a second and doubles. This allows 1,440 guesses per day."""

MISTAKES_EXPIRE_S = 3600.0
"""Seconds after which the wrong tokens of an address no longer count."""

MAX_ADDRESSES = 10_000
"""Number of addresses that are kept, the most recent ones; about 2 MB."""

_IPV6_NETWORK = 64
"""Prefix length of an IPv6 network that counts as one address: a machine can use any address in it."""


@dataclass(slots=True)
class _Tries:
    wrong: int
    last: float


class GuessLimiter:
    """Counter of wrong tokens by address. Used on one thread.

    Args:
        clock: seconds, from any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, _Tries] = OrderedDict()

    def pause_s(self, address: str) -> int:
        """Return for how many seconds tokens of this address are ignored; 0 if they are accepted now."""
        tries = self._tries.get(_network(address))
        if tries is None or tries.wrong < FREE_GUESSES:
            return 0
        doublings = min(tries.wrong - FREE_GUESSES, 10)
        pause = min(LONGEST_PAUSE_S, 2.0**doublings)
        return max(0, math.ceil(tries.last + pause - self._clock()))

    def count_wrong(self, address: str) -> None:
        """Count a wrong token."""
        network, now = _network(address), self._clock()
        tries = self._tries.pop(network, None)
        if tries is None or now - tries.last > MISTAKES_EXPIRE_S:
            tries = _Tries(0, now)
        self._tries[network] = _Tries(tries.wrong + 1, now)
        while len(self._tries) > MAX_ADDRESSES:
            self._tries.popitem(last=False)

    def reset(self, address: str) -> None:
        """Reset the counter of an address that presented the right token."""
        self._tries.pop(_network(address), None)


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_NETWORK), strict=False))
