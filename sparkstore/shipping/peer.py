"""Frames over a socket, for one thread at a time; each call has an end in time and in bytes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

from sparkstore.errors import CorruptData, InvalidRequest, StoreError, Unavailable
from sparkstore.shipping.frames import HEAD, PairFrame, as_json, encoded, from_json

_TLS = (b"\x16\x03", b"\x15\x03")
"""A record of TLS begins so, and a frame of 790 bytes."""
_CHUNK_BYTES = 1 << 18
_BUFFER_BYTES = 4 << 20
"""Room in the kernel, so that a group is on its way while it is written to the own disk."""


class RefusedByPeer(Unavailable):
    """Ask again, but not soon: the other machine answers, and does not want it now."""


class Peer:
    """The other machine; who has it calls `close`.

    Attributes:
        where: Its address, for people.
    """

    def __init__(self, connection: socket.socket, where: str, patience_s: float) -> None:
        """Talk over a connected socket, of TLS or not.

        Args:
            connection: The socket; closed by `close`.
            where: Its address, for people.
            patience_s: How long a frame may take, in either direction.
        """
        self._connection, self.where, self.patience_s = connection, where, patience_s
        self._waiting = bytearray()
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                connection.setsockopt(socket.SOL_SOCKET, name, _BUFFER_BYTES)

    def send(self, kind: PairFrame, body: bytes = b"") -> None:
        """Send one frame to the other machine.

        Raises:
            Unavailable: The connection is gone, or the other machine takes nothing.
        """
        try:
            self._connection.settimeout(self.patience_s)
            self._connection.sendall(encoded(kind, body))
        except OSError as reason:
            raise self._gone(reason) from reason

    def receive(self, limit: Callable[[int], int]) -> tuple[PairFrame, bytes]:
        """Receive one frame of the other machine.

        Args:
            limit: Gives for a kind how many bytes its body may have.

        Raises:
            Unavailable: The connection is gone, or the frame was not there in time.
            CorruptData: It is none, or too long.
            StoreError: What the other machine refuses.
        """
        ends_at = time.monotonic() + self.patience_s
        self._fill(HEAD.size, ends_at)
        length, number = HEAD.unpack_from(self._waiting)
        if number not in PairFrame.__members__.values() or length > limit(number):
            if self._waiting[:2] in _TLS:
                message = f"{self.where} speaks TLS, and this machine does not: have it on both"
                raise CorruptData(message)
            message = f"{self.where} sent a frame of kind {number} and {length} bytes: it is no"
            raise CorruptData(f"{message} sparkstore, or one of another version")
        self._fill(HEAD.size + length, ends_at)
        body = bytes(self._waiting[HEAD.size : HEAD.size + length])
        del self._waiting[: HEAD.size + length]
        if number == PairFrame.REFUSED:
            raise _refusal(body)
        return PairFrame(number), body

    def refuse(self, reason: StoreError) -> None:
        """Say why this is the end, if the other machine still listens."""
        body = as_json({"error": type(reason).__name__, "text": str(reason)[:1000]})
        with suppress(StoreError):
            self.send(PairFrame.REFUSED, body)

    def close(self) -> None:
        """End the connection; from any thread, and more than once."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _fill(self, size: int, ends_at: float) -> None:
        while len(self._waiting) < size:
            left_s = ends_at - time.monotonic()
            if left_s <= 0:
                raise Unavailable(f"{self.where} did not answer for {self.patience_s:g} s")
            try:
                self._connection.settimeout(left_s)
                piece = self._connection.recv(
                    min(_CHUNK_BYTES, max(size - len(self._waiting), 4096))
                )
            except OSError as reason:
                raise self._gone(reason) from reason
            if not piece:
                raise Unavailable(f"{self.where} ended the connection")
            self._waiting += piece

    def _gone(self, reason: OSError) -> Unavailable:
        return Unavailable(f"{self.where} is cut off: {reason}")


def _refusal(body: bytes) -> StoreError:
    """Return the error that the other machine names: one that stays, or one that may pass."""
    refusal = from_json(body)
    if not isinstance(refusal, dict):
        return CorruptData("the other machine refuses, and does not say why")
    error = InvalidRequest if refusal.get("error") == "InvalidRequest" else RefusedByPeer
    return error(f"the other machine refuses: {refusal.get('text')}")
