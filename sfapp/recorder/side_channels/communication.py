"""Time that the training thread spends blocked in group communication, as torch.distributed is called.

Collectives, point-to-point calls and ``Work.wait`` are wrapped while anything listens; what they do is not
changed. A function that training code imported by name before (``from torch.distributed import all_reduce``)
is not seen. Waits inside C++, such as those of DistributedDataParallel's reducer, are not seen either.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any

_FUNCTIONS = (
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object"),
    *("all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier"),
    *("broadcast", "broadcast_object_list", "gather", "gather_object", "monitored_barrier"),
    *("recv", "recv_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor"),
    *("scatter", "scatter_object_list", "send", "send_object_list"),
    *("_all_gather_base", "_reduce_scatter_base"),
)
"""Functions of ``torch.distributed`` that may block."""

_MODULES = ("torch.distributed", "torch.distributed.distributed_c10d")

_FUNCTIONAL = "torch.distributed._functional_collectives"

Listener = Callable[[int], None]
"""Called on the thread that was blocked, with ns."""


class CommunicationHooks:
    """Wrappers of torch.distributed, in place while there is a listener.

    The time of a call inside another one counts once, in the outer one.
    """

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self._inside: set[int] = set()  # threads that are in a wrapped call
        self._originals: list[tuple[Any, str, Any]] = []

    def listen(self, thread: int, listener: Listener) -> None:
        """Report blocked time of a thread from now on; another listener of that thread is replaced."""
        self._listeners[thread] = listener
        if not self._originals:
            self._install()

    def stop(self, thread: int) -> None:
        """Report a thread's time no longer; without listeners nothing stays wrapped."""
        self._listeners.pop(thread, None)
        if not self._listeners:
            for owner, name, original in reversed(self._originals):
                setattr(owner, name, original)
            self._originals.clear()

    def _install(self) -> None:
        for module in _MODULES:
            for name in _FUNCTIONS:
                self._wrap(sys.modules.get(module), name)
        self._wrap(sys.modules.get(_FUNCTIONAL), "wait_tensor")
        core = getattr(sys.modules.get("torch._C"), "_distributed_c10d", None)
        self._wrap(getattr(core, "Work", None), "wait")

    def _wrap(self, owner: Any, name: str) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return
        self._originals.append((owner, name, original))
        setattr(owner, name, self._timed(original))

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        inside, listeners = self._inside, self._listeners

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            thread = get_ident()
            if thread in inside or thread not in listeners:
                return original(*args, **kwargs)
            inside.add(thread)
            begin = perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                blocked = perf_counter_ns() - begin
                inside.discard(thread)
                listener = listeners.get(thread)
                if listener is not None:
                    listener(blocked)

        return timed


COMMUNICATION = CommunicationHooks()
"""The one set of hooks of this process."""
