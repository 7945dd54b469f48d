"""The stores a broker is served over, as the command line chose their tier.

A root keeps everything; a folder of JSON files what is wired and the termini, but no message
(CONFIGURATION); memory nothing. What each tier promises of a link: `broker_shim.links.link_store`.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import uuid4

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.links import LinkRegistry, MemoryUnsettledStore
from broker_shim.store.chain.audit import CallAuditor
from broker_shim.store.chain.calls import ChainMember
from broker_shim.store.chain.mirror import Mirror
from broker_shim.store.chain.place import Tolerance
from broker_shim.store.chain.store_chain import MessageStoreChain
from broker_shim.store.interface import BrokerStore, MessageStore
from broker_shim.store.link_stores import LinkStores, link_stores_of
from broker_shim.store.protocol import check_member_name
from broker_shim.store.remote.greeting import parse_addresses
from sparkstore.config import StoreConfig
from sparkstore.log.tuning import import_arrow_without
from sparkstore.storage.objects import is_object_uri
from sparkstore.tables.private_folder import private_folder

if TYPE_CHECKING:
    from broker_shim.store.delta import DeltaMessageStore
    from broker_shim.store.remote.remote_store import RemoteMessageStore
    from sparkstore.tables.root import Root

_SERVICE_AWAY_S = 3600.0
"""How long clients of a member wait for a service that is gone."""
WIRING, LINKS = "wiring.json", "links.json"
"""Files of a folder of `--configuration`."""


class Stores(NamedTuple):
    """The message store that is served, and the store of its links."""

    messages: BrokerStore
    link_stores: LinkStores

    @property
    def in_force(self) -> dict[str, str]:
        """Tell the tier and the chain, for the line that says "ready"."""
        keeps = {"keeps": self.messages.durability.word}
        if isinstance(self.messages, MessageStoreChain):
            keeps["chain"] = str(1 + len(self.messages.members))
        return keeps

    @property
    def root(self) -> Root | None:
        """The root that is served; of one in a bucket its working copy; None if there is none."""
        first = self.messages
        if isinstance(first, MessageStoreChain):
            first = first.first
        root: Root | None = getattr(first, "root", None)
        return root

    def registry(self) -> LinkRegistry:
        """The links that are kept there, not recovered yet."""
        return LinkRegistry(*self.link_stores)

    def limit_stop(self) -> None:
        """Have a member give its service up in time after a signal; on the main thread."""
        if hasattr(self.messages, "give_up"):
            _limit_stop(cast("RemoteMessageStore", self.messages))

    def close(self) -> None:
        """Make what was told durable, let go of everything; may be called twice.

        Raises:
            StoreError: The message store could not.
        """
        try:
            self.messages.close()
        finally:
            self.link_stores.links.close()


def _limit_stop(store: RemoteMessageStore) -> None:
    """Have a member wait for its service only for `close_s`, once it was asked to stop.

    The loop cannot see to that: it may itself wait for the service, for message ids, and then it
    does not hear the signal before it has them. So a thread does, which a handler wakes. The
    handler runs wherever the main thread waits, and a `SimpleQueue` may be put to from within one.
    The loop's own handler is called all the same, by the byte that each signal writes to it. Call
    this on the main thread, after that handler was set.
    """
    asked = SimpleQueue[None]()

    def watch() -> None:
        asked.get()
        time.sleep(store.close_s)
        store.give_up()

    threading.Thread(target=watch, name="stop limit", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: asked.put(None))


def check_choice(options: argparse.Namespace) -> None:
    """Check that exactly one of the three stores is asked for.

    Raises:
        InvalidRequest: None is, or more than one; or what is said of a member cannot be.
    """
    is_member = options.store is not None
    chosen = [bool(options.root), options.memory, options.configuration is not None, is_member]
    if not any(chosen):
        raise InvalidRequest("give the folder of the store, or --memory to keep nothing")
    if sum(chosen) > 1:
        raise InvalidRequest("give one of ROOT, --store URL, --configuration FOLDER and --memory")
    if options.accept_durable and (options.root or is_member):
        text = "--accept-durable is for --memory and --configuration: a root keeps what is durable"
        raise InvalidRequest(text)
    if options.accept_loss and not options.root:
        raise InvalidRequest(
            "--accept-loss is for a root that lacks something: give its folder or URI"
        )
    if is_member:
        _check_member(options)
    elif options.member is not None:
        raise InvalidRequest("--member NAME is for --store URL: give that, too")


def _check_member(options: argparse.Namespace) -> None:
    kind, _, rest = options.store.partition(":")
    if kind not in {"unix", "tcp"} or not rest:
        message = f"--store {options.store!r}: write it as unix:PATH or tcp:HOST:PORT"
        raise InvalidRequest(message)
    is_reached = any(address.path is None for address in parse_addresses(options.store).all)
    if is_reached and options.token_file is None:
        raise InvalidRequest("--store tcp:HOST:PORT needs --token-file FILE, the service's")
    if options.member is not None:
        check_member_name(options.member)
    elif options.listen is not None and options.listen.endswith(":0"):
        text = "the port is another after each restart, and so would be the name HOST:PORT"
        raise InvalidRequest(f"give --member NAME: {text}")


def open_stores(
    options: argparse.Namespace, config: StoreConfig, stop_timeout_s: float | None = None
) -> Stores:
    """Open what was asked for. Imported here: a broker that keeps nothing needs no deltalake.

    Args:
        options: Those of the command line.
        config: What the settings say of stores.
        stop_timeout_s: How long a member's end waits for answers of its service.

    Raises:
        StoreError: As the store's constructor; nothing stays open.
    """
    if config.chain and not options.root:
        raise InvalidRequest("[store] chain is for a root: give one, or leave chain out")
    if config.witness and not options.root:
        raise InvalidRequest("[store] witness is for a root: give one, or leave witness out")
    if options.store is not None:
        return stores_of(_member_store(options, config, stop_timeout_s))
    if options.memory:
        from broker_shim.store.memory import MemoryMessageStore  # noqa: PLC0415

        return stores_of(MemoryMessageStore(config.max_message_bytes))
    if options.configuration is not None:
        return _configuration(options.configuration, config)
    import_arrow_without("numpy", "pandas")
    from broker_shim.store.chain.first_store import first_store  # noqa: PLC0415

    if config.chain and (options.no_amqp or options.store_socket or options.store_listen):
        text = "[store] chain is for brokers: members of the store service would not be chained"
        message = f"{text}: leave out chain, or --no-amqp, --store-socket and --store-listen"
        raise InvalidRequest(message)
    first = first_store(options.root, config, accept_loss=options.accept_loss)
    try:
        return stores_of(_chained(first, config) if config.chain else first)
    except BaseException:
        first.close()
        raise


def _member_store(
    options: argparse.Namespace, config: StoreConfig, stop_timeout_s: float | None
) -> BrokerStore:
    """The store of a service, for a broker that is its member."""
    from broker_shim.service.socket import read_token  # noqa: PLC0415
    from broker_shim.store.remote.greeting import MemberIdentity  # noqa: PLC0415
    from broker_shim.store.remote.remote_store import RemoteMessageStore  # noqa: PLC0415

    token = None if options.token_file is None else read_token(options.token_file)
    identity = MemberIdentity(options.member, str(uuid4()), token=token)
    return RemoteMessageStore(
        options.store,
        identity,
        retry_s=_SERVICE_AWAY_S,
        close_s=stop_timeout_s,
        max_message_bytes=config.max_message_bytes,
        recovers_entries=False,
    )


def _chained(first: DeltaMessageStore, config: StoreConfig) -> BrokerStore:
    """A root's store and those that the settings chain with it, alike when this returns."""
    members: list[tuple[ChainMember, Tolerance]] = []
    try:
        for asked in config.chain:
            tolerance = Tolerance(asked.on_failure == "drop", asked.max_waiting)
            if asked.audit:
                members.append((CallAuditor(Path(asked.audit)), tolerance))
                continue
            mirror = _mirror(asked.mirror, first, config)
            members.append((mirror, tolerance))
            mirror.catch_up(asked.max_distance)
    except BaseException:
        for member, _ in members:
            member.close()
        raise
    return MessageStoreChain(first, members)


