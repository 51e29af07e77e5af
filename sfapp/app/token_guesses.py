"""Slow down those who guess the token: each address may try a few, then ever more rarely."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE_GUESSES = 5
"""Wrong tokens of one address without a pause: a person mistypes one a few times."""

LONGEST_PAUSE_S = 60.0
"""Longest pause after a wrong token; it begins at a second and doubles. 1,440 guesses a day are left."""

MISTAKES_EXPIRE_S = 3600.0
"""Seconds after which the wrong tokens of an address no longer count."""

MAX_ADDRESSES = 10_000
"""Addresses remembered, those that tried last; some 2 MB."""

_IPV6_NETWORK = 64
"""Prefix of an IPv6 network that counts as one address: a single machine has as many as it wants in it."""


@dataclass(slots=True)
class _Tries:
    wrong: int
    last: float


class GuessLimiter:
    """Counts wrong tokens by address. Used on one thread.

    Args:
        clock: seconds, from any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, _Tries] = OrderedDict()

    def pause_s(self, address: str) -> int:
        """Return for how many seconds no token of this address is looked at; 0 where one is now."""
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
        """Start anew with an address that presented the right token."""
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
