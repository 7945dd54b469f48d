"""A primary and its standby in one process: real logs, real sockets, roots of their own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sparkstore.config import StoreConfig
from sparkstore.errors import StoreError
from sparkstore.log.writer import Log
from sparkstore.standby.port import StandbyPort
from sparkstore.standby.stand_by import PeerAddress, StandBy
from tests.support.roots.logs import CONFIG, TIMEOUT_S, opened

TOKEN = "a token of the pair"
PAIR = replace(CONFIG, standby_listen="127.0.0.1:0", standby_grace_s=2.0)


@contextmanager
def serving(
    where: Path, config: StoreConfig = PAIR, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[Log, StandbyPort]]:
    """An open log that a standby may connect to."""
    with opened(where, config) as log:
        port = StandbyPort(log, socket.create_server(("127.0.0.1", 0)), TOKEN, tls)
        try:
            yield log, port
        finally:
            port.close()


@contextmanager
def on_a_thread(standby: StandBy, run: Callable[[], object]) -> Iterator[None]:
    """Have a standby run on a thread of its own, stopped at the end."""
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        standby.stop()
        thread.join(TIMEOUT_S)


@contextmanager
def standing_by(
    where: Path, port: int, config: StoreConfig = PAIR, token: str = TOKEN
) -> Iterator[StandBy]:
    """A standby that runs on a thread of its own, stopped at the end."""
    standby = StandBy(where, config, PeerAddress("127.0.0.1", port, token))
    with on_a_thread(standby, standby.run):
        yield standby


def port_of(port: StandbyPort) -> int:
    """The number of a port."""
    return int(port.url.rpartition(":")[2])


def refusal_of(where: Path, port: int, token: str = TOKEN) -> StoreError | None:
    """What a standby ends with that is refused."""
    standby = StandBy(where, PAIR, PeerAddress("127.0.0.1", port, token))
    try:
        standby.run()
    except StoreError as reason:
        return reason
    return None
