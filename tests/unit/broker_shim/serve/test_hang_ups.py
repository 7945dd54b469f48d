"""Who comes and goes at the other sockets leaves nothing that only Python's collector would find.

As `tests.unit.broker_shim.sockets.test_hang_ups` shows of AMQP: a monitor, an administrator and a
member come and go as long as a process runs.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from broker_shim.serve.administration.control import ControlServer
from broker_shim.serve.administration.order_turns import OneBroker, OrderTurns
from sparkstore.control.socket_address import SOCKET_NAME
from sparkstore.operations import wire
from tests.support.amqp.left_behind import objects_left, told
from tests.support.amqp.served_listener import TIMEOUT_S, Served
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.raw_member import RawMember
from tests.support.stores.services import short_folder

pytestmark = pytest.mark.slow

TIMES = 1_000
MOST = 0.5
ROOT_ID = "a root"


@pytest.mark.parametrize("greets", [True, False])
def test_an_administrator_that_is_gone_leaves_nothing_for_the_collector(*, greets: bool) -> None:
    served = Served()
    found: list[float] = []
    with short_folder() as folder:
        turns = OrderTurns(served.loop, OneBroker(served.broker))
        server = ControlServer(served.loop, turns, Path(folder), ROOT_ID)

        def come(*, greets: bool = greets) -> None:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(folder / SOCKET_NAME))
                client.settimeout(TIMEOUT_S)
                if greets:
                    client.sendall(wire.line(wire.hello(ROOT_ID)))
                    assert ROOT_ID.encode() in client.recv(1000)

        def settle() -> None:
            come(greets=True)  # it came last
            is_over = False
            while not is_over:
                looked = threading.Event()

                def look(looked: threading.Event = looked) -> None:
                    nonlocal is_over
                    is_over = not server.client_count
                    looked.set()

                served.loop.post(look)
                assert looked.wait(TIMEOUT_S)

        served.run_while(lambda: found.append(objects_left(come, TIMES, settle)))
        server.close()
    served.close()
    assert found[0] < MOST, told()


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
