"""A client of AMQP 0-10, as the rules of delivery need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.controls import (
    SessionCommandPoint,
    SessionCompleted,
    SessionDetached,
    SessionExpected,
    SessionRequestTimeout,
)
from broker_shim.amqp_0_10.definitions import MessageFlowMode
from broker_shim.amqp_0_10.structs import DtxXid
from broker_shim.framing.sequences import Ranges, contains, ranges_of
from broker_shim.sockets.access import Access
from tests.support.amqp.amqp_0_10 import INFINITE, Client010, content
from tests.support.delivery.driver import Driver, Got
from tests.support.delivery.places import DeliveryPlace

_DESTINATION = "consumer"
_MESSAGES, _BYTES = 0, 1
_SMALL_FRAME, _FRAME = 4_096, 65_535


class Driver010(Driver):
    """See `Driver`."""

    name = "AMQP 0-10"

    def __init__(self, place: DeliveryPlace, *, has_small_frames: bool = False) -> None:
        super().__init__(place, has_small_frames=has_small_frames)
        self._session = b"session %d" % len(place.drivers)
        place.drivers.append(self)
        self._is_transacted = False
        self._kept: list[Got] = []
        self._accepted: list[Got] = []
        self._client = self._connected()
        place.exchangers.append(self._exchange)

    def _connected(self) -> Client010:
        side: Any = self.place.amqp_0_10
        self._client = Client010(side, Access())
        self._client.open(frame_bytes=_SMALL_FRAME if self.has_small_frames else _FRAME)
        self._client.attach(self._session)
        return self._client

    def _exchange(self) -> bool:
        self._client.exchange()
        return self._client.has_more

    def send(self, queue: str, *bodies: str, **said: Any) -> list[bool]:
        """See `Driver.send`."""
        mode = 2 if said.get("durable", True) else 1
        parts: dict[str, Any] = {"delivery_mode": mode, "priority": said.get("priority", 4)}
        exchange, key = queue.split("/") if "/" in queue else ("", queue)
        headers = {**(said.get("properties") or {}), **said.get("delivery", {})}
        if "group" in said:
            headers["JMSXGroupID"] = said["group"]
        if headers:
            parts["application_headers"] = headers
        if "message_id" in said:  # of this protocol any is a UUID
            parts["message_id"] = uuid5(NAMESPACE_OID, repr(said["message_id"]))
        if "ttl_ms" in said:
            parts["ttl"] = said["ttl_ms"]
        numbers = [
            self._say(c.MessageTransfer(exchange, 0, 0), **content(key, body.encode(), **parts))
            for body in bodies
        ]
        self._client.do(c.ExecutionSync(), sync=True)
        told = [self._is_done(number) for number in numbers]
        refused = [each.transfers for each in self._client.of(c.MessageReject)]
        return [
            done and not any(contains(ranges, number) for ranges in refused)
            for done, number in zip(told, numbers, strict=True)
        ]

    def declare(self, queue: str, **arguments: Any) -> None:
        """See `Driver.declare`: what 0-10 has a field for is said by that."""
        alternate = arguments.pop("alternate_exchange", None)
        command = c.QueueDeclare(
            queue,
            alternate,
            durable=True,
            auto_delete=arguments.pop("auto_delete", False),
            arguments=arguments,
        )
        assert self._do(command), self._client.told[-3:]

    def consume(
        self,
        queue: str,
        credit: int = 100,
        *,
        selector: str | None = None,
        settled: bool = False,
        browse: bool = False,
        kept: bool = False,
    ) -> None:
        """See `Driver.consume`."""
        if kept:
            self._client.do(SessionRequestTimeout(60))
        arguments = None if selector is None else {"x-filter-jms-selector": selector}
        modes = int(settled or browse), int(browse)
        self._say(c.MessageSubscribe(queue, _DESTINATION, *modes, arguments=arguments))
        self._say(c.MessageSetFlowMode(_DESTINATION, MessageFlowMode.CREDIT))
        self._say(c.MessageFlow(_DESTINATION, _BYTES, INFINITE))
        self._client.do(c.MessageFlow(_DESTINATION, _MESSAGES, credit), sync=True)

    @property
    def is_turned_away(self) -> bool:
        """See `Driver.is_turned_away`."""
        return bool(self._client.of(SessionDetached))

    def got(self) -> list[Got]:
        """See `Driver.got`."""
        came = [
            Got(body.decode(), number, header.delivery.redelivered)
            for _transfer, number, header, body in self._client.received
        ]
        return [*self._kept, *came]

    def drain(self) -> None:
        """See `Driver.drain`."""
        assert self._do(c.MessageFlush(_DESTINATION))

    def accept(self, *deliveries: Got) -> None:
        """See `Driver.accept`."""
        assert self._do(c.MessageAccept(_ranges(deliveries)))
        self._accepted += deliveries

    def release(self, *deliveries: Got, failed: bool = False) -> None:
        """See `Driver.release`."""
        assert self._do(c.MessageRelease(_ranges(deliveries), set_redelivered=failed))

    def reject(self, *deliveries: Got) -> None:
        """See `Driver.reject`."""
        assert self._do(c.MessageReject(_ranges(deliveries), 0, ""))

    def renew(self, *_deliveries: Got) -> bool:
        """Of AMQP 0-10 no command says so."""
        return False

    def begin(self) -> None:
        """See `Driver.begin`: a session is always in one, once it has selected that."""
        if not self._is_transacted:
            assert self._do(c.TxSelect())
            self._is_transacted = True

    def commit(self) -> bool:
        """See `Driver.commit`."""
        return self._do(c.TxCommit())

    def rollback(self) -> None:
        """See `Driver.rollback`."""
        assert self._do(c.TxRollback())

    def begin_branch(self, name: bytes) -> None:
        """Begin a branch of a distributed transaction, which AMQP 1.0 has not."""
        assert self._do(c.DtxSelect())
        assert self._do(c.DtxStart(_xid(name)))

    def end_branch(self, name: bytes, *, is_prepared: bool, commits: bool) -> None:
        """End a branch and decide it, prepared before or in one phase."""
        assert self._do(c.DtxEnd(_xid(name)))
        if is_prepared:
            assert self._do(c.DtxPrepare(_xid(name)))
        if commits:
            assert self._do(c.DtxCommit(_xid(name), one_phase=not is_prepared))
        else:
            assert self._do(c.DtxRollback(_xid(name)))

    def cancel(self) -> None:
        """See `Driver.cancel`: what was sent is the client's to give back."""
        assert self._do(c.MessageCancel(_DESTINATION))
        left = self.got()
        if left:
            self._do(c.MessageRelease(_ranges(left)))

    def lose(self) -> None:
        """See `Driver.lose`."""
        self._client.lose()

    def come_back(self, *, undecided: Sequence[Got], accepted: Sequence[Got]) -> None:
        """See `Driver.come_back`: the client says what it has taken in, and what it expects."""
        before, has = self._client, _ranges([*self._accepted, *undecided, *accepted])
        expected = [each.number for each in self.got() if not contains(has, each.number)]
        before.do(SessionCompleted(has))
        self.lose()
        self._kept, client = [*undecided], self._connected()
        first = min(expected, default=before.numbers[-1] + 1)
        client.do(SessionExpected(((first, first),)))
        client.next_id = before.next_id
        client.do(SessionCommandPoint(client.next_id, 0))
        if accepted:
            self.accept(*accepted)

    def _say(self, method: Any, **parts: Any) -> int:
        return self._client.say(method, sync=True, **parts)

    def _do(self, method: Any) -> bool:
        return self._is_done(self._say(method))

    def _is_done(self, number: int) -> bool:
        """Wait until a command is complete; False if the session ended instead."""
        self.place.until(
            lambda: self._client.is_complete(number) or self.is_turned_away,
            f"command {number} is complete",
        )
        return self._client.is_complete(number)


def _xid(name: bytes) -> DtxXid:
    return DtxXid(7, name, b"branch")


def _ranges(deliveries: Iterable[Got]) -> Ranges:
    return ranges_of(sorted(each.number for each in deliveries))
