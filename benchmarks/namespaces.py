"""Simulate the nodes of a cluster on one machine: network namespaces with separate addresses and cables.

There are two networks, as in clusters: ``train`` (10.83.0.0/24) carries gradients over a kernel bridge;
``manage`` (10.84.0.0/24) carries streams through this process, which can delay, drop or block frames. Needs
root, Linux and the command ``ip``.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

import psutil

TRAIN, MANAGE = "10.83.0", "10.84.0"

_ETH_P_ALL = 3
_OUTGOING = 4  # packet type of a frame that this socket sent
_SIOCETHTOOL = 0x8946
_OFFLOADS = (0x17, 0x1F, 0x24)  # checksums and segmentation, which veth links leave to hardware


def unavailable_reason() -> str:
    """Return why namespaces cannot be created here, or an empty string."""
    if shutil.which("ip") is None:
        return "the command ip is missing"
    name = f"sf{os.getpid()}probe"
    created = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if created.returncode:
        return f"network namespaces are not available: {created.stderr.strip()[:200]}"
    linked = subprocess.run(
        ["ip", "-n", name, "link", "add", "end0", "type", "veth", "peer", "name", "end1"],
        capture_output=True,
        text=True,
    )
    subprocess.run(["ip", "netns", "del", name], check=True)
    return (
        f"links between namespaces are not available: {linked.stderr.strip()[:200]}"
        if linked.returncode
        else ""
    )


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _connect(link: str) -> None:
    """Set a link up without an address: a new address of the machine makes browsers reload their pages."""
    _ip("link", "set", link, "addrgenmode", "none")
    _ip("link", "set", link, "up")


class Cluster:
    """Nodes of a simulated cluster, removed on exit together with the processes in them.

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
            _connect(self._bridge)
            for node in self._nodes:
                self._add(node)
            self.wire = Wire([self._outer(node, "m") for node in self._nodes])
        except BaseException:
            self._remove()
            raise

    def address(self, node: int, network: str = TRAIN) -> str:
        """Return a node's address."""
        return f"{network}.{node + 1}"

    def start(self, node: int, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a node, whose host name is ``node-K``."""
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
        """Plug in or pull both cables of a node."""
        self.plug_train(node, is_in=is_in)
        self.wire.cut = self.wire.cut - {node} if is_in else self.wire.cut | {node}

    def plug_train(self, node: int, *, is_in: bool) -> None:
        """Plug in or pull a node's cable to the training network."""
        _ip("link", "set", self._outer(node, "t"), "up" if is_in else "down")

    def pids(self, node: int) -> list[int]:
        """Return the process ids of a node."""
        found = subprocess.run(
            ["ip", "netns", "pids", self._name(node)], capture_output=True, text=True, check=True
        )
        return [int(pid) for pid in found.stdout.split()]

    def services(self, node: int) -> dict[str, psutil.Process]:
        """Return the live services of a job on one node by their command, such as ``relay``."""
        found: dict[str, psutil.Process] = {}
        for pid in self.pids(node):
            with suppress(psutil.Error):  # It may have ended.
                process = psutil.Process(pid)
                if (name := service_of(process.cmdline())) is not None:
                    found[name] = process
        return found

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
            _connect(outer)
        _ip("link", "set", self._outer(node, "t"), "master", self._bridge)
        _in_namespace(name, lambda: _disable_offloads("manage"))

    def _remove(self) -> None:
        for node in self._nodes:
            for outer in (self._outer(node, "t"), self._outer(node, "m")):
                subprocess.run(["ip", "link", "del", outer], capture_output=True)
            subprocess.run(["ip", "netns", "del", self._name(node)], capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)


def service_of(line: Sequence[str]) -> str | None:
    """Return the command of a live service of ``sfapp run``; None if the command line is not one of these."""
    return line[4] if line[1:3] == ["-P", "-c"] and line[4:5] in (["aggregate"], ["relay"]) else None


@contextmanager
def require_cluster(nodes: int) -> Iterator[Cluster]:
    """Create a cluster, or end the program if that is not possible here."""
    reason = unavailable_reason()
    if reason:
        raise SystemExit(f"cannot create nodes here: {reason}")
    with Cluster(nodes) as cluster:
        yield cluster


def _in_namespace(name: str, work: Any) -> None:
    """Call ``work`` on a new thread that has entered a namespace."""
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


def _disable_offloads(link: str) -> None:
    """Disable offloads, so that the kernel writes checksums and splits segments itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for offload in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", offload, 0), 8)
            request = struct.pack("16sP", link.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


class Wire:
    """Network that forwards frames between links on a thread.

    Attributes:
        delay: delay of each frame in seconds. loss: share of frames that is dropped.
        cut: indices of links whose cable is pulled.
        carried, lost: numbers of frames.
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
        self._in_transit: list[tuple[float, int, int, bytes]] = []
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop forwarding."""
        self._stop.set()
        self._thread.join()
        for end in self._sockets:
            end.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            until = self._in_transit[0][0] - time.monotonic() if self._in_transit else 0.05
            ready, _, _ = select.select(self._sockets, [], [], min(max(until, 0.0), 0.05))
            for end in ready:
                self._receive(self._sockets.index(end))
            self._deliver()

    def _receive(self, index: int) -> None:
        while True:
            try:
                frame, sender = self._sockets[index].recvfrom(65_536)
            except OSError:  # no more frames
                return
            if sender[2] == _OUTGOING:
                continue
            if index in self.cut or self._random.random() < self.loss:
                self.lost += 1
                continue
            at = time.monotonic() + self.delay
            heapq.heappush(self._in_transit, (at, self.carried, index, frame))
            self.carried += 1

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._in_transit and self._in_transit[0][0] <= now:
            _, _, origin, frame = heapq.heappop(self._in_transit)
            for index, end in enumerate(self._sockets):
                if index != origin and index not in self.cut:
                    try:
                        end.send(frame)
                    except OSError:  # the link is down, or its queue is full
                        self.lost += 1
