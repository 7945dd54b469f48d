"""The stores a broker is served over, as the command line chose their tier.

A root keeps everything; a folder of JSON files what is wired and the termini, but no message
(CONFIGURATION); memory nothing. What each tier promises of a link: `broker_shim.links.store`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from broker_shim.errors import InvalidRequest
from broker_shim.links import LinkRegistry, MemoryUnsettledStore
from broker_shim.store.interface import MessageStore
from broker_shim.store.links import LinkStores, link_stores_of
from sparkstore.config import StoreConfig
from sparkstore.tables.private_folder import private_folder

WIRING, LINKS = "wiring.json", "links.json"
"""Files of a folder of `--configuration`."""


class Stores(NamedTuple):
    """What is served, and where its links are kept."""

    messages: MessageStore
    link_stores: LinkStores

    def registry(self) -> LinkRegistry:
        """The links that are kept there, not recovered yet."""
        return LinkRegistry(*self.link_stores)

    def close(self) -> None:
        """Make what was told durable, let go of everything; may be called twice.

        Raises:
            StoreError: The message store could not.
        """
        try:
            self.messages.close()
        finally:
            self.link_stores.links.close()


def check_choice(options: argparse.Namespace) -> None:
    """Exactly one of the three is asked for.

    Raises:
        InvalidRequest: None is, or more than one.
    """
    chosen = [bool(options.root), options.memory, options.configuration is not None]
    if not any(chosen):
        raise InvalidRequest("give the folder of the store, or --memory to keep nothing")
    if sum(chosen) > 1:
        raise InvalidRequest("give one of ROOT, --configuration FOLDER and --memory")
    if options.accept_durable and options.root:
        text = "--accept-durable is for --memory and --configuration: a root keeps what is durable"
        raise InvalidRequest(text)


def open_stores(options: argparse.Namespace, config: StoreConfig) -> Stores:
    """Open what was asked for. Imported here: a broker that keeps nothing needs no deltalake.

    Raises:
        StoreError: As the store's constructor; nothing stays open.
    """
    if options.memory:
        from broker_shim.store.memory import MemoryMessageStore  # noqa: PLC0415

        return stores_of(MemoryMessageStore(config.max_message_bytes))
    if options.configuration is not None:
        return _configuration(options.configuration, config)
    from broker_shim.store.delta import DeltaMessageStore  # noqa: PLC0415

    return stores_of(DeltaMessageStore(options.root, config))


def stores_of(messages: MessageStore) -> Stores:
    """A message store and the link stores that go with it."""
    return Stores(messages, link_stores_of(messages))


def _configuration(folder: Path, config: StoreConfig) -> Stores:
    from broker_shim.store.json.links import JsonLinkStore  # noqa: PLC0415
    from broker_shim.store.json.store import JsonMessageStore  # noqa: PLC0415

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
