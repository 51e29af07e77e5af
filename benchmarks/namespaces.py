"""Nodes of a cluster on one machine: network namespaces with addresses of their own, and cables between them.

Two networks, as clusters have them: ``train`` (10.83.0.0/24), over which ranks exchange gradients, is a
bridge in the kernel; ``manage`` (10.84.0.0/24), over which they stream, goes through this process, which
delays, loses or stops its frames. Needs root, Linux and the command ``ip``.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from types import TracebackType
from typing import Any

TRAIN, MANAGE = "10.83.0", "10.84.0"

_ETH_P_ALL = 3
_OUTGOING = 4  # a frame's kind, where it is one that we sent
_SIOCETHTOOL = 0x8946
_OFFLOADS = (0x17, 0x1F, 0x24)  # checksums, segmentation: left to a card that there is not


def why_not() -> str:
    """Why no namespaces can be made here; empty where they can."""
    if shutil.which("ip") is None:
        return "no command ip"
    name = f"sf{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()[:200]}"
    linked = subprocess.run(
        ["ip", "-n", name, "link", "add", "end0", "type", "veth", "peer", "name", "end1"],
        capture_output=True,
        text=True,
    )
    subprocess.run(["ip", "netns", "del", name], check=True)
    return f"no links between namespaces: {linked.stderr.strip()[:200]}" if linked.returncode else ""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Cluster:
    """Some nodes, gone afterwards with all that still runs in them.

    Attributes:
        wire: the network ``manage``.
    """

    def __init__(self, nodes: int) -> None:
        self._prefix = f"sf{os.getpid()}"
        self._bridge = f"{self._prefix}br"
        self._nodes = range(nodes)
        self._processes: list[subprocess.Popen[Any]] = []
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("link", "set", self._bridge, "up")
            for node in self._nodes:
                self._add(node)
            self.wire = Wire([self._outer(node, "m") for node in self._nodes])
        except BaseException:
            self._remove()
            raise

    def address(self, node: int, network: str = TRAIN) -> str:
        """A node's address."""
        return f"{network}.{node + 1}"

    def start(self, node: int, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Run a command on a node, which calls itself ``node-K``."""
        inner = ["sh", "-c", f'hostname node-{node}; exec "$@"', "node", *command]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "train", "OMP_NUM_THREADS": "1"}
        environment.update(options.pop("environment", {}))
        name = self._name(node)
        process = subprocess.Popen(
            ["ip", "netns", "exec", name, "unshare", "--uts", *inner], env=environment, **options
        )
        self._processes.append(process)
        return process

    def plug(self, node: int, *, is_in: bool) -> None:
        """Put both of a node's cables in, or pull them."""
        self.plug_train(node, is_in=is_in)
        self.wire.cut = self.wire.cut - {node} if is_in else self.wire.cut | {node}

    def plug_train(self, node: int, *, is_in: bool) -> None:
        """The one over which it trains."""
        _ip("link", "set", self._outer(node, "t"), "up" if is_in else "down")

    def pids(self, node: int) -> list[int]:
        """The processes of a node."""
        found = subprocess.run(
            ["ip", "netns", "pids", self._name(node)], capture_output=True, text=True, check=True
        )
        return [int(pid) for pid in found.stdout.split()]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._nodes:
            for pid in self.pids(node):
                os.kill(pid, 9)
        for process in self._processes:
            process.wait(10)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self.wire.close()
        self._remove()

    def _name(self, node: int) -> str:
        return f"{self._prefix}n{node}"

    def _outer(self, node: int, network: str) -> str:
        return f"{self._prefix}{network}{node}"

    def _add(self, node: int) -> None:
        name = self._name(node)
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        for network, link in ((TRAIN, "train"), (MANAGE, "manage")):
            outer = self._outer(node, link[0])
            _ip("link", "add", outer, "type", "veth", "peer", "name", link, "netns", name)
            _ip("-n", name, "addr", "add", f"{self.address(node, network)}/24", "dev", link)
            _ip("-n", name, "link", "set", link, "up")
            _ip("link", "set", outer, "up")
        _ip("link", "set", self._outer(node, "t"), "master", self._bridge)
        _within(name, lambda: _without_offloads("manage"))

    def _remove(self) -> None:
        for node in self._nodes:
            for outer in (self._outer(node, "t"), self._outer(node, "m")):
                subprocess.run(["ip", "link", "del", outer], capture_output=True)
            subprocess.run(["ip", "netns", "del", self._name(node)], capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)


def _within(name: str, work: Any) -> None:
    """Do something in a namespace, on a thread of its own that goes there."""
    failed: list[BaseException] = []

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            with open(f"/var/run/netns/{name}") as namespace:
                if libc.setns(namespace.fileno(), 0x40000000):
                    raise OSError(ctypes.get_errno(), "setns")
            work()
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _without_offloads(link: str) -> None:
    """Have the kernel write checksums, and cut segments to size, before frames leave."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for offload in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", offload, 0), 8)
            request = struct.pack("16sP", link.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


class Wire:
    """Carries frames between links, on a thread.

    Attributes:
        delay: seconds that each frame takes. loss: the fraction that never arrives.
        cut: places of the links whose cable is pulled.
        carried, lost: frames so far.
    """

    def __init__(self, links: list[str]) -> None:
        self.delay = 0.0
        self.loss = 0.0
        self.cut: frozenset[int] = frozenset()
        self.carried = self.lost = 0
        self._stop = threading.Event()
        self._sockets = []
        for link in links:
            end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            end.bind((link, 0))
            end.setblocking(False)
            self._sockets.append(end)
        self._random = random.Random(0)
        self._on_the_way: list[tuple[float, int, int, bytes]] = []
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Carry no more."""
        self._stop.set()
        self._thread.join()
        for end in self._sockets:
            end.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            until = self._on_the_way[0][0] - time.monotonic() if self._on_the_way else 0.05
            ready, _, _ = select.select(self._sockets, [], [], min(max(until, 0.0), 0.05))
            for end in ready:
                self._take(self._sockets.index(end))
            self._deliver()

    def _take(self, place: int) -> None:
        while True:
            try:
                frame, sender = self._sockets[place].recvfrom(65_536)
            except OSError:  # no more
                return
            if sender[2] == _OUTGOING:
                continue
            if place in self.cut or self._random.random() < self.loss:
                self.lost += 1
                continue
            at = time.monotonic() + self.delay
            heapq.heappush(self._on_the_way, (at, self.carried, place, frame))
            self.carried += 1

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._on_the_way and self._on_the_way[0][0] <= now:
            _, _, origin, frame = heapq.heappop(self._on_the_way)
            for place, end in enumerate(self._sockets):
                if place != origin and place not in self.cut:
                    try:
                        end.send(frame)
                    except OSError:  # its end is down, or full
                        self.lost += 1
