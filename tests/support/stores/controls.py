"""Roots whose queues are changed from outside: by a broker in this process, or by nobody's."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.security.guard import Guard
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.serve.administration.connection_orders import ConnectionOrders
from broker_shim.serve.administration.order_turns import OneBroker, OrderTurns
from broker_shim.serve.bind_address import listening_socket, parse_listen
from broker_shim.serve.broker_recovery import expire, recover
from broker_shim.serve.deciding_thread import DecidingThread, release_lost
from broker_shim.serve.http.http_server import HttpServer
from broker_shim.serve.pair.control import PairControl
from broker_shim.serve.probes import Probes
from broker_shim.serve.stores import trouble_of
from broker_shim.service.service import Service
from broker_shim.service.socket import ServiceSocket, listen_on_path
from broker_shim.sockets.listener import Listener
from broker_shim.sockets.served_connection import ConnectionHost
from broker_shim.store.branch_store import Xid
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.config import StoreConfig
from sparkstore.content.reader import ContentReader
from sparkstore.control.client import AdminClient, open_control
from sparkstore.core.annotations import Annotations
from sparkstore.core.fold import State
from sparkstore.core.state_machine.call_values import DequeueCall
from sparkstore.recovery.recovery import recover as recover_root
from sparkstore.tables.root import Root, open_root
from tests.support.stores.stores import DELTA_CONFIG, TIMEOUT_S, done

HEADER = MessageHeader("raw", b"h", subject="eggs", properties=(("color", "brown"),))


class ServedRoot:
    """A broker over a root, its loop on a thread; AMQP on a free port, control in the root."""

    def __init__(
        self,
        path: Path,
        held: Sequence[tuple[str, int]] = (),
        port_of: Callable[[Amqp10Listener], ConnectionHost] = lambda host: host,
        uri: str = "",
        config: StoreConfig = DELTA_CONFIG,
        *,
        expires: bool = False,
    ) -> None:
        """Serve it, with the timer of expiry or without; `uri`: of a bucket with this copy."""
        self.inbox = Inbox()
        loop = Loop(self.inbox)
        self.store = DeltaMessageStore(uri or path, config)
        self._listener = Listener(loop)
        self.failures: list[Any] = []
        self.audited: list[tuple[str, dict[str, Any]]] = []
        calls = StoreCalls(self.store, self.inbox, self.failures.append)

        self.broker = Broker(calls, BrokerSettings(), Metrics(), loop.later, AmqpCommonHeader)
        host = Amqp10Listener(self.broker)
        recover(self.store, host)
        if expires:
            expire(self.store, self.broker)
        for queue, message_id in held:
            done(self.store.acquire, message_id, queue, "live")
            self.broker.queues[queue].withdraw([message_id])
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        self.port = listening.getsockname()[1]
        self._listener.listen(port_of(host), listening)
        root_id = open_root(path).identity.root_id

        def audit(event: str, **details: Any) -> None:
            self.audited.append((event, details))

        decider = OneBroker(self.broker, self.store.look)
        turns = OrderTurns(
            loop,
            decider,
            audit,
            ConnectionOrders(self._listener.connections, audit),
            partial(trouble_of, self.store),
        )
        self.probes = probes_of(loop)
        self._http = HttpServer(self.probes, BrokerSettings())
        self._http.serving(loop, turns, self.store, root_id)
        self._http.listen_to_owner(path, audit)
        self._turns = turns
        self._thread = threading.Thread(target=self._listener.run)
        self._thread.start()

    def serve_http(self) -> str:
        """Have an HTTP port, too, where nobody logs in; its URL."""
        listening = listening_socket(parse_listen("127.0.0.1:0"))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._http.listen(listening, Guard(SecuritySettings()), is_loopback=True)
        return url

    def control_pair(self, config: StoreConfig) -> PairControl:
        """Take orders about the pair; a switch ends the loop."""
        shipping = self.store.log.shipping
        assert shipping is not None
        self.probes.pair = pair = PairControl(
            self.store.log, shipping, config, self._listener.stop, successor_s=TIMEOUT_S
        )
        self._listener.successor = pair
        return pair

    def stop(self) -> None:
        """A clean end, in the order of `serve`."""
        self._listener.stop()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        self._http.stopping()
        self._turns.give_up()
        self._http.close()
        self._listener.close()
        self.store.close()
        self.inbox.close()


def probes_of(loop: Loop | None = None) -> Probes:
    """Probes of a process that is well."""
    probes = Probes()
    probes.now(lambda: (), lambda: None, None if loop is None else loop.post)
    return probes


class ServicedRoot:
    """A store service without AMQP over a root, in this process."""

    def __init__(
        self,
        path: Path,
        held: Sequence[tuple[str, int]] = (),
        config: StoreConfig = DELTA_CONFIG,
        *,
        expires: bool = False,
        store_of: type[DeltaMessageStore] = DeltaMessageStore,
    ) -> None:
        self.store = store_of(path, config)
        self._folder = tempfile.TemporaryDirectory(prefix="sock-", dir=os.environ.get("TMPDIR"))
        self.path = Path(self._folder.name) / "s"
        self.audited: list[tuple[str, dict[str, Any]]] = []
        release_lost(self.store)
        self.http = HttpServer(probes_of(), BrokerSettings())
        self._deciding = DecidingThread(
            self.store,
            BrokerSettings(),
            self._audit,
            self.http,
        )
        address = ServiceSocket(listen_on_path(self.path), None)
        if expires:
            self._deciding.expire()
        self.dispatcher = self._deciding.dispatcher
        self.post = self._deciding._loop.post
        self.service = Service(self.store, [address], 1 << 27, dispatcher=self.dispatcher)
        for queue, message_id in held:
            done(self.store.acquire, message_id, queue, "live")

    def _audit(self, event: str, **details: Any) -> None:
        self.audited.append((event, details))

    def stop(self) -> None:
        """A clean end, in the order of `serve`."""
        self.service.close()
        self._deciding.close()
        self.http.close()
        self.store.close()
        self._folder.cleanup()


class Place:
    """A root with messages, and whoever changes its queues."""

    def __init__(
        self, path: Path, *, is_served: bool, by_service: bool = False, expires: bool = False
    ) -> None:
        self._expires = expires
        self.path, self.is_served, self.by_service = path, is_served, by_service
        self.serviced: ServicedRoot | None = None
        self._held: list[tuple[str, int]] = []
        self.served: ServedRoot | None = None
        self._control: AdminClient | None = None
        self._store: DeltaMessageStore | None = DeltaMessageStore(path, DELTA_CONFIG)

    def create(self, name: str, **arguments: Any) -> None:
        """A queue, while nobody serves yet."""
        assert self._store is not None
        done(self._store.create, Queue(name, arguments=arguments))

    def put(
        self,
        *queues: str,
        count: int = 1,
        header: MessageHeader = HEADER,
        annotations: Annotations | None = None,
    ) -> list[int]:
        """New messages, each on all of the queues, while nobody serves yet."""
        assert self._store is not None
        ids = []
        for number in range(count):
            message = self._store.message(header, b"body %d" % number)
            for queue in queues:
                done(self._store.enqueue, message, queue, annotations=annotations)
            ids.append(message.message_id)
        return ids

    def prepare(self, xid: Xid, queue: str, *message_ids: int) -> None:
        """A branch in doubt takes messages off a queue, while nobody serves yet."""
        assert self._store is not None
        branch = self._store.begin()
        done(self._store.call, DequeueCall(message_ids, queue, "c"), transaction=branch)
        done(self._store.prepare, branch, xid)

    def hold(self, queue: str, message_id: int) -> None:
        """A consumer has acquired a message, and lives if there is a broker."""
        self._held.append((queue, message_id))

    def fail(self, queue: str, message_id: int, times: int) -> None:
        """A message was delivered and given back so often."""
        assert self._store is not None
        for _ in range(times):
            done(self._store.acquire, message_id, queue, "c")
            done(self._store.release, message_id, queue, "c", delivery_failed=True)

    @property
    def control(self) -> AdminClient:
        """Who changes the queues; opened by the first use."""
        if self._control is None:
            self._open()
        assert self._control is not None
        return self._control

    def _open(self) -> None:
        assert self._store is not None
        if not self.is_served:
            for queue, message_id in self._held:
                done(self._store.acquire, message_id, queue, "dead")
        self._store.close()
        self._store = None
        if self.by_service:
            self.serviced = ServicedRoot(self.path, self._held, expires=self._expires)
        elif self.is_served:
            self.served = ServedRoot(self.path, self._held, expires=self._expires)
        self._control = open_control(self.path)

    def close(self) -> None:
        """End whoever has the root."""
        if self._control is not None:
            self._control.close()
        if self.served is not None:
            self.served.stop()
            self.served = None
        if self.serviced is not None:
            self.serviced.stop()
            self.serviced = None
        if self._store is not None:
            self._store.close()

    def after(self) -> After:
        """What is in the root, once everybody has let go of it."""
        self.close()
        return After(open_root(self.path))


class After:
    """What a root holds."""

    def __init__(self, root: Root) -> None:
        self.state: State = recover_root(root).state
        self.reader = ContentReader(root)

    def ids(self, queue: str) -> list[int]:
        """Message ids on a queue, in its order."""
        return [*self.state.queues[queue].entries]

    def body(self, message_id: int) -> bytes:
        """Of a message."""
        return self.reader.read(message_id)[1]
