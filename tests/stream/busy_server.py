"""A server that reads nothing for a while, during which its client leaves. Prints what it has read then.

Heartbeats are sent every second, so that several would be sent to the client that is gone.
"""

from __future__ import annotations

import subprocess
import sys
import time

import zmq

from sfapp.stream import encryption

MESSAGES, BUSY_SECONDS, CLIENT_SECONDS = 600, 5.0, 1.0


def main() -> None:
    """Bind, start the client, and read once it has left."""
    encryption.HEARTBEAT_SECONDS = 1
    with zmq.Context() as context, context.socket(zmq.ROUTER) as server:
        server.rcvhwm = 100
        endpoint = encryption.bind(server, "tcp://127.0.0.1:*", None)
        client = subprocess.Popen([sys.executable, "-m", __spec__.name, endpoint])
        time.sleep(BUSY_SECONDS)
        read = 0
        while server.poll(1000):
            server.recv_multipart()
            read += 1
        client.wait()
        print("read", read)


def leave(endpoint: str) -> None:
    """Send more than the server's queue takes, and leave."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.sndhwm = 64
        encryption.connect(client, endpoint, None)
        for _ in range(MESSAGES):
            if client.poll(0, zmq.POLLOUT):
                client.send(bytes(600))
            time.sleep(CLIENT_SECONDS / MESSAGES)


if __name__ == "__main__":
    leave(sys.argv[1]) if len(sys.argv) > 1 else main()