def _mirror(folder: str, first: DeltaMessageStore, config: StoreConfig) -> Mirror:
    from broker_shim.store.delta import DeltaMessageStore  # noqa: PLC0415
    from sparkstore.tables.fencing import COPY  # noqa: PLC0415

    identity = first.root.identity
    itself = identity.primary if identity.role == COPY else str(first.root.path.resolve())
    place = folder.rstrip("/") if is_object_uri(folder) else str(Path(folder).resolve())
    if place == itself:
        message = f"[store] chain: {folder} is the root itself: give another folder"
        raise InvalidRequest(message)
    # These say where and how the first one is kept.
    own = replace(config, ack="", wal_dir="", copy_dir="", lost_wal="", witness="", chain=())
    # What the first one has accepted a mirror must take.
    own = replace(own, min_free_bytes=0, min_free_percent=0.0)
    from broker_shim.store.chain.first_store import place_of  # noqa: PLC0415

    return Mirror(folder, DeltaMessageStore(folder, own), first, place_of(first))


def stores_of(messages: BrokerStore) -> Stores:
    """A message store and the link stores that go with it."""
    return Stores(messages, link_stores_of(messages))


def _configuration(folder: Path, config: StoreConfig) -> Stores:
    from broker_shim.store.json.json_link_store import JsonLinkStore  # noqa: PLC0415
    from broker_shim.store.json.json_store import JsonMessageStore  # noqa: PLC0415

    try:
        private_folder(folder)
    except OSError as reason:
        message = f"--configuration {folder}: {reason}"
        raise InvalidRequest(message) from reason
    messages = JsonMessageStore(folder / WIRING, config.max_message_bytes)
    try:
        links = JsonLinkStore(folder / LINKS)
    except BaseException:
        messages.close()
        raise
    return Stores(messages, LinkStores(links, MemoryUnsettledStore()))


def trouble_of(store: MessageStore) -> str | None:
    """The reason why a store takes nothing now; None while it does."""
    if isinstance(store, MessageStoreChain):
        return trouble_of(store.first) if store.failure is None else str(store.failure)
    refusal: StoreError | None = getattr(store, "refusal", None)  # that of a root
    return None if refusal is None else str(refusal)
