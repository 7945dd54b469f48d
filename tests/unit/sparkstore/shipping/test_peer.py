"""Frames pass whole, whatever their length, and what is none is refused in one line."""

from __future__ import annotations

import socket

import pytest

from sparkstore.errors import CorruptData
from sparkstore.shipping.frames import PairFrame
from sparkstore.shipping.peer import Peer

HANDSHAKE, ALERT = 0x0316, 0x0315
"""Lengths whose first two bytes are those of a record of TLS."""


@pytest.mark.parametrize("length", [0, 1, HANDSHAKE, ALERT, HANDSHAKE + 0x10000])
def test_a_frame_of_any_length_passes(length: int) -> None:
    near, far = (Peer(end, "it", 10.0) for end in socket.socketpair())
    near.send(PairFrame.GROUP, bytes(length))
    assert far.receive(lambda _kind: 1 << 20) == (PairFrame.GROUP, bytes(length))
    near.close()
    far.close()


def test_a_greeting_of_tls_is_named() -> None:
    near, far = socket.socketpair()
    near.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    peer = Peer(far, "it", 10.0)
    with pytest.raises(CorruptData, match="it speaks TLS, and this machine does not"):
        peer.receive(lambda _kind: 1 << 20)
    peer.close()
    near.close()
