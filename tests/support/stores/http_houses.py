"""A broker in this process with its HTTP port, and clients of that port."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.security.guard import Guard
from broker_shim.security.passwords import secrets_of
from broker_shim.security.rules.permissions import Rule
from broker_shim.security.rules.users import LEAST_ITERATIONS, User
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.security.users_file import changing_users
from broker_shim.serve.administration.order_turns import OneBroker, OrderTurns
from broker_shim.serve.bind_address import listening_socket, parse_listen
from broker_shim.serve.http.http_server import HttpServer
from broker_shim.serve.http.port.http_connection import Patience
from broker_shim.serve.probes import Probes
from broker_shim.store.interface import BrokerStore, MessageHeader, Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.operations.bulk import MessageDraft
from tests.support.amqp.certificates import Pair

TIMEOUT_S = 20
PASSWORD = "secret word"


class Reply(NamedTuple):
    """The answer to a request; `body` is what its JSON says, or its text."""

    status: int
    body: Any
    headers: Mapping[str, str]


class HttpHouse:
    """A broker over a store in memory or another, its loop on a thread, and its HTTP port."""

    def __init__(
        self,
        folder: Path,
        users: Mapping[str, tuple[str, ...]] | None = None,
        permissions: tuple[Rule, ...] = (),
        delay_s: float = 0.0,
        store: BrokerStore | None = None,
        settings: BrokerSettings | None = None,
        tls: Pair | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Serve it.

        Args:
            folder: Has the users file.
            users: Names of users, with their roles; None: nobody logs in.
            permissions: Rules of who may do what.
            delay_s: How long the first failed login waits.
            store: A store that is empty, which it closes; None: one in memory.
            settings: Those of the broker, whose limits are the port's.
            tls: The certificate of the port; None: it has no TLS.
            patience: How long peers of the port may take.
        """
        self.audited: list[tuple[str, dict[str, Any]]] = []
        told = {} if tls is None else {"tls_cert": str(tls.certificate), "tls_key": str(tls.key)}
        guard = self._guard(folder, users, permissions, delay_s, told)
        inbox, settings = Inbox(), settings or BrokerSettings()
        self.loop = Loop(inbox)
        self.store = store or MemoryMessageStore()
        calls = StoreCalls(self.store, inbox, lambda _error: None)
        self.broker = Broker(calls, settings, Metrics(), self.loop.later, AmqpCommonHeader)
        self.turns = OrderTurns(self.loop, OneBroker(self.broker), self._audit)
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()
        listening = listening_socket(parse_listen("127.0.0.1:0"))
        self.port = listening.getsockname()[1]
        probes = Probes()
        probes.now(lambda: (), lambda: None, self.loop.post)
        self.server = HttpServer(probes, settings)
        self.server.listen(listening, guard, is_loopback=True, patience=patience or Patience())
        self.server.serving(self.loop, self.turns, self.store)

    def ask(
        self,
        method: str,
        path: str,
        user: str | None = None,
        said: Any = None,
        **headers: str,
    ) -> Reply:
        """Ask as a user with the right password, or as nobody; on any thread.

        Args:
            method: The HTTP method.
            path: As it is sent, with names that are percent-encoded.
            user: `name` or `name:password`.
            said: The body, as JSON; bytes as they are.
            headers: Further ones; `_` stands for `-`.
        """
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if user is not None:
            login = user if ":" in user else f"{user}:{PASSWORD}"
            sent["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        body = said if said is None or isinstance(said, bytes) else json.dumps(said).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        with closing(connection):
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            content = answer.read()
        is_json = answer.headers.get("Content-Type") == "application/json" and content
        told = json.loads(content) if is_json else content.decode()
        return Reply(answer.status, told, {k.lower(): v for k, v in answer.headers.items()})

    def put(self, queue: str, *bodies: bytes, header: MessageHeader | None = None) -> None:
        """Put messages on a queue, durably."""
        done = threading.Event()
        drafts = [MessageDraft(header or MessageHeader("raw", b"h"), body) for body in bodies]
        self.loop.post(lambda: self.broker.bulk.put(queue, drafts, lambda *_: done.set()))
        assert done.wait(TIMEOUT_S)

    def put_queue(self, name: str) -> None:
        """Have a queue, whatever users may do."""
        done = threading.Event()
        self.loop.post(lambda: self.broker.create_queue(Queue(name), lambda _error: done.set()))
        assert done.wait(TIMEOUT_S)

    def depth(self, queue: str) -> int:
        """The number of messages on a queue, as the port tells it."""
        depth: int = self.ask("GET", path_of(queue)).body["depth"]
        return depth

    def stop(self) -> None:
        """A clean end."""
        self.server.close()
        self.loop.stop()
        self._thread.join(TIMEOUT_S)
        self.loop.close()
        self.store.close()

    def _audit(self, event: str, **details: Any) -> None:
        self.audited.append((event, details))

    def _guard(
        self,
        folder: Path,
        users: Mapping[str, tuple[str, ...]] | None,
        permissions: tuple[Rule, ...],
        delay_s: float,
        tls: dict[str, str],
    ) -> Guard:
        if users is None:
            return Guard(SecuritySettings(**tls), audit=self._audit)
        file = folder / "users.json"
        secrets = secrets_of(PASSWORD, LEAST_ITERATIONS)
        with changing_users(file) as there:
            for name, roles in users.items():
                there[name] = User(name, frozenset(roles), secrets)
        settings = SecuritySettings(
            users=str(file), permissions=permissions, failed_login_delay_s=delay_s, **tls
        )
        return Guard(settings, ("SCRAM-SHA-256",), self._audit)


def path_of(queue: str, more: str = "") -> str:
    """The path of a queue, whatever its name."""
    return f"/api/v1/queues/{quote(queue, safe='')}{more}"
