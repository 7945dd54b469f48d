"""The one way to change queues from outside: through the running broker, or under its lock.

`open_control` asks who serves the root. A broker or store service that runs listens on
`<root>/control.sock` (mode 0600, owner's peers only) and carries requests out through its store. If
none runs, the same requests are carried out here, under the writer's lock (`offline`). The lock
decides: a socket file that nobody listens on proves nothing, so the lock is taken then, and whoever
has it meanwhile is asked again.

Decision: a store service refuses orders while a Broker-J host is attached. That host has the queues
in its memory and would not see what is changed beside it; it is asked instead.

Each request is one transaction: a broker or a client that is killed leaves it done or not done,
never half, and asking again is harmless.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from sparkstore.config import StoreConfig
from sparkstore.control.socket_address import SocketAddress
from sparkstore.errors import InvalidRequest, Locked, Unavailable
from sparkstore.operations import wire
from sparkstore.operations.administration import Order
from sparkstore.operations.branch_orders import BranchOrder
from sparkstore.operations.bulk import Answer, MessageDraft, Request
from sparkstore.operations.placement import PlacementRequest
from sparkstore.operations.placement_wire import placements_line
from sparkstore.storage.objects import checked_uri, is_object_uri
from sparkstore.tables.root import Root, open_root

ANSWER_S = 120.0
"""A request that is not answered in so many seconds has an unknown outcome."""
READ_S = 10.0
"""Who only asks has the answer at once, unless the broker does not come round."""
_CONNECT_S = 10.0
_TRIES = 20
_PAUSE_S = 0.25


class AdminClient(Protocol):
    """Changes the queues of one root: each request is one transaction and gets one answer.

    Calls wait for the answer. One thread at a time may use it.
    """

    def run(self, request: Request) -> Answer:
        """Carry out a request; when this returns, what it did is durable.

        Raises:
            InvalidRequest: Unknown queue or target, or a target that is none; nothing was done.
            Unavailable: The outcome is unknown: ask again.
            Full: There is no room; nothing was done.
            StoreError: The store has ended.
        """

    def put(self, queue: str, messages: Sequence[MessageDraft]) -> Answer:
        """Put new messages on a queue, all or none; asking again puts them there twice.

        When this returns, they are durable.

        Raises:
            StoreError: It was refused, or nobody knows what came of it: for the reasons of `run`.
        """

    def place(self, request: PlacementRequest) -> Answer:
        """Carry out changes of place, all of those that are possible or none.

        When this returns, they are durable.

        Raises:
            StoreError: It was refused, or nobody knows what came of it: for the reasons of `run`.
        """

    def order(self, order: Order) -> dict[str, Any]:
        """Carry out an order of an administrator; returns what it came to, which is durable.

        Raises:
            InvalidRequest: The order cannot be carried out; nothing was done.
            StoreError: It was refused, or nobody knows what came of it: for the reasons of `run`.
        """

    def branch(self, order: BranchOrder) -> dict[str, Any]:
        """Decide a branch in doubt in place of its coordinator, or forget that this was done.

        Raises:
            InvalidRequest: No such branch is in doubt, or an operator decided it; to forget: none
                did. Nothing was done.
            StoreError: It was refused, or nobody knows what came of it: for the reasons of `run`.
        """

    def flush(self) -> None:
        """Wait until the tables have all that was done before.

        Raises:
            StoreError: They cannot, for the reasons of `run`.
        """

    def purge(
        self, queue: str, show: Callable[[Answer], None], operation: str | None = None
    ) -> Answer:
        """Remove what was on a queue when this began; what is acquired stays.

        It goes in several transactions; `operation` names them in history. `show` is called after
        each, with the sum of what is durably done by then.

        Raises:
            StoreError: It stopped, for the reasons of `run`; what `show` was told last is done.
        """

    def close(self) -> None:
        """Let go of the connection, or of the root. May be called twice."""


def open_control(
    where: Root | str | Path, config: StoreConfig | None = None, audit_file: Path | None = None
) -> AdminClient:
    """Open whatever can change the queues of a root now.

    Args:
        where: The root, a folder or the URI of a bucket.
        config: Settings of the store, for when no broker runs: where its write-ahead log is; and
            where a store on a bucket has its working copy.
        audit_file: Gets the audit lines while no broker runs; None: `audit.log` in the root.

    Raises:
        InvalidRequest: There is no root; it is a file:// URI, whose lock nobody here can see; its
            write-ahead log is elsewhere; the audit file cannot be written.
        Locked: Another process has the root and does not listen; of a bucket: a store on another
            machine serves it, or did not end well.
        StoreError: The root cannot be opened.
    """
    if isinstance(where, str) and "://" in where and not is_object_uri(where):
        message = f"{where}: give the folder: only there the lock tells whether a broker runs"
        raise InvalidRequest(message)
    settings = config or StoreConfig()
    for attempt in range(_TRIES):
        served = connect_to(where, settings.copy_dir)
        if served is not None:
            return served
        try:
            return _at_rest(where, settings, audit_file)
        except Locked as reason:  # a broker that is starting, or about to end
            if isinstance(where, str) and is_object_uri(where):
                raise  # it says what to do; whoever serves may be anywhere
            if attempt == _TRIES - 1:
                message = f"{reason}; it takes no orders now, as a broker that is still starting:"
                raise Locked(f"{message} run it again") from reason
            time.sleep(_PAUSE_S)
    raise AssertionError


def _at_rest(where: Root | str | Path, config: StoreConfig, audit_file: Path | None) -> AdminClient:
    from sparkstore.control.offline import OfflineControl  # noqa: PLC0415  # it loads deltalake

    return OfflineControl(where, config, audit_file=audit_file)


def connect_to(where: Root | str | Path, copy_dir: str = "") -> SocketControl | None:
    """The broker that serves a root, or a bucket from this machine; None if nobody listens here.

    Args:
        where: The root, a folder or the URI of a bucket.
        copy_dir: Where a store on a bucket has its working copy, if it was told.

    Raises:
        InvalidRequest: There is no root; who listens is not allowed to us, or is about another.
        Unavailable: It does not answer.
    """
    if isinstance(where, Root):
        return connect(where)
    if is_object_uri(where):
        from sparkstore.bucket.working_copy import copy_here  # noqa: PLC0415  # it loads pyarrow

        copy = copy_here(checked_uri(str(where)), copy_dir)
        return None if copy is None else connect(copy)
    return connect(open_root(where))


def connect(root: Root) -> SocketControl | None:
    """The broker that serves a root; None if nobody listens.

    Raises:
        InvalidRequest: Who listens is not allowed to us, or is about another root.
        Unavailable: It does not answer.
    """
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(_CONNECT_S)
    try:
        with SocketAddress(root.path) as address:
            peer.connect(address)
        return SocketControl(peer, root)
    except (FileNotFoundError, ConnectionError):  # nobody, or one that is just being killed
        peer.close()
        return None
    except OSError as reason:
        peer.close()
        kind = InvalidRequest if isinstance(reason, PermissionError) else Unavailable
        message = f"{root.path}/{wire.SOCKET_NAME}: {reason.strerror or reason}"
        raise kind(message) from reason
    except BaseException:
        peer.close()
        raise


class SocketControl:
    """An `AdminClient` that sends requests to the running broker through its control socket."""

    def __init__(self, peer: socket.socket, root: Root) -> None:
        """Exchange greetings with the broker over a connected socket.

        Raises:
            InvalidRequest: It is about another root, or speaks another version.
            OSError: It does not answer.
        """
        self._peer = peer
        self._received = bytearray()
        root_id = root.identity.root_id
        peer.sendall(wire.line(wire.hello(root_id)))
        wire.check_hello(wire.content_of(self._line()), root_id)
        peer.settimeout(ANSWER_S)

    def run(self, request: Request) -> Answer:
        """Have the broker carry out a request (`AdminClient.run`)."""
        return self._ask(wire.request_line(request))

    def put(self, queue: str, messages: Sequence[MessageDraft]) -> Answer:
        """Have the broker put new messages on a queue (`AdminClient.put`)."""
        return self._ask(wire.put_line(queue, messages))

    def place(self, request: PlacementRequest) -> Answer:
        """Have the broker carry out changes of place (`AdminClient.place`)."""
        return self._ask(placements_line(request))

    def holders(self, limit: int | None) -> wire.HeldMessages:
        """Return the messages that are held now, with their holders: `limit` at most; None: all.

        Raises:
            Unavailable: The broker went away.
        """
        return wire.held_of(self._read(wire.holders_line(limit or wire.ALL)))

    def order(self, order: Order) -> dict[str, Any]:
        """Have the broker carry out an administrator's order (`AdminClient.order`)."""
        told: dict[str, Any] = wire.object_of(self._exchange(wire.order_line(order)), "told")
        return told

    def branch(self, order: BranchOrder) -> dict[str, Any]:
        """Have the broker decide a branch in doubt (`AdminClient.branch`)."""
        act, xid, by = order
        said = self._exchange(wire.line({"branch": act, "xid": xid, "by": by}))
        told: dict[str, Any] = wire.object_of(said, "told")
        return told

    def flush(self) -> None:
        """Have the broker put all that was done into the tables (`AdminClient.flush`)."""
        wire.object_of(self._exchange(wire.line({"flush": True})), "flushed")

    def purge(
        self, queue: str, show: Callable[[Answer], None], operation: str | None = None
    ) -> Answer:
        """Have the broker purge a queue, showing each answer (`AdminClient.purge`)."""
        named = {} if operation is None else {"operation": operation}
        said = self._exchange(wire.line({"purge": queue, **named}))
        while "so_far" in said:
            show(wire.answer_of(said["so_far"]))
            said = self._exchange(b"")
        return wire.answer_of(said)

    def connections(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the connected clients, those of members too, and the members that did not answer.

        Raises:
            Unavailable: The broker went away.
        """
        said = self._read(wire.line({"connections": True}))
        found: list[dict[str, Any]] = wire.object_of(said, "connections")
        return found, said.get("silent", [])

    def close_connection(self, number: int, member: str | None = None) -> dict[str, Any]:
        """End a connection, here or at a member; what it was.

        Raises:
            InvalidRequest: There is none of this number.
            Unavailable: The broker went away.
        """
        said = self._exchange(wire.line({"close": number, "member": member}))
        told: dict[str, Any] = wire.object_of(said, "told")
        return told

    def not_durable(self) -> dict[str, int]:
        """Messages by queue that are in the broker's memory only.

        Raises:
            StoreError: The broker went away, or does not know the question.
        """
        return wire.not_durable_of(self._read(wire.line({wire.NOT_DURABLE: True})))

    def close(self) -> None:
        """Let go of the connection."""
        self._peer.close()

    def _ask(self, line: bytes) -> Answer:
        return wire.answer_of(self._exchange(line))

    def _read(self, line: bytes) -> dict[str, Any]:
        self._peer.settimeout(READ_S)
        answer = self._exchange(line)
        self._peer.settimeout(ANSWER_S)
        return answer

    def _exchange(self, line: bytes) -> dict[str, Any]:
        try:
            self._peer.sendall(line)
            return wire.content_of(self._line())
        except OSError as reason:
            patience_s = self._peer.gettimeout() or 0.0
            with suppress(OSError):
                self._peer.close()
            if isinstance(reason, TimeoutError):
                message = f"the broker has not answered for {patience_s:g} s: look into its log;"
                message += " what was asked is done whole or not at all, perhaps later"
            else:
                message = f"the broker went away ({reason}): the last request was done whole or not"
                message += " at all; run it again"
            raise Unavailable(message) from reason

    def _line(self) -> bytes:
        """Read the next line from the broker.

        Raises:
            OSError: The broker closed the connection, or is too slow.
        """
        while (end := self._received.find(b"\n")) < 0:
            received = self._peer.recv(1 << 16)
            if not received:
                raise ConnectionResetError("it closed the connection")
            self._received += received
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line
