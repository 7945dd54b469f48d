"""The one way to change queues from outside: through the running broker, or under its lock.

`open_control` asks who serves the root. A broker or store service that runs serves its endpoints on
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

import time
from collections.abc import Callable, Sequence
from http.client import BadStatusLine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sparkstore.config import StoreConfig
from sparkstore.control.socket_address import SOCKET_NAME
from sparkstore.errors import InvalidRequest, Locked, Unavailable
from sparkstore.operations.administration import Order
from sparkstore.operations.branch_orders import BranchOrder
from sparkstore.operations.bulk import Answer, MessageDraft, Request
from sparkstore.operations.placement import PlacementRequest
from sparkstore.storage.objects import checked_uri, is_object_uri
from sparkstore.tables.root import Root, open_root

if TYPE_CHECKING:
    from sparkstore.control.broker_control import BrokerControl
    from sparkstore.control.http_client import BrokerClient

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


def connect_to(where: Root | str | Path, copy_dir: str = "") -> BrokerControl | None:
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


def connect(root: Root) -> BrokerControl | None:
    """The broker that serves a root; None if nobody listens.

    Raises:
        InvalidRequest: Who listens is not allowed to us, is about another root, or of another
            release.
        Unavailable: It does not answer.
    """
    from sparkstore.control.broker_control import BrokerControl  # noqa: PLC0415  # it loads http
    from sparkstore.control.http_client import BrokerClient  # noqa: PLC0415

    try:
        broker = BrokerClient.at_root(root.path)
    except (FileNotFoundError, ConnectionError):
        return None
    except OSError as reason:
        kind = InvalidRequest if isinstance(reason, PermissionError) else Unavailable
        message = f"{root.path}/{SOCKET_NAME}: {reason.strerror or reason}"
        raise kind(message) from reason
    try:
        _check_served(broker, root)
    except BaseException as failure:
        broker.close()
        if isinstance(failure.__cause__, ConnectionError):
            return None  # one that is just being killed
        raise
    return BrokerControl(broker)


def _check_served(broker: BrokerClient, root: Root) -> None:
    """Check that a broker speaks as this release does, and serves this root."""
    try:
        served = broker.ask("GET", "self")["root_id"]
    except Unavailable as reason:
        if type(reason.__cause__) is not BadStatusLine:
            raise
        message = f"the broker that serves {root.path} is of an older release: use its sparkstore,"
        raise InvalidRequest(f"{message} or stop it and start it by this one") from reason
    if served != root.identity.root_id:
        message = f"the socket is of root {served!r}, not of {root.identity.root_id!r}"
        raise InvalidRequest(message)
