"""Starting and stopping ``sfapp serve``: real processes, real signals, real sockets."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from sfapp.app.server import ServeOptions, serve
from sfapp.errors import ServeError
from tests.app.served import refused, served


def options(**changes: object) -> ServeOptions:
    return ServeOptions(**({"paths": (Path(__file__).parent,), "port": 0} | changes))  # type: ignore[arg-type]


def refusal(**changes: object) -> str:
    with pytest.raises(ServeError) as caught:
        serve(options(**changes), announce=lambda _: None)
    return str(caught.value)


def test_a_path_that_is_not_there_is_named() -> None:
    assert refusal(paths=(Path("/no/such/folder"),)) == "no such file or folder: /no/such/folder"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_an_address_beyond_this_machine_demands_a_token(host: str) -> None:
    assert "protect it with --token" in refusal(host=host)


def test_an_empty_token_protects_nothing() -> None:
    assert "the token is empty" in refusal(host="0.0.0.0", token=" ")


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port}" in refusal(port=port)
        assert "--port" in refusal(port=port)


def test_an_address_of_another_machine_is_refused() -> None:
    assert "192.0.2.7" in refusal(host="192.0.2.7", token="t", port=8642)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_being_told_to_stop_is_no_failure(packets: Path, tmp_path: Path, number: int) -> None:
    # Given a server with its store next to the packets
    with served(packets, cwd=tmp_path) as server:
        assert httpx.get(f"{server.url}healthz").json()["status"] == "ok"
        # When it is told to stop, then it ends cleanly, without a word
        assert server.stop(number) == (0, "")
    # And the store is whole and free, and nothing else was left anywhere
    assert (packets / ".sfapp" / "store.duckdb").is_file()
    assert not (packets / ".sfapp" / "store.duckdb.wal").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["packets"]


def test_a_second_server_on_the_same_store_is_told_of_the_first(packets: Path, tmp_path: Path) -> None:
    with served(packets, cwd=tmp_path) as first:
        code, complaint = refused(packets, "--port", "0", cwd=tmp_path)
    assert code == 2
    assert f"process {first.process.pid}" in complaint
    assert "--db" in complaint


def test_a_foreign_websocket_is_refused_by_the_running_server(packets: Path, tmp_path: Path) -> None:
    with served(packets, "--memory", cwd=tmp_path) as server:
        address = f"ws://127.0.0.1:{server.port}/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
        with pytest.raises(InvalidStatus) as caught:
            connect(address, origin="http://evil.example")
        assert caught.value.response.status_code == 403
        with connect(address, origin=f"http://127.0.0.1:{server.port}") as own:
            assert own.recv(timeout=5).startswith("0{")  # engine.io's greeting


def test_the_token_opens_the_running_server(packets: Path, tmp_path: Path) -> None:
    with served(packets, "--memory", "--token", "s3 cret", cwd=tmp_path) as server:
        assert server.url.endswith("/?token=s3%20cret")
        base = server.url.split("?")[0]
        with httpx.Client(follow_redirects=True) as visitor:
            assert visitor.get(base).status_code == 401
            page = visitor.get(server.url)
            assert page.status_code == 200
            assert "token" not in str(page.url)
            assert visitor.get(f"{base}index.json").status_code == 200
        assert httpx.get(f"{base}metrics", headers={"Authorization": "Bearer s3 cret"}).status_code == 200
