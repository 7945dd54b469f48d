"""Who comes and goes at the other sockets leaves nothing that only Python's collector would find.

As `tests.unit.broker_shim.sockets.test_hang_ups` shows of AMQP: an administrator and a member come
and go as long as a process runs.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from sparkstore.control.socket_address import SocketAddress
from tests.support.amqp.left_behind import objects_left, told
from tests.support.amqp.served_listener import TIMEOUT_S
from tests.support.roots.logs import until
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.owners import ask_as_owner
from tests.support.stores.raw_member import RawMember

pytestmark = pytest.mark.slow

TIMES = 1_000
MOST = 0.6


@pytest.mark.parametrize("asks", [True, False])
def test_an_administrator_that_is_gone_leaves_nothing_for_the_collector(
    tmp_path: Path, *, asks: bool
) -> None:
    place = ServicedRoot(tmp_path / "root")

    def come() -> None:
        if asks:
            assert ask_as_owner(tmp_path / "root", "GET", "self").status == 200
            return
        with socket.socket(socket.AF_UNIX) as client, SocketAddress(tmp_path / "root") as address:
            client.connect(address)

    def settle() -> None:
        until(lambda: not place.http.ports[-1].places.count)

    left = objects_left(come, TIMES, settle)
    place.stop()
    assert left < MOST, told()


@pytest.mark.parametrize("greets", [True, False])
def test_a_member_that_is_gone_leaves_nothing_for_the_collector(
    tmp_path: Path, *, greets: bool
) -> None:
    place = ServicedRoot(tmp_path / "root")

    def come(*, greets: bool = greets) -> None:
        member = RawMember(place.path, incarnation="one")
        if greets:
            member.hello()
        member.peer.close()

    def settle() -> None:
        come(greets=True)
        for thread in threading.enumerate():
            if thread.name in {"member", "reads"}:
                thread.join(TIMEOUT_S)

    left = objects_left(come, TIMES, settle)
    place.stop()
    assert left < MOST, told()
