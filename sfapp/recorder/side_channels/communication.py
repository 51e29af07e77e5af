"""Measure the time for which the training thread is blocked in calls of torch.distributed.

Collectives, point-to-point calls and ``Work.wait`` are wrapped while there is a listener; their behaviour
does not change. Functions that training code imported by name before (``from torch.distributed import
all_reduce``) are not measured, and neither are waits inside C++, such as those of DistributedDataParallel's
reducer.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from inspect import isfunction
from threading import get_ident
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.model.standstill import MAX_GROUP_RANKS

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


Call = tuple[str, tuple[Any, ...], Mapping[str, Any], int]


class DeviceSide(Protocol):
    """Interface that times a call on the device; raises nothing."""

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Begin a call with these arguments; return None if it is not timed."""

    def end(self, begun: Any) -> None:
        """End the call for which ``begin`` returned this."""


class Listener(NamedTuple):
    """A recording whose waits are a thread's calls.

    Attributes:
        owner: by whom it is replaced and removed.
        was_blocked: called on the thread with the ns of each call; raises nothing.
        device: times the same calls on the device, if any.
    """

    owner: object
    was_blocked: Callable[[int], None]
    device: DeviceSide | None


class BlockedThread:
    """A thread whose calls are timed.

    Attributes:
        listeners: the recordings of the thread.
        is_inside: whether the thread is in a wrapped call.
        call: name, arguments and begin (ns) of the wrapped call that the thread is in; None if it is in none.
    """

    __slots__ = ("call", "is_inside", "listeners")

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.is_inside = False
        self.call: Call | None = None

    def without(self, owner: object) -> tuple[Listener, ...]:
        """Return the listeners of other owners."""
        return tuple(each for each in self.listeners if each.owner is not owner)


class CommunicationHooks:
    """Wrappers of torch.distributed, in place while there is a listener.

    The time of a call inside another one counts once, in the outer one.
    """

    def __init__(self) -> None:
        self._threads: dict[int, BlockedThread] = {}
        self._wrapped: list[tuple[Any, str, Any, Any]] = []  # owner, name, original and wrapper
        # By id of the original: one wrapper wherever the function is found, and the same one when it is
        # wrapped again, because compiled code depends on which function it calls.
        self._wrappers: dict[int, Callable[..., Any]] = {}

    def listen(
        self,
        owner: object,
        thread: int,
        was_blocked: Callable[[int], None],
        device: DeviceSide | None = None,
    ) -> None:
        """Time calls of a thread from now on, replacing an earlier listener of that thread and owner."""
        blocked = self._threads.setdefault(thread, BlockedThread())
        blocked.listeners = (*blocked.without(owner), Listener(owner, was_blocked, device))
        if not self._wrapped:
            self._install()

    def stop(self, owner: object, thread: int) -> None:
        """Stop timing a thread's calls for an owner; the last listener removes all wrappers.

        What others have put in the place of a wrapper stays.
        """
        if (blocked := self._threads.get(thread)) is not None:
            blocked.listeners = blocked.without(owner)
            if not blocked.listeners:
                self._threads.pop(thread, None)
        if not self._threads:
            for holder, name, original, wrapper in self._wrapped:
                if getattr(holder, name, None) is wrapper:
                    setattr(holder, name, original)
            self._wrapped.clear()

    def current_call(self, thread: int) -> tuple[str, str, tuple[int, ...], int] | None:
        """Return the call that a thread is in: its name, the group's name and global ranks, and its begin.

        Safe on any thread. The group is empty if it is that of all ranks, large, or not an argument.
        """
        listener = self._threads.get(thread)
        call = None if listener is None else listener.call
        if call is None:
            return None
        name, args, kwargs, begin = call
        return name, *_group_of((*args, *kwargs.values())), begin

    def _install(self) -> None:
        traceable = _traceable_functions()
        for module in _MODULES:
            for name in _FUNCTIONS:
                self._wrap(sys.modules.get(module), name, traceable)
        self._wrap(sys.modules.get(_FUNCTIONAL), "wait_tensor", traceable)
        core = getattr(sys.modules.get("torch._C"), "_distributed_c10d", None)
        self._wrap(getattr(core, "Work", None), "wait", traceable)

    def _wrap(self, owner: Any, name: str, traceable: dict[Any, Any]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return
        wrapper = self._wrappers.get(id(original))
        if wrapper is None:
            timed = self._timed(original)
            wrapper = _unless_traced(original, timed) if name == "wait_tensor" else timed
            self._wrappers[id(original)] = wrapper  # It keeps the original.
        if isfunction(original) and original in traceable:
            traceable[wrapper] = traceable[original]
        self._wrapped.append((owner, name, original, wrapper))
        setattr(owner, name, wrapper)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        threads = self._threads
        name = original.__name__

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            thread = threads.get(get_ident())
            if thread is None or thread.is_inside:
                return original(*args, **kwargs)
            thread.is_inside = True
            listeners = thread.listeners
            # The device's events are recorded outside the clock reads, so that recording them does not count
            # as blocked.
            begun = [each.device and each.device.begin(args, kwargs) for each in listeners]
            begin = perf_counter_ns()
            thread.call = name, args, kwargs, begin
            try:
                return original(*args, **kwargs)
            finally:
                blocked = perf_counter_ns() - begin
                for each, on_device in zip(listeners, begun, strict=True):
                    each.was_blocked(blocked)
                    if on_device is not None and each.device is not None:
                        each.device.end(on_device)
                thread.is_inside = False
                thread.call = None

        return timed


def _traceable_functions() -> dict[Any, Any]:
    """Return torch.compile's own table of functions that it can put into a graph, with what it puts there.

    It finds them by identity, so wrappers must be in the table, and the originals before they are wrapped.
    """
    try:
        from torch.distributed import _functional_collectives as functional

        return functional.traceable_collective_remaps
    except Exception:  # fail-open: private to torch; code with collectives is then compiled in pieces
        return {}


def _unless_traced(original: Callable[..., Any], timed: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``timed``; ``original`` where torch.compile puts the call into a graph."""
    from torch.compiler import is_compiling

    @functools.wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if is_compiling() else timed(*args, **kwargs)

    return chosen


def _group_of(arguments: tuple[Any, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the name and the global ranks of the process group among a call's arguments."""
    torch_groups = sys.modules.get("torch.distributed.distributed_c10d")
    kind = getattr(torch_groups, "ProcessGroup", None)
    group = next((each for each in arguments if kind is not None and isinstance(each, kind)), None)
    if torch_groups is None or group is None:
        return "", ()
    try:
        ranks = tuple(sorted(torch_groups.get_process_group_ranks(group)))
        if len(ranks) == torch_groups.get_world_size():
            return "", ()
        return str(group.group_name)[:MAX_NAME_LENGTH], ranks if len(ranks) <= MAX_GROUP_RANKS else ()
    except Exception:  # fail-open: the group may have been destroyed meanwhile
        return "", ()


COMMUNICATION = CommunicationHooks()
"""The hooks of this process."""
